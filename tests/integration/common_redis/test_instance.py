"""An instance that is kept connected, on a real server that goes and comes."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.integration.common_redis.conftest import MakeInstance, until
from tests.support.valkey import connected_again

from qim_common.errors import BackendUnavailable, InstanceFenced
from qim_common.redis import (
    Connection,
    ConnectionLost,
    Demoted,
    FencedInstance,
    HandshakeRefused,
    ReplyError,
    UnsafeRedis,
    check_instance,
)
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


async def test_an_instance_that_was_not_started_fails_at_once(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    for future in (instance.call("PING"), instance.pipeline([("PING",)])):
        assert future.done()
        with pytest.raises(BackendUnavailable, match="was not called"):
            await future
    with pytest.raises(BackendUnavailable):
        await instance.drain()


async def test_a_restart_of_the_server_is_survived_without_repeating_anything(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    lost: list[bool] = []
    instance.on_lost.append(lambda: lost.append(instance.connected))
    await instance.start()
    assert await instance.call("INCR", "n") == 1

    os.kill(valkey.pid, signal.SIGSTOP)  # what is written now stays in the socket and dies with the server
    outstanding = instance.call("INCR", "n")
    valkey.kill()
    with pytest.raises(ConnectionLost):
        await outstanding
    assert lost == [False]
    refused = instance.call("INCR", "n")
    assert refused.done(), "while it is down, a call fails at once"
    with pytest.raises(BackendUnavailable, match="is down"):
        await refused

    valkey.start()
    await connected_again(instance)
    assert await instance.call("GET", "n") == b"1", "fsynced before the crash, and nothing was repeated after it"


async def test_the_hooks_run_on_each_connection_before_it_is_used(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    seen: list[tuple[bytes, bool]] = []

    async def hook(connection: Connection) -> None:
        seen.append((await connection.call("PING"), instance.connected))

    instance.on_connected.append(hook)
    await instance.start()
    assert seen == [(b"PONG", False)]
    valkey.restart()
    await until(lambda: len(seen) == 2)
    await connected_again(instance)
    assert seen == [(b"PONG", False)] * 2


async def test_an_instance_is_not_used_again_until_its_checks_pass(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    instance.on_connected.append(check_instance)
    await instance.start()
    valkey.stop()
    valkey.options["appendfsync"] = "everysec"
    valkey.start()

    def refused_for_its_setting() -> bool:
        error = instance.call("PING").exception() if not instance.connected else None
        return "appendfsync" in str(error)

    await until(refused_for_its_setting)
    valkey.stop()
    valkey.options["appendfsync"] = "always"
    valkey.start()
    await connected_again(instance)
    assert await instance.call("PING") == b"PONG"


async def test_a_hook_that_breaks_does_not_end_the_reconnecting(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    failures = [ReplyError("ERR one"), ZeroDivisionError("two")]
    await instance.start()

    async def hook(_connection: Connection) -> None:
        if failures:
            raise failures.pop()

    instance.on_connected.append(hook)
    valkey.restart()
    await until(lambda: not failures)
    await connected_again(instance)
    assert await instance.call("PING") == b"PONG"


async def test_start_waits_for_a_server_that_comes_later(valkey: ValkeyServer, make_instance: MakeInstance) -> None:
    valkey.stop()
    instance = make_instance(valkey)
    starting = asyncio.create_task(instance.start())
    await asyncio.sleep(0)
    valkey.start()
    await starting
    assert await instance.call("PING") == b"PONG"
    with pytest.raises(RuntimeError, match="started before"):
        await instance.start()


async def test_start_gives_up_after_its_time(valkey: ValkeyServer, make_instance: MakeInstance) -> None:
    valkey.stop()
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await make_instance(valkey).start(timeout=0.1)


async def test_start_refuses_at_once_what_waiting_cannot_mend(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    unsafe = make_instance(valkey)
    unsafe.on_connected.append(check_instance)
    valkey.options |= {"maxmemory-policy": "allkeys-lru"}
    valkey.restart()
    with pytest.raises(UnsafeRedis, match="maxmemory-policy"):
        await unsafe.start()
    valkey.options |= {"requirepass": "x"}
    valkey.restart()
    with pytest.raises(HandshakeRefused):
        await make_instance(valkey).start()


async def test_an_instance_that_became_a_replica_is_left_until_it_is_the_primary_again(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    instance.on_connected.append(check_instance)
    await instance.start()
    operator = make_instance(valkey)
    await operator.start()
    await operator.call("REPLICAOF", "127.0.0.1", "1")

    with pytest.raises(Demoted):
        await instance.call("SET", "k", "v")
    await until(lambda: not instance.connected)
    await operator.call("REPLICAOF", "NO", "ONE")
    await connected_again(instance)
    assert await instance.call("SET", "k", "v") == b"OK"


async def test_a_connection_that_is_dropped_is_made_anew(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    await instance.start()
    before = await instance.call("CLIENT", "ID")
    instance.connection.close("for the test")
    await until(lambda: not instance.connected)
    await connected_again(instance)
    assert await instance.call("CLIENT", "ID") > before


async def test_close_fails_what_is_outstanding_and_stays_closed(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    await instance.start()
    outstanding = instance.call("BLPOP", "nothing", 0)
    await instance.close()
    with pytest.raises(ConnectionLost):
        await outstanding
    with pytest.raises(BackendUnavailable, match="closed"):
        await instance.call("PING")
    await instance.close()


async def test_a_hook_that_fences_does_not_keep_the_service_from_starting(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    await instance.start()
    fenced = True
    asked = 0

    async def fence(connection: Connection) -> None:
        nonlocal asked
        asked += 1
        if fenced:
            raise FencedInstance(f"{connection.address} went back")

    await instance.admit(fence)
    with pytest.raises(InstanceFenced) as refused:
        await instance.call("PING")
    assert str(valkey_session.address) not in refused.value.message
    with pytest.raises(InstanceFenced):
        await instance.drain()
    await until(lambda: asked > 2)
    fenced = False
    await connected_again(instance)
    assert await instance.call("PING") == b"PONG"


async def test_a_hook_that_cannot_tell_yet_is_asked_again(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    await instance.start()
    ready = False

    async def compare(_: Connection) -> None:
        if not ready:
            raise BackendUnavailable

    await instance.admit(compare)
    with pytest.raises(BackendUnavailable):
        await instance.call("PING")
    ready = True
    await connected_again(instance)


async def test_a_hook_that_refuses_the_instance_ends_the_start(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    await instance.start()

    async def refuse(_: Connection) -> None:
        raise UnsafeRedis("it could lose data")

    with pytest.raises(UnsafeRedis):
        await instance.admit(refuse)
    assert not instance.connected
