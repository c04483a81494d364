"""A tiered suite from below: what its Valkeys still hold of a conversation, and how far the archive has come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import redis.asyncio

from qim_common.ids import ConversationId, TenantId
from qim_common.keys import BucketKeys, ConversationKeys
from qim_common.topology import Topology
from qim_devkit.suite import Suite

BUCKETS = 256
BOUND_SECONDS = 60.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another process brings about."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not await condition():  # noqa: ASYNC110  no event crosses processes
            await asyncio.sleep(0.02)


class Below:
    """The Valkeys of a running suite. Use it as a context manager."""

    def __init__(self, suite: Suite) -> None:
        self._topology = Topology(suite.valkey_addresses, BUCKETS, "tests")
        self._instances: list[Any] = [
            redis.asyncio.Redis(host=host, port=int(port), protocol=2)
            for host, _, port in (str(address).rpartition(":") for address in self._topology.addresses)
        ]

    async def __aenter__(self) -> Below:
        return self

    async def __aexit__(self, *_: object) -> None:
        for instance in self._instances:
            await instance.aclose()

    async def cold(self, tenant: TenantId, conversation: ConversationId) -> None:
        """Wait until the archive holds all of the conversation, and Redis no message that may leave it: the newest one
        stays, and those at and right before a control message."""
        instance, keys = self._place(tenant, conversation)
        head = int(await instance.get(keys.msgcseq) or 0)
        if head == 0:
            return
        controls = {int(seq) for _, seq in await instance.zrange(keys.msgctl, 0, -1, withscores=True)}
        stay = {head, *controls, *(seq - 1 for seq in controls)}
        while head in controls:  # the newest message that everybody gets is below
            head -= 1
            stay |= {head}

        async def gone() -> bool:
            archived = int(await instance.hget(keys.grpmeta, "aseq") or 0)
            return archived >= max(stay) and {int(seq) for seq in await instance.hkeys(keys.msgrec)} <= stay

        await until(gone)

    async def all_archived(self) -> None:
        """Wait until the archive holds everything that was committed."""
        for bucket in range(BUCKETS):
            await until(lambda bucket=bucket: self._is_archived(bucket))  # type: ignore[misc]

    async def cut_dispatch_logs(self) -> None:
        """Move the retention window past everything that was ever dispatched; the archive holds it all."""
        await self.all_archived()
        for bucket in range(BUCKETS):
            await self._instances[self._topology.instance_of(bucket)].xtrim(BucketKeys(bucket).dispatch, maxlen=0)

    async def _is_archived(self, bucket: int) -> bool:
        instance, keys = self._instances[self._topology.instance_of(bucket)], BucketKeys(bucket)
        newest = await instance.xrevrange(keys.dispatch, count=1)
        if not newest:
            return True
        archived = await instance.hget(keys.meta, "arch") or b"0-0"
        return _position(archived) >= _position(newest[0][0])

    def _place(self, tenant: TenantId, conversation: ConversationId) -> tuple[Any, ConversationKeys]:
        bucket = self._topology.conversation_bucket(tenant, conversation)
        return self._instances[self._topology.instance_of(bucket)], ConversationKeys(tenant, conversation, bucket)


def _position(entry: bytes) -> tuple[int, int]:
    ms, _, seq = entry.partition(b"-")
    return int(ms), int(seq)
