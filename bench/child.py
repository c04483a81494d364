"""A process of the benchmark's own, spoken to over its pipes: one JSON document a line (bench/plan.py)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

STAGE_SLACK_SECONDS: Final = 60.0
"""How long an answer may take beyond what it is known to take."""

_START_SECONDS: Final = 30.0
_END_SECONDS: Final = 5.0
_LINE_BYTES: Final = 1 << 26
_ROOT: Final = Path(__file__).parent.parent


class LoadFailed(Exception):  # noqa: N818  it says what is the case
    """A process of the benchmark ended, or did not answer in time."""


class Child:
    """A Python module that takes a plan as its first line and answers when it is ready. Leaving the context ends it.

    Args:
        module: run as `python -m <module>` in the project's directory.
        plan: its first line.
    """

    def __init__(self, module: str, plan: str) -> None:
        self._module = module
        self._plan = plan
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError before the context is entered."""
        if self._process is None:
            raise RuntimeError(f"{self._module} was not started")
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        try:
            await self._write(self._plan)
            await self.answer(_START_SECONDS)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def order(self, document: dict[str, Any]) -> None:
        """Write one document."""
        await self._write(json.dumps(document))

    async def answer(self, timeout: float) -> dict[str, Any]:
        """The next document that it says, within `timeout` seconds. Raises LoadFailed."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout)
        except TimeoutError:
            raise LoadFailed(f"{self._module} said nothing for {timeout:g} s") from None
        if not line:
            raise LoadFailed(f"{self._module} ended with status {await self._process.wait()}")
        document: dict[str, Any] = json.loads(line)
        return document

    async def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


async def orders() -> asyncio.StreamReader:
    """In the child: its standard input, line by line."""
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def tell(document: object) -> None:
    """In the child: say one document."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
