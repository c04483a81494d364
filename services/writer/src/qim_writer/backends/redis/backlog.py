"""How much of each instance is not archived yet, and the gate that closes while it is too much (ARCHIVE_BACKLOG_FULL).

Scripts count what they record in the bucket's meta (`rec`), the archiver what it has archived (`arcd`). Where the
difference passes the bound, what would make it grow is refused: sends, new groups and people who join. It opens again
below nine tenths of the bound, so that it does not open and close with every round of the archiver. Leaving, removal,
reading and clearing go on. While an instance does not answer its number is NaN: the last one would say of a lost
instance that nothing waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Final

from qim_common.errors import QimError
from qim_common.keys import BucketKeys
from qim_common.redis import Instance, ReplyError, checked
from qim_common.telemetry.metrics import writer_metrics
from qim_common.telemetry.standing import Standing
from qim_common.topology import Topology

LOOK_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 2.0
"""After so long without an answer the number is not known."""

OPENS_AT: Final = 0.9
"""Of the bound."""

_log = logging.getLogger(__name__)


class Backlog:
    """The gates of all instances.

    Args:
        most: messages and state entries that may wait for the archive, for each instance.
    """

    def __init__(
        self, instances: Sequence[Instance], topology: Topology, buckets: Sequence[BucketKeys], most: int
    ) -> None:
        self._instances = tuple(instances)
        self._most = most
        self._full = [False] * len(self._instances)
        self._metas: list[list[str]] = [[] for _ in self._instances]
        for bucket in buckets:
            self._metas[topology.instance_of(bucket.bucket)].append(bucket.meta)
        self._metrics = writer_metrics()
        self._unknown = Standing(_log, "its backlog is known again")

    def full(self, instance: int) -> bool:
        """Whether what makes the backlog of an instance grow is refused, by its place in the configured list."""
        return self._full[instance]

    async def run(self) -> None:
        """Looks again and again, until cancelled; at each instance for itself, as one may hang."""
        async with asyncio.TaskGroup() as together:
            for position in range(len(self._instances)):
                together.create_task(self._watch(position))

    async def look(self) -> None:
        """Reads the counters of all instances; the gate of one that does not answer stays as it is."""
        await asyncio.gather(*(self._look(position) for position in range(len(self._instances))))

    async def _watch(self, position: int) -> None:
        while True:
            await self._look(position)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, position: int) -> None:
        name = f"Redis {self._instances[position].address}"
        told = self._metrics.outbox_messages.labels(str(position))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                waiting, unreadable = await self._waiting(position)
        except TimeoutError:
            told.set(math.nan)
            self._unknown.holds(name, f"its backlog is not known: no answer in {_ANSWER_SECONDS:g} s")
        except Exception as error:  # noqa: BLE001  whatever it is, the next look tries again
            told.set(math.nan)
            program = None if isinstance(error, QimError) else error
            self._unknown.holds(name, f"its backlog is not known: {error}", program)
        else:
            if unreadable:
                self._unknown.holds(name, f"its backlog is not known: the counters of {unreadable} cannot be read")
            else:
                self._unknown.over(name)
            told.set(math.nan if unreadable else waiting)
            self._judge(position, waiting)

    async def _waiting(self, position: int) -> tuple[int, list[str]]:
        """How much waits, and the buckets whose counters are none, which count for nothing."""
        metas = self._metas[position]
        answers = await self._instances[position].pipeline([("HMGET", meta, "rec", "arcd") for meta in metas])
        waiting, unreadable = 0, []
        for meta, answer in zip(metas, answers, strict=True):
            try:
                (counters,) = checked([answer])
                recorded, archived = (int(counter or 0) for counter in counters)
            except (ReplyError, ValueError):
                unreadable.append(meta)
            else:
                waiting += max(recorded - archived, 0)
        return waiting, unreadable

    def _judge(self, position: int, waiting: int) -> None:
        full = waiting > (self._most * OPENS_AT if self._full[position] else self._most)
        if full != self._full[position]:
            self._full[position] = full
            words = "refused: the archive is behind by %d" if full else "taken again: the archive is behind by %d"
            _log.warning("Redis %s: messages are " + words, self._instances[position].address, waiting)
