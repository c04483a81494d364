"""How long each script call holds an instance: by the instance's own count, so without fsync and without the client.

On a machine that does other work too, the time contains pauses that are not the script's; the CPU time does not.
"""

from __future__ import annotations

import asyncio
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from qim_common.redis import Argument, Instance, Script

_ASK: Final = ("INFO", "cpu", "commandstats")
_CALIBRATIONS: Final = 201


@dataclass(frozen=True, slots=True)
class ScriptTimes:
    """The calls of one script in one situation.

    Attributes:
        script: its name, or the bare command.
        situation: such as `join 1,000, 100,000 members`.
        calls: how many were measured.
        median_ms, max_ms: of one call, as the instance counts it (INFO commandstats).
        cpu_ms: median of the CPU time of the instance's main thread, user and system.
    """

    script: str
    situation: str
    calls: int
    median_ms: float
    max_ms: float
    cpu_ms: float


class TimedInstance(Instance):
    """An instance that is asked after every script call, and every bare XRANGE, how long it took.

    Args:
        address: as of `Instance`.
        scripts: those that may be called.
    """

    def __init__(self, address: str, scripts: Sequence[Script]) -> None:
        super().__init__(address, name="bench", instance_position=0)
        self._names = {script.sha1: script.name for script in scripts}
        self._situation = ""
        self._taken: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self._overhead = 0.0

    async def calibrate(self) -> None:
        """Find out what the questions themselves cost. Raises BackendUnavailable."""
        replies = [await self.pipeline([_ASK, _ASK]) for _ in range(_CALIBRATIONS)]
        self._overhead = statistics.median(_cpu_ms(after) - _cpu_ms(before) for before, after in replies)

    @contextmanager
    def situation(self, name: str) -> Iterator[None]:
        """What is called inside is counted to this situation."""
        self._situation = name
        yield
        self._situation = ""

    def call(self, *args: Argument) -> asyncio.Future[Any]:
        """See `Instance.call`."""
        command = str(args[0])
        if not self._situation or command not in ("EVALSHA", "XRANGE"):
            return super().call(*args)
        name = self._names[str(args[1])] if command == "EVALSHA" else command
        key = (name, self._situation)
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(replies: asyncio.Future[list[Any]]) -> None:
            before, reply, after = replies.result()
            cpu = max(_cpu_ms(after) - _cpu_ms(before) - self._overhead, 0.0)
            self._taken.setdefault(key, []).append((_called_ms(after, command) - _called_ms(before, command), cpu))
            if isinstance(reply, Exception):
                outcome.set_exception(reply)
            else:
                outcome.set_result(reply)

        self.pipeline([_ASK, args, _ASK]).add_done_callback(answered)
        return outcome

    def times_of(self, script: str, situation: str) -> ScriptTimes:
        """Raises KeyError for what was not measured."""
        taken = self._taken[script, situation]
        called, cpu = [ms for ms, _ in taken], [ms for _, ms in taken]
        figures = (statistics.median(called), max(called), statistics.median(cpu))
        return ScriptTimes(script, situation, len(taken), *(round(ms, 3) for ms in figures))

    def times(self) -> list[ScriptTimes]:
        """Everything that was measured, in order."""
        return [self.times_of(*key) for key in self._taken]


def _called_ms(info: bytes, command: str) -> float:
    found = re.search(rf"cmdstat_{command.lower()}:calls=\d+,usec=(\d+)".encode(), info)
    return int(found[1]) / 1000 if found else 0.0


def _cpu_ms(info: bytes) -> float:
    return sum(float(seconds) for seconds in re.findall(rb"used_cpu_(?:sys|user)_main_thread:([\d.]+)", info)) * 1000
