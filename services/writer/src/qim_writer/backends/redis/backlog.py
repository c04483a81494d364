"""How much of each instance is not archived yet, and the gate that closes while it is too much (ARCHIVE_BACKLOG_FULL).

Scripts count what they record in the bucket's meta (`rec`), the archiver what it has archived (`arcd`). Where the
difference passes the bound, what would make it grow is refused: sends, new groups and people who join. It opens again
below nine tenths of the bound, so that it does not open and close with every round of the archiver. Leaving, removal,
reading and clearing go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from qim_common.errors import QimError
from qim_common.keys import BucketKeys
from qim_common.redis import Instance, checked
from qim_common.telemetry.metrics import writer_metrics
from qim_common.topology import Topology

LOOK_SECONDS: Final = 0.5
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

    def full(self, instance: int) -> bool:
        """Whether what makes the backlog of an instance grow is refused, by its place in the configured list."""
        return self._full[instance]

    async def run(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Reads the counters of all instances; the gate of one that does not answer stays as it is."""
        for position, instance in enumerate(self._instances):
            try:
                waiting = await self._waiting(position)
            except QimError as error:
                _log.warning("the backlog of Redis %s is not known: %s", instance.address, error)
                continue
            self._metrics.outbox_messages.labels(str(position)).set(waiting)
            self._judge(position, waiting)

    async def _waiting(self, position: int) -> int:
        read = [("HMGET", meta, "rec", "arcd") for meta in self._metas[position]]
        counters = checked(await self._instances[position].pipeline(read))
        return sum(max(int(recorded or 0) - int(archived or 0), 0) for recorded, archived in counters)

    def _judge(self, position: int, waiting: int) -> None:
        full = waiting > (self._most * OPENS_AT if self._full[position] else self._most)
        if full != self._full[position]:
            self._full[position] = full
            words = "refused: the archive is behind by %d" if full else "taken again: the archive is behind by %d"
            _log.warning("Redis %s: messages are " + words, self._instances[position].address, waiting)
