"""Where notifications may be sent to, and what else a push process may be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_common.config import PushWebhookSettings, load


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The least that it needs."""
    for name in ("TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_CA_FILE", "WEBHOOK_SECRET_FILE"):
        path = tmp_path / name.lower()
        path.touch()
        monkeypatch.setenv(f"QIM_{name}", str(path))
    monkeypatch.setenv("QIM_REDIS_ADDR", "127.0.0.1:6379")
    monkeypatch.setenv("QIM_INSTALLATION_ID", "test")
    monkeypatch.setenv("QIM_WEBHOOK_URL", "https://push.example/qim")
    return monkeypatch


def test_bodies_and_big_groups_stay_at_home_unless_told_otherwise(environment: pytest.MonkeyPatch) -> None:
    settings = load(PushWebhookSettings)

    assert (settings.push_body_max_bytes, settings.push_big_groups) == (0, "skip")
    assert (settings.push_name, settings.push_max_age_seconds) == ("webhook", 3600)


@pytest.mark.parametrize(
    "url",
    [
        "https://push.example",
        "https://push.example:8443/a/b?token=c",
        "https://[2001:db8::1]/",
        "http://127.0.0.1:8080/hook",
        "http://[::1]:8080/hook",
        "http://localhost/hook",
    ],
)
def test_notifications_go_over_tls_or_stay_on_the_machine(environment: pytest.MonkeyPatch, url: str) -> None:
    environment.setenv("QIM_WEBHOOK_URL", url)
    assert load(PushWebhookSettings).webhook_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "push.example",
        "http://push.example/",
        "http://192.168.1.1/",
        "http://127.0.0.1.push.example/",
        "http://localhost.push.example/",
        "ftp://push.example/",
        "https:///hook",
        "https://user:confidential@push.example/",
        "https://push.example:0/",
        "https://push.example:70000/",
        "https://push.example/#part",
        "https://push.example/a b",
        "https://push.example/\n",
        "https://püsh.example/",
        "https://[::1/",
    ],
)
def test_other_urls_are_refused_and_not_repeated(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    environment.setenv("QIM_WEBHOOK_URL", url)
    with pytest.raises(SystemExit):
        load(PushWebhookSettings)
    told = capsys.readouterr().err
    assert "QIM_WEBHOOK_URL: write" in told
    assert "confidential" not in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QIM_PUSH_NAME", ""),
        ("QIM_PUSH_NAME", "a:b"),
        ("QIM_PUSH_NAME", "a" * 33),
        ("QIM_PUSH_MAX_AGE_SECONDS", "0"),
        ("QIM_PUSH_BIG_GROUPS", "all"),
        ("QIM_PUSH_BODY_MAX_BYTES", "4097"),
        ("QIM_PUSH_BATCH_MAX", "0"),
        ("QIM_PUSH_UNREAD_MAX_RECIPIENTS", "-1"),
        ("QIM_WEBHOOK_TIMEOUT_SECONDS", "0"),
        ("QIM_WEBHOOK_CONNECTIONS", "0"),
        ("QIM_WEBHOOK_CA_FILE", "/nowhere"),
    ],
)
def test_bad_values_are_named(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    environment.setenv(name, value)
    with pytest.raises(SystemExit):
        load(PushWebhookSettings)
    assert name in capsys.readouterr().err
