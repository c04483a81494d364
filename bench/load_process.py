"""The load generator's process, seen from the benchmark."""

from __future__ import annotations

import array
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.plan import Ledger, LoadPlan, Stage, StageResult

_START_SECONDS: Final = 30.0
_STAGE_SLACK_SECONDS: Final = 60.0
_LINE_BYTES: Final = 1 << 26
_ROOT: Final = Path(__file__).parent.parent


class LoadFailed(Exception):  # noqa: N818  it says what is the case
    """The load generator ended, or did not answer in time."""


class LoadProcess:
    """One gateway that makes load. Leaving the context ends it."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError before the context is entered."""
        if self._process is None:
            raise RuntimeError("the load generator was not started")
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.load",
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        try:
            await self._order(self._plan.to_line())
            await self._answer(_START_SECONDS)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def begin(self, stage: Stage) -> None:
        """Let it run a stage."""
        await self._order(json.dumps(asdict(stage)))

    async def answered(self, stage: Stage) -> None:
        """Wait until the stage's last answer is there. Raises LoadFailed."""
        await self._answer(stage.seconds + _STAGE_SLACK_SECONDS)

    async def result(self) -> tuple[StageResult, array.array[float]]:
        """The figures of the stage, and its latencies in seconds. Raises LoadFailed."""
        result = StageResult(**await self._answer(_STAGE_SLACK_SECONDS))
        return result, await asyncio.to_thread(_take, Path(result.latencies))

    async def ledger(self) -> Ledger:
        """What was acknowledged over all stages. Raises LoadFailed."""
        await self._order(json.dumps({"verify": True}))
        document = await self._answer(_STAGE_SLACK_SECONDS)
        return Ledger({group: (count, distinct, top) for group, (count, distinct, top) in document["groups"].items()})

    async def _order(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout)
        except TimeoutError:
            raise LoadFailed(f"the load generator said nothing for {timeout:g} s") from None
        if not line:
            raise LoadFailed(f"the load generator ended with status {await self._process.wait()}")
        document: dict[str, Any] = json.loads(line)
        return document

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()


def _take(file: Path) -> array.array[float]:
    latencies = array.array("f")
    latencies.frombytes(file.read_bytes())
    file.unlink()
    return latencies
