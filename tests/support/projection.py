"""The session store of a running suite from below: what is projected for people, and a way to lose all of it.

The projection is what can be made again: lists, checkpoints, progress and marks. The conversation sets, what waits to
get into them, cursors and flags are none of it (storage.md, "Session").
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import redis.asyncio

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import LEASES, PersonKeys, checkpoints, progress
from qim_common.topology import Topology
from qim_devkit.suite import Suite

BUCKETS = 256


class Projection:
    """The session instances of a suite, which are its Valkeys. Use it as a context manager."""

    def __init__(self, suite: Suite, tenant: TenantId) -> None:
        self.topology = Topology(suite.valkey_addresses, BUCKETS, "tests")
        self._tenant = tenant
        self._instances: list[Any] = [
            redis.asyncio.Redis(host=host, port=int(port), protocol=2)
            for host, _, port in (str(address).rpartition(":") for address in self.topology.addresses)
        ]

    async def __aenter__(self) -> Projection:
        return self

    async def __aexit__(self, *_: object) -> None:
        for instance in self._instances:
            await instance.aclose()

    async def wipe(self, people: Iterable[UserId]) -> None:
        """Lose the projection of these people and every partition's checkpoint and progress.

        What belongs to a person goes in one step: no call finds a mark without the list that it speaks of.
        """
        await asyncio.gather(
            *(
                instance.delete(checkpoints(position), progress(position))
                for position, instance in enumerate(self._instances)
            )
        )
        for user in people:
            instance, keys = self._place(user)
            await instance.delete(keys.convs, keys.bigconvs, keys.epoch)

    async def authority(self, user: UserId) -> set[ConversationId]:
        """The conversations that the person's set holds for good."""
        instance, keys = self._place(user)
        return {ConversationId(field) for field in await instance.hkeys(keys.authority)}

    async def activity(self, user: UserId) -> dict[ConversationId, int]:
        """The person's list as it is projected: conversation to the time of its newest activity, ms."""
        instance, keys = self._place(user)
        rows = await instance.zrange(keys.convs, 0, -1, withscores=True)
        return {ConversationId(conversation): int(score) for conversation, score in rows}

    async def settled_ms(self) -> int:
        """The commit time below which everything is in the lists: the smallest progress of all partitions; 0: none."""
        stored = [await instance.hgetall(progress(position)) for position, instance in enumerate(self._instances)]
        return min(int(one.get(b"%d" % partition, 0)) for one in stored for partition in range(BUCKETS))

    async def leases(self) -> dict[bytes, bytes]:
        """Who holds which partition: partition to the replica's name, which it chose at its start."""
        return dict(await self._instances[0].hgetall(LEASES))

    def _place(self, user: UserId) -> tuple[Any, PersonKeys]:
        bucket = self.topology.person_bucket(self._tenant, user)
        return self._instances[self.topology.instance_of(bucket)], PersonKeys(self._tenant, user, bucket)
