"""What lies in a suite's directory before its processes start: what is written, what is kept, what is refused."""

from __future__ import annotations

import shlex
import socket
import tomllib
from pathlib import Path

import pytest

from qim_client.config import ClientConfig
from qim_common.bindings import BindingsDocument, OperatorRole
from qim_common.config import PushWebhookSettings
from qim_common.tokens import parse_keys
from qim_devkit.paths import SuitePaths
from qim_devkit.pki import DevPki
from qim_devkit.ports import CHOICE, allocate
from qim_devkit.provision import (
    SuiteState,
    load_state,
    save_state,
    write_bindings,
    write_client_config,
    write_push_environment,
    write_token_key,
)
from qim_devkit.suite import Suite

ADDRESSES = {"writer": "127.0.0.1:20001", "session": "127.0.0.1:20002", "admin": "127.0.0.1:20003"}


@pytest.fixture
def paths(tmp_path: Path) -> SuitePaths:
    return SuitePaths(tmp_path)


def test_the_bindings_are_taken_by_the_services_and_an_edited_file_stays(paths: SuitePaths) -> None:
    write_bindings(paths, [1, 7])
    document = BindingsDocument.parse(paths.bindings.read_bytes())
    assert document.gateways["dev-gateway"].tenants == {1, 7}
    assert document.operators["dev-operator"].roles == {OperatorRole.ADMIN}
    assert document.backends["dev-backend"].allows(7)
    paths.bindings.write_text("gateways: {}\n")
    write_bindings(paths, [1])
    assert paths.bindings.read_text() == "gateways: {}\n"


def test_the_token_key_is_made_once_for_its_owner_only(paths: SuitePaths) -> None:
    write_token_key(paths)
    key = paths.token_key.read_bytes()
    assert len(parse_keys(key)[0]) == 32
    assert paths.token_key.stat().st_mode & 0o777 == 0o600
    write_token_key(paths)
    assert paths.token_key.read_bytes() == key


def test_the_client_configuration_is_what_the_command_lines_read(paths: SuitePaths) -> None:
    write_client_config(paths, DevPki(paths.pki), ADDRESSES, 7)
    config = ClientConfig.load(paths.client_config)
    gateway, operator = config.require_gateway(), config.require_operator()
    assert (gateway.writer, gateway.session, gateway.tenant) == (ADDRESSES["writer"], ADDRESSES["session"], 7)
    assert (operator.admin, operator.tenant) == (ADDRESSES["admin"], 7)
    for profile in (gateway, operator):
        assert profile.tls.ca == paths.pki / "services-ca.crt"
        assert all(path.is_file() for path in (profile.tls.cert, profile.tls.key, profile.tls.ca))
    assert operator.tls.cert.name == "operator-dev-operator.crt"


def test_a_push_process_beside_the_suite_lacks_nothing_but_the_url(
    paths: SuitePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    pki = DevPki(paths.pki)
    session = {
        "PATH": "/bin",
        "QIM_TLS_CA_FILE": str(pki.services_ca),
        "QIM_REDIS_ADDR": "redis://:it's$1@127.0.0.1:6379",
        "QIM_INSTALLATION_ID": "dev-1",
        "QIM_WRITER_ADDR": ADDRESSES["writer"],
        "QIM_LISTEN": ADDRESSES["session"],
        "QIM_TOKEN_KEY_FILE": "token.key",
    }
    for health in (20008, 20010):
        write_push_environment(paths, pki, session, {"push.health": health, "push.metrics": 20009})
    assert paths.push_environment.stat().st_mode & 0o777 == 0o600
    assert paths.webhook_secret.stat().st_mode & 0o777 == 0o600

    lines = paths.push_environment.read_text().splitlines()[1:]
    values = dict(shlex.split(line)[0].split("=", 1) for line in lines)
    assert not values.keys() & {"PATH", "QIM_LISTEN", "QIM_TOKEN_KEY_FILE"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = PushWebhookSettings(webhook_url="https://push.example")
    assert (settings.redis_addr, settings.installation_id) == (session["QIM_REDIS_ADDR"], "dev-1")
    assert (settings.health_listen, settings.writer_addr) == ("127.0.0.1:20010", ADDRESSES["writer"])
    assert settings.tls_cert_file.name == "session-push-0.crt"
    assert len(parse_keys(settings.webhook_secret_file.read_bytes())[0]) == 32


def test_a_section_is_written_only_for_services_that_run(paths: SuitePaths) -> None:
    write_client_config(paths, DevPki(paths.pki), {"writer": ADDRESSES["writer"]}, 1)
    assert tomllib.loads(paths.client_config.read_text()) == {}


def test_state_survives_and_a_damaged_file_is_refused(paths: SuitePaths) -> None:
    assert load_state(paths).installation_id != load_state(paths).installation_id, "a new installation each time"
    save_state(paths, SuiteState("dev-1", {"writer": 20001}))
    assert load_state(paths) == SuiteState("dev-1", {"writer": 20001})
    for damage in ("", "[]", "{}", '{"installation_id": "x", "ports": {"writer": "y"}}'):
        paths.state.write_text(damage)
        with pytest.raises(ValueError, match=r"state\.json: damaged"):
            load_state(paths)


def test_ports_are_remembered_unless_something_took_them() -> None:
    names = ["writer", "session"]
    first = allocate(names, {})
    assert len(set(first.values())) == 2
    assert all(port in CHOICE for port in first.values())
    assert allocate(names, first) == first
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first["writer"]))
        taken.listen()
        second = allocate(names, first)
    assert second["writer"] != first["writer"]
    assert second["session"] == first["session"]


def test_two_names_never_share_a_remembered_port() -> None:
    assert len(set(allocate(["writer", "session"], {"writer": 20001, "session": 20001}).values())) == 2


def test_a_suite_of_unknown_services_or_no_valkey_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown services reader"):
        Suite(tmp_path, services=("writer", "reader"))
    with pytest.raises(ValueError, match="at least one Valkey"):
        Suite(tmp_path, valkeys=0)
    with pytest.raises(ValueError, match="at least one session replica"):
        Suite(tmp_path, sessions=0)


def test_replicas_are_named_after_the_session_service_which_stays_where_it_was(tmp_path: Path) -> None:
    assert Suite(tmp_path).service_names == ("writer", "session", "admin")
    several = Suite(tmp_path, sessions=3)
    assert several.session_names == ("session", "session-1", "session-2")
    assert several.service_names == ("writer", "session", "session-1", "session-2", "admin")
    without = Suite(tmp_path, services=("writer",), sessions=3)
    assert (without.service_names, without.session_names) == (("writer",), ())


async def test_a_suite_refuses_data_that_lies_on_another_number_of_valkeys(paths: SuitePaths) -> None:
    save_state(paths, SuiteState("dev-1", {"valkey-0": 20001, "valkey-1": 20002}))
    with pytest.raises(ValueError, match="on 2 Valkey instances, not on 3"):
        await Suite(paths.root, valkeys=3).start()
