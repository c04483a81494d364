"""A TCP proxy between a client and a server that can keep answers to itself, hold requests, and cut the connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    """Forwards bytes in both directions. While `swallows`, what the server sends is read and dropped, as if the network
    had lost it: the request has gone through and its answer never comes. After `hold` what the client sends waits until
    `release`, and goes through then."""

    def __init__(self, target: str) -> None:
        self.retarget(target)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.swallows = False
        self.swallowed = 0
        self.held = 0
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def address(self) -> str:
        """Where clients connect."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def retarget(self, target: str) -> None:
        """Forward new connections to another server."""
        host, _, port = target.rpartition(":")
        self._target = host, int(port)

    async def start(self, port: int = 0) -> None:
        """Listen on loopback, on a free port or on this one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    def hold(self) -> None:
        """Keep what the client sends from now on; how many bytes that is, is counted in `held`."""
        self.held = 0
        self._flows.clear()

    def release(self) -> None:
        """Forward what was held, and what follows."""
        self._flows.set()

    async def cut(self) -> None:
        """Drop all connections now; new ones are forwarded whole again."""
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self.swallows = False

    async def stop(self) -> None:
        """Drop all connections and take no new ones."""
        assert self._server is not None
        self._server.close()
        await self.cut()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        to_server: asyncio.StreamWriter | None = None
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(from_client, to_server, answers=False))
                group.create_task(self._pump(from_server, to_client, answers=True))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # the other end is told by its own connection ending
        finally:
            self._connections.discard(task)
            for writer in (to_client, to_server):
                if writer is not None:
                    writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65_536):
            if answers and self.swallows:
                self.swallowed += len(data)
                continue
            if not answers and not self._flows.is_set():
                self.held += len(data)
                await self._flows.wait()
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()


@asynccontextmanager
async def cutting_proxy(target: str) -> AsyncIterator[CuttingProxy]:
    """A running proxy to `target` (`host:port`)."""
    proxy = CuttingProxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
