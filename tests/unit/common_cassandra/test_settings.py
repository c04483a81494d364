"""QIM_CASSANDRA_*: what is taken, and what a bad value is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_common.cassandra import CassandraSettings
from qim_common.config import load


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The least that is needed."""
    monkeypatch.setenv("QIM_CASSANDRA_CONTACT_POINTS", "127.0.0.1")
    return monkeypatch


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("127.0.0.1", [("127.0.0.1", 9042)]),
        (" a.example:19042 , b.example,", [("a.example", 19042), ("b.example", 9042)]),
        ("[::1]:9142,[fe80::2]", [("::1", 9142), ("fe80::2", 9042)]),
    ],
)
def test_contact_points_may_leave_the_port_out(
    environment: pytest.MonkeyPatch, text: str, endpoints: list[tuple[str, int]]
) -> None:
    environment.setenv("QIM_CASSANDRA_CONTACT_POINTS", text)
    assert load(CassandraSettings).endpoints == endpoints


def test_the_defaults_are_those_of_the_documentation(environment: pytest.MonkeyPatch) -> None:
    settings = load(CassandraSettings)
    assert (settings.cassandra_local_dc, settings.cassandra_keyspace) == ("dc1", "qim")
    assert (settings.cassandra_consistency, settings.cassandra_timeout_seconds) == ("QUORUM", 5.0)
    assert settings.cassandra_max_in_flight == 512
    assert settings.password() == ""
    assert settings.ssl_context() is None


def test_the_password_is_the_first_line_of_its_file(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(" se cret \n")
    environment.setenv("QIM_CASSANDRA_USERNAME", "qim")
    environment.setenv("QIM_CASSANDRA_PASSWORD_FILE", str(tmp_path / "password"))
    assert load(CassandraSettings).password() == " se cret "


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("CONTACT_POINTS", "", "QIM_CASSANDRA_CONTACT_POINTS"),
        ("CONTACT_POINTS", "a:b", "write host or host:port"),
        ("CONTACT_POINTS", "a:0", "write host or host:port"),
        ("CONTACT_POINTS", "a:70000", "write host or host:port"),
        ("CONTACT_POINTS", "::1", "IPv6 host in brackets"),
        ("CONTACT_POINTS", ":9042", "write host or host:port"),
        ("CONTACT_POINTS", "cql://a:9042", "write host or host:port"),
        ("CONTACT_POINTS", "user@a", "write host or host:port"),
        ("KEYSPACE", "Qim", "QIM_CASSANDRA_KEYSPACE"),
        ("KEYSPACE", "qim; drop", "QIM_CASSANDRA_KEYSPACE"),
        ("KEYSPACE", "k" * 49, "QIM_CASSANDRA_KEYSPACE"),
        ("LOCAL_DC", "", "QIM_CASSANDRA_LOCAL_DC"),
        ("LOCAL_DC", "a'b", "QIM_CASSANDRA_LOCAL_DC"),
        ("CONSISTENCY", "ONE", "QIM_CASSANDRA_CONSISTENCY"),
        ("TIMEOUT_SECONDS", "0", "QIM_CASSANDRA_TIMEOUT_SECONDS"),
        ("MAX_IN_FLIGHT", "0", "QIM_CASSANDRA_MAX_IN_FLIGHT"),
        ("MAX_IN_FLIGHT", "30001", "QIM_CASSANDRA_MAX_IN_FLIGHT"),
        ("USERNAME", "qim", "QIM_CASSANDRA_USERNAME and QIM_CASSANDRA_PASSWORD_FILE: set both or neither"),
        ("PASSWORD_FILE", "/nowhere", "QIM_CASSANDRA_PASSWORD_FILE: names no file"),
        ("TLS_CERT_FILE", __file__, "QIM_CASSANDRA_TLS_CERT_FILE and QIM_CASSANDRA_TLS_KEY_FILE"),
    ],
)
def test_a_bad_value_ends_the_start_with_its_name(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, told: str
) -> None:
    environment.setenv(f"QIM_CASSANDRA_{name}", value)
    with pytest.raises(SystemExit) as ended:
        load(CassandraSettings)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_client_certificate_needs_the_ca_of_the_nodes(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("QIM_CASSANDRA_TLS_CERT_FILE", __file__)
    environment.setenv("QIM_CASSANDRA_TLS_KEY_FILE", __file__)
    with pytest.raises(SystemExit):
        load(CassandraSettings)
    assert "QIM_CASSANDRA_TLS_CA_FILE: set it too" in capsys.readouterr().err
