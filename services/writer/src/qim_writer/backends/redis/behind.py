"""How far the archive is behind the dispatch logs of one commit instance."""

from __future__ import annotations

import asyncio
from typing import Final

from qim_common.keys import BucketKeys
from qim_common.positions import Position
from qim_common.redis import Instance, ReplyError, load_script, submit
from qim_common.topology import Topology
from qim_writer.storage_outbox import OutboxBehind

LOOK_BEHIND: Final = load_script("qim_writer", "look_behind")


class RedisBehind:
    """The `Behind` of one commit instance.

    Args:
        instance: started; not the one that the rounds read from, whose answers may take long.
        topology: of the commit instances.
    """

    def __init__(self, instance: Instance, topology: Topology) -> None:
        self._instance = instance
        self._keys = [BucketKeys(bucket) for bucket in topology.buckets_of(instance.position)]

    @property
    def instance(self) -> int:
        """As `Behind.instance`."""
        return self._instance.position

    async def look(self) -> OutboxBehind:
        """As `Behind.look`; one call a bucket, which has its own tag."""
        seconds, micros = await self._instance.call("TIME")
        calls = [submit(self._instance, LOOK_BEHIND, [keys.meta, keys.dispatch], []) for keys in self._keys]
        messages, oldest = 0, []
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, ReplyError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            messages += answer[0]
            if answer[1]:
                oldest.append(Position.parse(answer[1]).ms)
        return OutboxBehind(messages, min(oldest, default=None), int(seconds) * 1000 + int(micros) // 1000)
