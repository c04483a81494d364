"""How the command lines find their configuration, and what they say when there is none or a faulty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_client.config import CONFIG_VARIABLE, ClientConfig, ClientConfigError

GATEWAY = """
[gateway]
writer = "127.0.0.1:20001"
session = "127.0.0.1:20002"
tenant = 1
cert = "pki/gateway.crt"
key = "pki/gateway.key"
ca = "/etc/qim/ca.crt"
"""


def written(directory: Path, text: str = GATEWAY) -> Path:
    path = directory / ".qim" / "client.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_the_nearest_file_upward_is_taken(tmp_path: Path) -> None:
    written(tmp_path)
    nearer = written(tmp_path / "a")
    (tmp_path / "a" / "b").mkdir()
    config = ClientConfig.load(environment={}, directory=tmp_path / "a" / "b")
    assert config.path == nearer.resolve()


def test_paths_are_relative_to_the_file_and_absolute_ones_stay(tmp_path: Path) -> None:
    path = written(tmp_path)
    tls = ClientConfig.load(path).require_gateway().tls
    assert (tls.cert, tls.ca) == (path.parent / "pki" / "gateway.crt", Path("/etc/qim/ca.crt"))


def test_the_variable_comes_before_the_directory(tmp_path: Path) -> None:
    written(tmp_path)
    named = tmp_path / "other.toml"
    named.write_text(GATEWAY.replace("20001", "20009"))
    config = ClientConfig.load(environment={CONFIG_VARIABLE: str(named)}, directory=tmp_path)
    assert config.require_gateway().writer == "127.0.0.1:20009"


def test_nothing_found_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match="run `make up`"):
        ClientConfig.load(environment={}, directory=tmp_path)


def test_a_variable_that_names_no_file_is_refused_without_falling_back(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(ClientConfigError, match=CONFIG_VARIABLE):
        ClientConfig.load(environment={CONFIG_VARIABLE: str(tmp_path / "none.toml")}, directory=tmp_path)


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    config = ClientConfig.load(written(tmp_path))
    with pytest.raises(ClientConfigError, match=r"\[operator\]"):
        config.require_operator()
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(ClientConfigError, match=r"\[gateway\]"):
        ClientConfig.load(tmp_path / "empty.toml").require_gateway()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gateway = [", "not TOML"),
        ("gateway = 3", r"\[gateway\] lacks writer"),
        (GATEWAY.replace('writer = "127.0.0.1:20001"', ""), "lacks writer"),
        (GATEWAY.replace('"127.0.0.1:20002"', "20002"), "session must be a text"),
        (GATEWAY.replace('"127.0.0.1:20002"', '""'), "session must be a text"),
        (GATEWAY.replace("tenant = 1", "tenant = 0"), "tenant must be a number"),
        (GATEWAY.replace("tenant = 1", "tenant = true"), "tenant must be a number"),
        (GATEWAY.replace("tenant = 1", 'tenant = "1"'), "tenant must be a number"),
        (GATEWAY.replace("tenant = 1", "tenant = 18446744073709551616"), "tenant must be a number"),
        (GATEWAY.replace('ca = "/etc/qim/ca.crt"', ""), "lacks ca"),
    ],
)
def test_a_faulty_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ClientConfigError, match=message) as caught:
        ClientConfig.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ClientConfigError, match="not TOML"):
        ClientConfig.load(path)
    with pytest.raises(ClientConfigError, match="cannot be read"):
        ClientConfig.load(path.parent)
