"""Scripts on a real server, which may forget them."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from tests.integration.common_redis.conftest import MakeInstance, until

from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, NoScript, ReplyError, Script, ScriptLoader, run, submit
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server

COUNT = Script("count", "#!lua\nreturn {redis.call('INCRBY', KEYS[1], ARGV[1]), ARGV[2]}")
READ = Script("read", "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])")
BROKEN = Script("broken", "#!lua\nreturn ((")


@pytest_asyncio.fixture
async def instance(valkey_session: ValkeyServer, make_instance: MakeInstance) -> Instance:
    """An instance on the shared server."""
    made = make_instance(valkey_session)
    await made.start()
    return made


async def _loaded(instance: Instance, *scripts: Script) -> list[int]:
    exists: list[int] = await instance.call("SCRIPT", "EXISTS", *(script.sha1 for script in scripts))
    return exists


async def test_the_loader_makes_scripts_known_on_each_connection(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    instance.on_connected.append(ScriptLoader([COUNT, READ]))
    await instance.start()
    assert await _loaded(instance, COUNT, READ) == [1, 1]
    lost: list[bool] = []
    instance.on_lost.append(lambda: lost.append(True))
    valkey.restart()
    await until(lambda: bool(lost) and instance.connected)
    assert await _loaded(instance, COUNT, READ) == [1, 1]


async def test_a_script_that_does_not_compile_refuses_the_start(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey_session)
    instance.on_connected.append(ScriptLoader([COUNT, BROKEN]))
    with pytest.raises(ReplyError, match="compiling"):
        await instance.start()


async def test_keys_and_arguments_arrive(instance: Instance) -> None:
    assert await run(instance, COUNT, [b"\x00k"], [5, b"\xff"]) == [5, b"\xff"]
    assert await run(instance, READ, [b"\x00k"], []) == b"5"


async def test_a_flushed_script_is_loaded_again_and_runs_once(instance: Instance) -> None:
    await run(instance, COUNT, ["n"], [1, ""])
    await instance.call("SCRIPT", "FLUSH", "SYNC")
    assert await run(instance, COUNT, ["n"], [1, ""]) == [2, b""]
    assert await _loaded(instance, COUNT) == [1]


async def test_calls_in_flight_at_a_flush_all_run_once_and_in_order(instance: Instance) -> None:
    await instance.call("SCRIPT", "FLUSH", "SYNC")
    replies = await asyncio.gather(*(submit(instance, COUNT, ["n"], [1, i]) for i in range(50)))
    assert replies == [[i + 1, str(i).encode()] for i in range(50)]


async def test_a_flush_between_the_load_and_its_repeat_is_reported_not_repeated_for_ever(instance: Instance) -> None:
    # The hash of one source under another: loading never makes it known.
    impostor = Script("impostor", "#!lua\nreturn 1")
    object.__setattr__(impostor, "sha1", "0" * 40)
    with pytest.raises(NoScript):
        await run(instance, impostor, [], [])


async def test_a_script_that_cannot_be_loaded_says_why(instance: Instance) -> None:
    with pytest.raises(ReplyError, match="compiling"):
        await run(instance, BROKEN, [], [])


async def test_a_cancelled_call_is_dropped_also_while_it_is_repeated(instance: Instance) -> None:
    await instance.call("SCRIPT", "FLUSH", "SYNC")
    cancelled, kept = submit(instance, COUNT, ["n"], [1, "a"]), submit(instance, COUNT, ["n"], [1, "b"])
    cancelled.cancel()
    count, text = await kept
    assert (count, text) in ((1, b"b"), (2, b"b"))
    cancelled = submit(instance, COUNT, ["n"], [1, "c"])
    cancelled.cancel()
    assert await run(instance, COUNT, ["n"], [1, "d"]) == [count + 2, b"d"], "cancelling does not undo"


async def test_a_script_that_breaks_is_a_programming_error(instance: Instance) -> None:
    await instance.call("SET", "text", "x")
    with pytest.raises(ReplyError, match="not an integer"):
        await run(instance, COUNT, ["text"], [1, ""])


async def test_a_full_server_refuses_writing_scripts_whole_and_serves_reads(
    valkey: ValkeyServer, make_instance: MakeInstance
) -> None:
    instance = make_instance(valkey)
    instance.on_connected.append(ScriptLoader([COUNT, READ]))
    await instance.start()
    await run(instance, COUNT, ["n"], [7, ""])
    await instance.call("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(BackendUnavailable, match="OOM"):
        await run(instance, COUNT, ["n"], [1, ""])
    assert await run(instance, READ, ["n"], []) == b"7"


async def test_a_call_while_the_instance_is_down_fails_at_once(
    valkey_session: ValkeyServer, make_instance: MakeInstance
) -> None:
    with pytest.raises(BackendUnavailable):
        await run(make_instance(valkey_session), COUNT, ["n"], [1, ""])


async def test_an_argument_of_another_type_is_refused_before_anything_is_written(instance: Instance) -> None:
    with pytest.raises(TypeError):
        submit(instance, COUNT, ["n"], [1, None])  # type: ignore[list-item]
    assert await instance.call("EXISTS", "n") == 0
