"""Configuration from the environment, and what a bad one is told."""

from pathlib import Path

import pytest

from qim_common.config import (
    AdminSettings,
    ArchiverSettings,
    SessionSettings,
    StoreSettings,
    WriterSettings,
    load,
    split_listen,
)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The least that a service needs."""
    for name in ("TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_CA_FILE", "OPERATOR_CA_FILE", "BINDINGS_FILE", "TOKEN_KEY_FILE"):
        path = tmp_path / name.lower()
        path.touch()
        monkeypatch.setenv(f"QIM_{name}", str(path))
    monkeypatch.setenv("QIM_REDIS_ADDR", "127.0.0.1:6379")
    monkeypatch.setenv("QIM_INSTALLATION_ID", "test")
    return monkeypatch


def test_the_defaults_are_those_of_the_design(environment: pytest.MonkeyPatch) -> None:
    settings = load(WriterSettings)

    assert settings.commit_buckets == 256
    assert settings.message_max_bytes == 65_536
    assert settings.membership_event_broadcast_max_members == 500
    assert settings.projection_fanout_max_members == 1000
    assert (settings.group_member_limit, settings.group_member_limit_max) == (100_000, 100_000)
    assert (settings.stream_max_age_seconds, settings.drain_seconds) == (3600, 20)
    assert settings.dispatch_retention_hours == 24
    assert (settings.trust_domain, settings.backend, settings.log_format) == ("qim.local", "redis", "json")


def test_the_session_service_reads_nothing_that_only_the_writer_decides(environment: pytest.MonkeyPatch) -> None:
    writers = ("membership_event_broadcast_max_members", "projection_fanout_max_members", "dispatch_retention_hours")
    for name in writers:
        environment.setenv(f"QIM_{name.upper()}", "nonsense")
    settings = load(SessionSettings)

    assert settings.token_key_file.is_file()
    assert not any(hasattr(settings, name) for name in writers)


@pytest.mark.parametrize(
    ("level", "said", "seconds"),
    [("log", None, 0.5), ("archived", None, 0.02), ("archived", "300", 0.3), ("log", "0", 0.0)],
)
def test_an_archiver_waits_shorter_where_acknowledgements_wait_for_it(
    environment: pytest.MonkeyPatch, level: str, said: str | None, seconds: float
) -> None:
    environment.setenv("QIM_BACKEND", "tiered")
    environment.setenv("QIM_ACK_LEVEL", level)
    if said is not None:
        environment.setenv("QIM_ARCHIVE_LINGER_MS", said)

    assert load(ArchiverSettings).linger_seconds == seconds


def test_instances_keep_their_order_and_sessions_default_to_the_same(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("QIM_MESSAGE_STORE_ADDRS", "redis://b:6380 , unix:///run/c.sock,")
    settings = load(SessionSettings)

    assert [str(one) for one in settings.commit_addrs] == ["127.0.0.1:6379", "b:6380", "unix:///run/c.sock"]
    assert settings.session_addrs == settings.commit_addrs

    environment.setenv("QIM_SESSION_REDIS_ADDRS", "s:1,t:2")
    assert [str(one) for one in load(SessionSettings).session_addrs] == ["s:1", "t:2"]


def test_the_list_of_further_instances_may_be_empty(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("QIM_MESSAGE_STORE_ADDRS", "")
    assert [str(one) for one in load(StoreSettings).commit_addrs] == ["127.0.0.1:6379"]


def test_a_writer_may_have_no_low_latency_lane(environment: pytest.MonkeyPatch) -> None:
    assert load(WriterSettings).session_addr == ""
    environment.setenv("QIM_SESSION_ADDR", "")
    assert load(WriterSettings).session_addr == ""
    environment.setenv("QIM_SESSION_ADDR", "session:7402")
    assert load(WriterSettings).session_addr == "session:7402"


def test_admin_trusts_only_the_operators_ca_on_its_port_and_the_services_ca_on_its_calls(
    environment: pytest.MonkeyPatch,
) -> None:
    settings = load(AdminSettings)

    assert settings.server_tls.cas == (settings.operator_ca_file,)
    assert settings.client_tls.cas == (settings.tls_ca_file,)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("QIM_LISTEN", "7401", "QIM_LISTEN: write host:port"),
        ("QIM_LISTEN", "127.0.0.1:70000", "QIM_LISTEN: write host:port"),
        ("QIM_LISTEN", "::1:7401", "QIM_LISTEN: write an IPv6 host in brackets"),
        ("QIM_REDIS_ADDR", "http://user:secret@x", "QIM_REDIS_ADDR: "),
        ("QIM_MESSAGE_STORE_ADDRS", "a:1,b:x", "QIM_MESSAGE_STORE_ADDRS: "),
        ("QIM_MESSAGE_STORE_ADDRS", "a:1,127.0.0.1:6379", "name each instance once"),
        ("QIM_MESSAGE_STORE_ADDRS", "redis://app:secret@127.0.0.1:6379", "name each instance once"),
        ("QIM_COMMIT_BUCKETS", "0", "QIM_COMMIT_BUCKETS: "),
        ("QIM_COMMIT_BUCKETS", "1001", "QIM_COMMIT_BUCKETS: "),
        ("QIM_COMMIT_BUCKETS", "many", "QIM_COMMIT_BUCKETS: "),
        ("QIM_INSTALLATION_ID", "", "QIM_INSTALLATION_ID: "),
        ("QIM_INSTALLATION_ID", "x" * 65, "QIM_INSTALLATION_ID: "),
        ("QIM_BACKEND", "mongo", "QIM_BACKEND: "),
        ("QIM_GROUP_MEMBER_LIMIT_MAX", "99", "QIM_GROUP_MEMBER_LIMIT: must not exceed"),
        ("QIM_TLS_CERT_FILE", "/nowhere.pem", "QIM_TLS_CERT_FILE: names no file"),
        ("QIM_TRUST_DOMAIN", "Qim.Local", "QIM_TRUST_DOMAIN: "),
        ("QIM_OTLP_ENDPOINT", "collector:4317", "QIM_OTLP_ENDPOINT: "),
        ("QIM_STREAM_MAX_AGE_SECONDS", "0", "QIM_STREAM_MAX_AGE_SECONDS: "),
        ("QIM_LOG_LEVEL", "LOUD", "QIM_LOG_LEVEL: "),
        ("QIM_SESSION_ADDR", "session", "QIM_SESSION_ADDR: write host:port"),
        ("QIM_SESSION_ADDR", "127.0.0.1:0", "QIM_SESSION_ADDR: write host:port"),
    ],
)
def test_a_bad_value_is_told_by_its_variable(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, words: str
) -> None:
    environment.setenv(name, value)

    with pytest.raises(SystemExit) as ended:
        load(WriterSettings)

    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in told
    assert "secret" not in told
    assert len(told.splitlines()) == 2


def test_everything_that_is_missing_is_told_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QIM_TLS_CERT_FILE", "QIM_REDIS_ADDR", "QIM_INSTALLATION_ID"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(SystemExit):
        load(WriterSettings)

    told = capsys.readouterr().err
    for name in ("QIM_TLS_CERT_FILE", "QIM_REDIS_ADDR", "QIM_INSTALLATION_ID"):
        assert f"{name}: is not set" in told


@pytest.mark.parametrize(("address", "parts"), [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:7401", ("::1", 7401))])
def test_an_address_is_split_into_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert split_listen(address) == parts


SCYLLA = {"QIM_BACKEND": "scylla", "QIM_REDIS_ADDR": ""}


def test_the_comparison_backend_needs_no_redis_where_it_is_allowed(environment: pytest.MonkeyPatch) -> None:
    for name, value in (SCYLLA | {"QIM_ALLOW_COMPARISON_BACKEND": "yes"}).items():
        environment.setenv(name, value)
    settings = load(WriterSettings)

    assert (settings.backend, settings.commit_addrs) == ("scylla", ())


@pytest.mark.parametrize(
    ("settings", "changes", "words"),
    [
        (
            WriterSettings,
            {},
            "QIM_ALLOW_COMPARISON_BACKEND: set it to yes to run QIM_BACKEND=scylla",
        ),
        (WriterSettings, {"QIM_ALLOW_COMPARISON_BACKEND": "no"}, "sends are not version-checked"),
        (WriterSettings, {"QIM_ALLOW_COMPARISON_BACKEND": "perhaps"}, "QIM_ALLOW_COMPARISON_BACKEND: "),
        (SessionSettings, {"QIM_ALLOW_COMPARISON_BACKEND": "yes"}, "QIM_BACKEND: scylla has no dispatch log"),
        (WriterSettings, {"QIM_BACKEND": "redis"}, "QIM_REDIS_ADDR: is not set; set it"),
        (
            WriterSettings,
            {"QIM_ALLOW_COMPARISON_BACKEND": "yes", "QIM_ACK_LEVEL": "replicated", "QIM_REPLICAS": "1"},
            "QIM_ACK_LEVEL: only log with QIM_BACKEND=scylla",
        ),
    ],
)
def test_the_comparison_backend_is_refused_where_it_cannot_be_or_is_not_wanted(
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: type[StoreSettings],
    changes: dict[str, str],
    words: str,
) -> None:
    for name, value in (SCYLLA | changes).items():
        environment.setenv(name, value)

    with pytest.raises(SystemExit):
        load(settings)

    assert words in capsys.readouterr().err
