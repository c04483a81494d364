"""The pipelined connection, on a real server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qim_common.errors import BackendUnavailable
from qim_common.redis import Connection, ConnectionLost, HandshakeRefused, RedisAddress, ReplyError
from qim_devkit.valkey import ValkeyServer, free_port

pytestmark = pytest.mark.server


def _address(server: ValkeyServer) -> RedisAddress:
    return RedisAddress.parse(server.address)


async def test_pipelined_calls_get_their_own_replies_in_order(connection: Connection) -> None:
    calls = [connection.call("ECHO", str(i)) for i in range(500)]
    assert await asyncio.gather(*calls) == [str(i).encode() for i in range(500)]
    assert connection.outstanding == 0


async def test_a_cancelled_call_does_not_shift_the_replies_of_later_ones(connection: Connection) -> None:
    calls = [connection.call("ECHO", str(i)) for i in range(10)]
    pipeline = connection.pipeline([("ECHO", "p0"), ("ECHO", "p1")])
    later = [connection.call("ECHO", str(i)) for i in range(10, 20)]
    for i in (0, 4, 9):
        calls[i].cancel()
    pipeline.cancel()
    kept = [call for i, call in enumerate(calls) if i not in (0, 4, 9)] + later
    expected = [str(i).encode() for i in range(20) if i not in (0, 4, 9)]
    assert await asyncio.gather(*kept) == expected
    assert connection.outstanding == 0


async def test_a_call_whose_awaiter_times_out_is_still_executed_once(connection: Connection) -> None:
    waiting = asyncio.ensure_future(connection.call("INCR", "n"))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await connection.call("GET", "n") == b"1"


async def test_an_error_reply_fails_only_its_own_call(connection: Connection) -> None:
    await connection.call("SET", "text", "x")
    before, wrong, after = connection.call("PING"), connection.call("LPUSH", "text", "y"), connection.call("PING")
    with pytest.raises(ReplyError) as error:
        await wrong
    assert error.value.code == "WRONGTYPE"
    assert (await before, await after) == (b"PONG", b"PONG")


async def test_a_pipeline_gives_errors_as_values(connection: Connection) -> None:
    one, error, three = await connection.pipeline([("SET", "k", 1), ("LPUSH", "k", "x"), ("GET", "k")])
    assert (one, three) == (b"OK", b"1")
    assert isinstance(error, ReplyError)
    assert await connection.pipeline([]) == []


async def test_bytes_text_and_numbers_arrive_as_they_are(connection: Connection) -> None:
    binary = bytes(range(256))
    await connection.call("MSET", b"\x00key", binary, "clé", "é", "n", -(2**62), "empty", b"")
    replies = await connection.call("MGET", b"\x00key", "clé", "n", "empty", "none")
    assert replies == [binary, "é".encode(), b"-4611686018427387904", b"", None]


async def test_values_larger_than_every_buffer_pass(connection: Connection) -> None:
    large = os.urandom(5_000_000)
    await connection.call("SET", "large", large)
    await connection.drain()
    assert await connection.call("GET", "large") == large


@pytest.mark.parametrize("argument", [None, True, ["x"], bytearray(b"x"), object()])
async def test_an_argument_of_another_type_is_refused_before_anything_is_written(
    connection: Connection, argument: object
) -> None:
    with pytest.raises(TypeError):
        connection.call("SET", "k", argument)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        connection.pipeline([("SET", "k", "1"), ("SET", "k", argument)])  # type: ignore[list-item]
    assert await connection.call("EXISTS", "k") == 0


async def test_a_command_without_a_word_is_refused(connection: Connection) -> None:
    with pytest.raises(ValueError, match="needs at least its name"):
        connection.call()
    with pytest.raises(ValueError, match="needs at least its name"):
        connection.pipeline([("PING",), ()])
    assert await connection.call("PING") == b"PONG"


async def test_calls_outstanding_at_a_crash_of_the_server_have_an_unknown_outcome(valkey: ValkeyServer) -> None:
    connection = await Connection.open(_address(valkey), name="test")
    closed: list[bool] = []
    connection.on_close.append(lambda: closed.append(True))
    os.kill(valkey.pid, signal.SIGSTOP)
    calls = [connection.call("INCR", "n") for _ in range(5)]
    batch = connection.pipeline([("INCR", "n"), ("INCR", "n")])
    calls[2].cancel()
    valkey.kill()

    for call in [*calls[:2], *calls[3:], batch]:
        with pytest.raises(ConnectionLost, match="outcome is unknown"):
            await call
    assert closed == [True]
    assert connection.closed
    for later in (connection.call("PING"), connection.pipeline([("PING",)])):
        with pytest.raises(BackendUnavailable) as refused:
            await later
        assert not isinstance(refused.value, ConnectionLost), "a call that was never written has a known outcome"
    with pytest.raises(BackendUnavailable):
        await connection.drain()


async def test_closing_fails_what_is_outstanding(connection: Connection) -> None:
    call = connection.call("PING")
    connection.close()
    connection.close()
    await connection.wait_closed()
    with pytest.raises(ConnectionLost):
        await call


async def test_a_server_that_stops_answering_is_given_up(valkey: ValkeyServer) -> None:
    connection = await Connection.open(_address(valkey), name="test", stall_timeout=0.05)
    os.kill(valkey.pid, signal.SIGSTOP)
    with pytest.raises(ConnectionLost, match="no reply for"):
        await connection.call("PING")


async def test_an_idle_connection_is_not_given_up(valkey_session: ValkeyServer) -> None:
    idle = await Connection.open(_address(valkey_session), name="test", stall_timeout=0.01)
    clock = await Connection.open(_address(valkey_session), name="test", stall_timeout=0.05)
    with pytest.raises(ConnectionLost, match="no reply for"):
        await clock.call("BLPOP", "nothing", 0)  # lasts several periods of the idle connection's watchdog
    assert await idle.call("PING") == b"PONG"
    idle.close()


async def test_a_blocking_read_outlasts_the_watchdog_where_it_is_off(valkey_session: ValkeyServer) -> None:
    reader = await Connection.open(_address(valkey_session), name="test", stall_timeout=None)
    writer = await Connection.open(_address(valkey_session), name="test", stall_timeout=None)
    waiting = reader.call("BLPOP", "list", 0)
    await writer.call("RPUSH", "list", "x")
    assert await waiting == [b"list", b"x"]
    reader.close()
    writer.close()


async def test_drain_waits_until_a_slow_server_takes_the_data(valkey: ValkeyServer) -> None:
    connection = await Connection.open(_address(valkey), name="test")
    os.kill(valkey.pid, signal.SIGSTOP)
    large = bytes(1_000_000)
    calls = [connection.call("SET", "k", large) for _ in range(20)]
    draining = asyncio.ensure_future(connection.drain())
    other = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    other.cancel()
    os.kill(valkey.pid, signal.SIGCONT)
    await draining
    assert await asyncio.gather(*calls) == [b"OK"] * 20
    connection.close()


async def test_the_connection_has_its_name_and_database(valkey_session: ValkeyServer) -> None:
    address = RedisAddress.parse(f"redis://{valkey_session.address}/3")
    connection = await Connection.open(address, name="qim-writer")
    info = (await connection.call("CLIENT", "INFO")).decode()
    assert " name=qim-writer " in info
    assert " db=3 " in info
    assert " resp=2 " in info
    connection.close()


async def test_a_unix_socket_serves_as_well(valkey: ValkeyServer) -> None:
    valkey.unix_socket = valkey.directory / "v.sock"
    valkey.restart()
    connection = await Connection.open(RedisAddress.parse(f"unix://{valkey.unix_socket}"), name="test")
    assert await connection.call("PING") == b"PONG"
    connection.close()
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await Connection.open(RedisAddress.parse(f"unix://{valkey.directory}/none.sock"), name="test")


async def test_credentials_are_used_and_wrong_ones_refused_without_showing_them(valkey: ValkeyServer) -> None:
    valkey.options["requirepass"] = "s3cret"
    valkey.restart()
    connection = await Connection.open(RedisAddress.parse(f"redis://:s3cret@{valkey.address}"), name="test")
    await connection.call("ACL", "SETUSER", "app", "on", ">p@ss", "~*", "+@all")
    connection.close()
    connection = await Connection.open(RedisAddress.parse(f"redis://app:p%40ss@{valkey.address}"), name="test")
    assert await connection.call("ACL", "WHOAMI") == b"app"
    connection.close()
    for address in (valkey.address, f"redis://:wr0ng@{valkey.address}", f"redis://nobody:wr0ng@{valkey.address}"):
        with pytest.raises(HandshakeRefused, match="check user, password and database") as refused:
            await Connection.open(RedisAddress.parse(address), name="test")
        assert "wr0ng" not in str(refused.value)


async def test_a_database_that_does_not_exist_and_a_name_with_blanks_are_refused(valkey_session: ValkeyServer) -> None:
    with pytest.raises(HandshakeRefused, match="DB index is out of range"):
        await Connection.open(RedisAddress.parse(f"redis://{valkey_session.address}/9999"), name="test")
    with pytest.raises(HandshakeRefused):
        await Connection.open(_address(valkey_session), name="a b")


async def test_nobody_listening_and_nobody_answering_are_unavailable() -> None:
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await Connection.open(RedisAddress("127.0.0.1", free_port()), name="test")
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await Connection.open(RedisAddress("no-such-host.invalid", 1), name="test")

    silent = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(BackendUnavailable, match="did not answer"):
            await Connection.open(RedisAddress("127.0.0.1", port), name="test", timeout=0.05)


@asynccontextmanager
async def _foreign_server(answer: bytes) -> AsyncIterator[RedisAddress]:
    """A server that gives one fixed answer to whatever comes first."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield RedisAddress("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01", b"*x\r\n"])
async def test_a_peer_that_speaks_another_protocol_is_unavailable(answer: bytes) -> None:
    async with _foreign_server(answer) as address:
        with pytest.raises(BackendUnavailable, match="protocol error"):
            await Connection.open(address, name="test")


async def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    async with _foreign_server(b"+OK\r\n+surplus\r\n") as address:
        connection = await Connection.open(address, name="test")
        await connection.wait_closed()
        with pytest.raises(BackendUnavailable, match="nobody asked for"):
            await connection.call("PING")
