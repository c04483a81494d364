"""A program in a terminal of its own: what it draws, what is typed, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

PATIENCE_SECONDS = 30


class Terminal:
    """The terminal's side of a pseudo-terminal."""

    def __init__(self, near: int, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.seen = bytearray()
        self._near: int | None = near
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(near, self._read, near)

    async def until(self, drawn: bytes) -> None:
        """Wait until these bytes have been written. Raises TimeoutError saying what was."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while drawn not in self.seen:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"no {drawn!r} in {bytes(self.seen)!r}") from None

    def type(self, keys: bytes) -> None:
        """Keys that arrive together."""
        assert self._near is not None
        os.write(self._near, keys)

    def hang_up(self) -> None:
        """The terminal is gone."""
        if self._near is not None:
            asyncio.get_running_loop().remove_reader(self._near)
            os.close(self._near)
            self._near = None

    async def status(self) -> int:
        """Wait until the program has ended, and all it wrote was read."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            status = await self.process.wait()
        while self._near is not None:
            count = len(self.seen)
            self._read(self._near)
            if len(self.seen) == count:
                break
        return status

    def _read(self, near: int) -> None:
        with contextlib.suppress(OSError):  # nothing there, or the other side has closed
            self.seen.extend(os.read(near, 65_536))
        self._news.set()


@asynccontextmanager
async def in_terminal(
    *command: str, environment: Mapping[str, str], size: Sequence[int] = (80, 24)
) -> AsyncIterator[Terminal]:
    """The program as the leader of a session whose terminal this is; it is killed at the end if it still runs."""
    near, far = pty.openpty()
    columns, rows = size
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.set_blocking(near, False)

    def own_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environment, "TERM": "xterm-256color"},
        stdin=far,
        stdout=far,
        stderr=far,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(far)
    terminal = Terminal(near, process)
    try:
        yield terminal
    finally:
        terminal.hang_up()
        if process.returncode is None:
            process.kill()
            await process.wait()
