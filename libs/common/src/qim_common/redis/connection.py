"""One pipelined connection to a Redis instance: the hiredis parser on a bare asyncio Protocol.

The commit path makes one script call for up to 256 sends (storage.md, "Speed"), and the client's CPU per call counts:
this costs a few microseconds where redis-py's asyncio client takes ten times as much (bench/connection.py).

Rules that callers rely on:

* Calls are written at once and answered in order. A caller may cancel the future that it got: the reply is then read
  and dropped, and the later calls still get their own replies.
* Nothing is ever repeated. When the connection drops, every unanswered call fails with `ConnectionLost`, whose outcome
  is unknown: the instance may have executed it.
* A call on a closed connection fails with `RedisUnavailable`: it was certainly not executed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from qim_common.redis.address import RedisAddress
from qim_common.redis.errors import (
    ConnectionLost,
    Demoted,
    RedisUnavailable,
    ReplyError,
    error_of_reply,
)
from qim_common.redis.greeting import greeting, refused, tls_context, unverified

Argument = bytes | str | int
"""What a command consists of. Subclasses of these (enums, typed ids) are refused by the packer with TypeError."""

STALL_SECONDS: Final = 10.0
"""A connection with unanswered calls that receives nothing for this long (at most twice as long) is dropped."""

_WRITE_BUFFER_BYTES: Final = 1 << 20
_NO_REPLY_YET: Final = object()


class _Batch:
    """The place of a pipeline in the queue of unanswered calls."""

    __slots__ = ("count", "future", "replies")

    def __init__(self, future: asyncio.Future[list[Any]], count: int) -> None:
        self.future = future
        self.count = count
        self.replies: list[Any] = []


class Connection(asyncio.Protocol):
    """One connection. Make it with `open`; all methods belong to the event loop's thread.

    Attributes:
        on_close: functions without arguments, called once when the connection has gone, after the calls that were
            outstanding have failed.
    """

    def __init__(self, address: RedisAddress, *, stall_timeout: float | None = STALL_SECONDS) -> None:
        self.address = address
        self.on_close: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=hiredis.ProtocolError, replyError=error_of_reply, notEnoughData=_NO_REPLY_YET
        )
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any] | _Batch] = deque()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._closed = False
        self._why = "not connected yet"
        self._received = 0
        self._stall_timeout = stall_timeout
        self._stall_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, address: RedisAddress, *, name: str, timeout: float = 5.0, stall_timeout: float | None = STALL_SECONDS
    ) -> Connection:
        """Connect, authenticate, choose protocol 2 and the database, and give the connection its name.

        Args:
            address: where to.
            name: shown by CLIENT LIST; without blanks.
            timeout: seconds for all of this.
            stall_timeout: seconds; see `STALL_SECONDS`. None for a connection that sends blocking reads.

        Raises:
            RedisUnavailable: nothing answers there, or not in time.
            HandshakeRefused: the server refuses user, password, database or name.
            UnusableFile: the file of the password or of the CAs cannot be used.
        """
        connection = cls(address, stall_timeout=stall_timeout)
        try:
            async with asyncio.timeout(timeout):
                await connection._connect()
                await connection._greet(name)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise RedisUnavailable(f"Redis {address} did not answer within {timeout:g} s") from error
            if isinstance(error, ssl.SSLCertVerificationError):
                raise unverified(address, error) from error
            if isinstance(error, OSError):
                raise RedisUnavailable(f"Redis {address} cannot be reached: {error}") from error
            raise
        return connection

    async def _connect(self) -> None:
        loop, address = self._loop, self.address
        if address.path:
            await loop.create_unix_connection(lambda: self, address.path)
            return
        await loop.create_connection(lambda: self, address.host, address.port, ssl=tls_context(address))

    async def _greet(self, name: str) -> None:
        try:
            checked(await self.pipeline(greeting(self.address, name)))
        except ReplyError as error:
            raise refused(self.address, error) from None

    @property
    def closed(self) -> bool:
        """Whether the connection has gone or is going."""
        return self._closed

    @property
    def why(self) -> str:
        """Why the connection is closed, in words."""
        return self._why

    @property
    def outstanding(self) -> int:
        """How many calls and pipelines are written and not answered."""
        return len(self._waiting)

    def call(self, *args: Argument) -> asyncio.Future[Any]:
        """Write one command.

        Returns:
            The future reply: bytes, int, None or a list of these. It fails with `ReplyError` (or `RedisUnavailable`,
            for the replies by which an instance says that it cannot serve now), with `ConnectionLost` if the outcome
            is unknown, with `RedisUnavailable` if the connection was closed before.

        Raises:
            TypeError: an argument is none of bytes, str and int; nothing was written.
            ValueError: no arguments.
        """
        packed = _packed(args)
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed or self._transport is None:
            future.set_exception(self._not_connected())
            return future
        self._waiting.append(future)
        self._transport.write(packed)
        return future

    def pipeline(self, commands: Sequence[Sequence[Argument]]) -> asyncio.Future[list[Any]]:
        """Write several commands at once; other connections' commands may be executed between them.

        Returns:
            The future list of replies, in order, with errors as values. The future itself fails only as a whole:
            `ConnectionLost` or `RedisUnavailable`.

        Raises:
            TypeError, ValueError: as for `call`; nothing was written.
        """
        packed = b"".join([_packed(tuple(command)) for command in commands])
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if not commands:
            future.set_result([])
        elif self._closed or self._transport is None:
            future.set_exception(self._not_connected())
        else:
            self._waiting.append(_Batch(future, len(commands)))
            self._transport.write(packed)
        return future

    async def drain(self) -> None:
        """Wait while the peer takes data slower than it is written (more than 1 MiB is buffered here).

        Raises:
            RedisUnavailable: the connection has gone.
        """
        await self._writable.wait()
        if self._closed:
            raise self._not_connected()

    def close(self, why: str = "closed by this side") -> None:
        """Drop the connection now. Outstanding calls fail with `ConnectionLost`; wait for them first to avoid that."""
        if self._closed:
            return
        self._closed = True
        self._why = why
        if self._transport is None:
            self._gone.set()
        else:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection has gone and its outstanding calls have failed."""
        await self._gone.wait()

    def _not_connected(self) -> RedisUnavailable:
        return RedisUnavailable(f"Redis {self.address}: not connected ({self._why})")

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        if self._closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._stall_timeout is not None:
            self._stall_timer = self._loop.call_later(self._stall_timeout, self._check_progress, None, 0)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        self._received += 1
        gets, waiting = self._reader.gets, self._waiting
        try:
            self._reader.feed(data)
            while (reply := gets()) is not _NO_REPLY_YET:
                if isinstance(reply, Demoted):
                    self._loop.call_soon(self.close, reply.detail)
                if not waiting:
                    raise hiredis.ProtocolError("a reply that nobody asked for")
                head = waiting[0]
                if type(head) is _Batch:
                    head.replies.append(reply)
                    if len(head.replies) < head.count:
                        continue
                    reply, future = head.replies, head.future
                else:
                    future = cast("asyncio.Future[Any]", head)
                waiting.popleft()
                if future.done():
                    continue  # cancelled by its caller
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except hiredis.HiredisError as error:
            # The stream is out of step: no later reply can be trusted.
            self.close(f"protocol error: {error}")

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        if not self._closed:
            self._closed = True
            self._why = str(error) if error else "closed by the server"
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._transport = None
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            future = entry.future if isinstance(entry, _Batch) else entry
            if not future.done():
                future.set_exception(ConnectionLost(f"Redis {self.address}: {self._why}; the outcome is unknown"))
        self._writable.set()
        self._gone.set()
        for callback in self.on_close:
            callback()

    def _check_progress(self, head: object, received: int) -> None:
        """Drop the connection if nothing arrived since last time and the first unanswered call is still the same."""
        if self._stall_timeout is None:
            return
        now = self._waiting[0] if self._waiting else None
        if now is not None and now is head and self._received == received:
            self.close(f"no reply for {self._stall_timeout:g} s")
            return
        self._stall_timer = self._loop.call_later(self._stall_timeout, self._check_progress, now, self._received)


def checked(replies: list[Any]) -> list[Any]:
    """The replies of a pipeline, if none of them is an error; raises the first one otherwise."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def _packed(args: tuple[Argument, ...]) -> bytes:
    if not args:
        raise ValueError("a Redis command needs at least its name")
    packed: bytes = hiredis.pack_command(cast(Any, args))  # its stub names a tuple of one
    return packed
