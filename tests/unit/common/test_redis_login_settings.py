"""Login and CAs of Redis in the configuration: for which addresses they are, and what a bad file is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_common.config import StoreSettings, load
from qim_devkit.pki import DevPki

PASSWORD_FILE = "QIM_REDIS_PASSWORD_FILE"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The least that a user of Redis needs."""
    monkeypatch.setenv("QIM_REDIS_ADDR", "a:1")
    monkeypatch.setenv("QIM_INSTALLATION_ID", "test")
    return monkeypatch


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    return path


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a load ends with."""
    with pytest.raises(SystemExit) as ended:
        load(StoreSettings)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "hunter2" not in told
    _, line = told.splitlines()
    return line


def test_all_addresses_without_a_login_get_the_one_of_the_settings(
    environment: pytest.MonkeyPatch, password_file: Path
) -> None:
    environment.setenv("QIM_MESSAGE_STORE_ADDRS", "redis://own:p@b:2,unix:///c.sock")
    environment.setenv("QIM_SESSION_REDIS_ADDRS", "s:1,redis://:p@t:2")
    environment.setenv("QIM_REDIS_USERNAME", "app")
    environment.setenv(PASSWORD_FILE, str(password_file))
    settings = load(StoreSettings)

    logins = [
        [(one.username, one.password, one.password_file) for one in addresses]
        for addresses in (settings.commit_addrs, settings.session_addrs)
    ]
    assert logins == [
        [("app", "", password_file), ("own", "p", None), ("app", "", password_file)],
        [("app", "", password_file), ("", "p", None)],
    ]


def test_sessions_on_the_commit_instances_have_the_login_too(
    environment: pytest.MonkeyPatch, password_file: Path
) -> None:
    environment.setenv(PASSWORD_FILE, str(password_file))
    settings = load(StoreSettings)

    assert settings.session_addrs == settings.commit_addrs
    assert settings.session_addrs[0].password_file == password_file


def test_the_password_is_in_no_text_of_the_settings(environment: pytest.MonkeyPatch, password_file: Path) -> None:
    environment.setenv(PASSWORD_FILE, str(password_file))
    settings = load(StoreSettings)

    assert "hunter2" not in repr(settings) + repr(settings.commit_addrs) + settings.model_dump_json()


def test_the_cas_are_for_the_encrypted_addresses(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ca = DevPki(tmp_path).services_ca
    environment.setenv("QIM_MESSAGE_STORE_ADDRS", "rediss://b:2")
    environment.setenv("QIM_REDIS_TLS_CA_FILE", str(ca))

    assert [one.tls_ca_file for one in load(StoreSettings).commit_addrs] == [None, ca]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"  \r\n", "is empty"), (b"hunter2\nhunter2\n", "has several lines")],
)
def test_a_password_file_without_one_password_is_told_and_not_shown(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    environment.setenv(PASSWORD_FILE, str(path))

    assert f"{PASSWORD_FILE}: {words}" in refusal(capsys)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "names no file"),
        ("/nowhere/password", "names no file"),
        ("/tmp", "names no file"),  # noqa: S108  a directory
        ("/proc/self/mem", "cannot be read"),
    ],
)
def test_a_password_file_that_is_none_is_told(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str, words: str
) -> None:
    environment.setenv(PASSWORD_FILE, path)

    assert f"{PASSWORD_FILE}: {words}" in refusal(capsys)


def test_a_user_without_a_password_is_told(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.setenv("QIM_REDIS_USERNAME", "app")

    assert f"{PASSWORD_FILE}: QIM_REDIS_USERNAME needs it" in refusal(capsys)


def test_a_user_name_with_blanks_is_told(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.setenv("QIM_REDIS_USERNAME", "an app")

    assert "QIM_REDIS_USERNAME: has a form that is not taken" in refusal(capsys)


def test_cas_that_no_address_uses_are_told(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment.setenv("QIM_REDIS_TLS_CA_FILE", str(DevPki(tmp_path).services_ca))

    assert "QIM_REDIS_TLS_CA_FILE: no address is encrypted; write rediss://" in refusal(capsys)


@pytest.mark.parametrize("content", ["", "hunter2", "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----"])
def test_a_file_without_cas_is_told(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "ca.crt"
    path.write_text(content)
    environment.setenv("QIM_REDIS_ADDR", "rediss://a:1")
    environment.setenv("QIM_REDIS_TLS_CA_FILE", str(path))

    assert "QIM_REDIS_TLS_CA_FILE: holds no CA certificates" in refusal(capsys)
