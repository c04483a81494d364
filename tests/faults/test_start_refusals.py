"""A writer that must not serve does not start: exit status, one reason each, and how to mend it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.valkey import require_valkey
from tests.support.writers import ANA, AnotherWriter, Writers

from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server

SECONDS = 60.0
REFUSED = 1
MISCONFIGURED = 2


def environment(writers: Writers, changes: Mapping[str, str | None]) -> dict[str, str]:
    """That of a good writer beside the running one, with `changes`; None removes a variable."""
    good = dict(AnotherWriter(writers.suite, {}).environment)
    for name, value in changes.items():
        if value is None:
            good.pop(name, None)
        else:
            good[name] = value
    return good


async def end(writers: Writers, **changes: str | None) -> tuple[int | None, str]:
    """Exit status and words of a writer that is started with these changes of its environment."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qim_writer.main"),
        env=environment(writers, changes),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = output.decode()
    assert "Traceback" not in text, text
    assert "READY" not in text
    return process.returncode, text


UNSAFE = [
    ({"appendonly": "no"}, "appendonly is 'no', set it to yes"),
    ({"appendfsync": "everysec"}, "appendfsync is 'everysec', set it to always"),
    ({"no-appendfsync-on-rewrite": "yes"}, "no-appendfsync-on-rewrite is 'yes', set it to no"),
    ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy is 'allkeys-lru', set it to noeviction"),
    ({"replicaof": "127.0.0.1 1"}, "it is a replica"),
]


@pytest.mark.parametrize(("options", "words"), UNSAFE)
async def test_an_unsafe_store_is_refused(writers: Writers, options: dict[str, str], words: str) -> None:
    require_valkey()
    with ValkeyServer(options=options) as server:
        code, text = await end(writers, QIM_REDIS_ADDR=server.address, QIM_MESSAGE_STORE_ADDRS="")
    assert code == REFUSED, text
    assert f"Redis {server.address} could lose acknowledged messages" in text
    assert words in text


async def test_everything_that_is_unsafe_is_told_at_once(writers: Writers) -> None:
    with ValkeyServer(options={"appendonly": "no", "maxmemory-policy": "allkeys-lfu"}) as server:
        code, text = await end(writers, QIM_REDIS_ADDR=server.address, QIM_MESSAGE_STORE_ADDRS="")
    assert code == REFUSED
    assert "appendonly" in text
    assert "maxmemory-policy" in text


async def test_a_topology_that_is_not_the_stored_one_is_refused_and_nothing_is_changed(writers: Writers) -> None:
    group = (await writers.user(ANA).create_group()).group
    first, second = writers.suite.valkey_addresses
    before = writers.facts(group)
    with ValkeyServer() as stranger:
        cases: list[tuple[dict[str, str], str]] = [
            ({"QIM_REDIS_ADDR": second, "QIM_MESSAGE_STORE_ADDRS": first}, "position is 1 on the instance and 0"),
            ({"QIM_MESSAGE_STORE_ADDRS": ""}, "number of instances is 2 on the instance and 1"),
            ({"QIM_MESSAGE_STORE_ADDRS": stranger.address}, "it has no fingerprint"),
            ({"QIM_COMMIT_BUCKETS": "128"}, "number of buckets is 256 on the instance and 128"),
            ({"QIM_INSTALLATION_ID": "another"}, "installation id is"),
        ]
        for changes, words in cases:
            code, text = await end(writers, **changes)
            assert code == REFUSED, text
            assert "do not fit the configured topology" in text
            assert words in text
    assert writers.facts(group) == before
    assert (await writers.user(ANA).send_to(group, b"serves on")).seq == 1


async def test_a_pure_python_protobuf_is_refused(writers: Writers) -> None:
    code, text = await end(writers, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    assert code == REFUSED, text
    assert "refusing to start: protobuf runs on 'python' instead of 'upb'" in text
    assert "unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION" in text


async def test_a_taken_port_is_refused(writers: Writers) -> None:
    for variable in ("QIM_LISTEN", "QIM_HEALTH_LISTEN", "QIM_METRICS_LISTEN"):
        code, text = await end(writers, **{variable: writers.address})
        assert code == REFUSED, text
        assert variable in text


async def test_every_variable_that_cannot_be_taken_is_named_at_once(writers: Writers) -> None:
    mistakes: dict[str, str | None] = {
        "QIM_REDIS_ADDR": "redis://:secret@:x",
        "QIM_MESSAGE_STORE_ADDRS": "127.0.0.1:0",
        "QIM_LISTEN": "7401",
        "QIM_HEALTH_LISTEN": "127.0.0.1:65536",
        "QIM_COMMIT_BUCKETS": "1001",
        "QIM_INSTALLATION_ID": None,
        "QIM_BACKEND": "mysql",
        "QIM_MESSAGE_MAX_BYTES": "0",
        "QIM_TLS_CERT_FILE": "/nowhere.pem",
        "QIM_TOKEN_KEY_FILE": "/nowhere.key",
        "QIM_BINDINGS_FILE": None,
        "QIM_STREAM_MAX_AGE_SECONDS": "soon",
        "QIM_LOG_LEVEL": "LOUD",
    }
    code, text = await end(writers, **mistakes)
    assert code == MISCONFIGURED, text
    named = [line.split(":")[0].strip() for line in text.splitlines()[1:]]
    assert sorted(named) == sorted(mistakes)
    assert "secret" not in text


async def test_limits_that_contradict_each_other_are_named(writers: Writers) -> None:
    code, text = await end(writers, QIM_GROUP_MEMBER_LIMIT="11", QIM_GROUP_MEMBER_LIMIT_MAX="10")
    assert code == MISCONFIGURED, text
    assert "QIM_GROUP_MEMBER_LIMIT: must not exceed QIM_GROUP_MEMBER_LIMIT_MAX" in text


@pytest.mark.parametrize(
    ("variable", "content", "words"),
    [
        ("QIM_BINDINGS_FILE", "gateways: {g: {tenants: [0]}}", "tenant"),
        ("QIM_BINDINGS_FILE", "- not a mapping", "must be a mapping"),
        ("QIM_TOKEN_KEY_FILE", "short", "is not hexadecimal; use `openssl rand -hex 32`"),
        ("QIM_TLS_KEY_FILE", "no key", "key"),
        ("QIM_TLS_CA_FILE", "no certificate", "certificate"),
    ],
)
async def test_a_file_that_cannot_be_taken_is_refused(
    writers: Writers, tmp_path: Path, variable: str, content: str, words: str
) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    code, text = await end(writers, **{variable: str(file)})
    assert code == REFUSED, text
    assert str(file) in text
    assert words in text
