"""The dispatch logs of one commit instance: Redis streams, read by this service and written by the writer only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from qim_common.keys import BucketKeys
from qim_common.positions import LOG_START, Position
from qim_common.records import DISPATCH_FIELD
from qim_common.redis import Argument, Instance, ReplyError, Role, TopologyMismatch, checked, read_fingerprint
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import LogBounds
from qim_session.storage.dispatch import DispatchRead

_NO_SUCH_KEY: Final = "ERR no such key"


class RedisDispatchLog:
    """The `DispatchLog` of one commit instance.

    Args:
        instance: a connection of its own, because a blocking read holds up everything behind it.
        partitions: the buckets that the instance holds, ascending.
    """

    def __init__(self, instance: Instance, partitions: Sequence[int]) -> None:
        self._instance = instance
        self._partitions = tuple(partitions)
        self._keys = {partition: BucketKeys(partition).dispatch for partition in self._partitions}
        self._by_key = {key.encode(): partition for partition, key in self._keys.items()}

    @property
    def partitions(self) -> Sequence[int]:
        """As `DispatchLog.partitions`."""
        return self._partitions

    async def bounds(self, partitions: Sequence[int]) -> list[LogBounds]:
        """As `DispatchLog.bounds`.

        Raises TopologyMismatch where the instance has no fingerprint, and so no log identity.
        """
        fingerprint = await read_fingerprint(self._instance, Role.COMMIT)
        if fingerprint is None:
            raise TopologyMismatch(f"Redis {self._instance.address} has lost its fingerprint and its log's identity")
        replies = await self._instance.pipeline([("XINFO", "STREAM", self._keys[part]) for part in partitions])
        return [_bounds(reply, fingerprint.log_id) for reply in replies]

    async def read(self, after: Mapping[int, Position], *, count: int, block_ms: int) -> DispatchRead:
        """As `DispatchLog.read`."""
        keys: list[Argument] = [self._keys[partition] for partition in after]
        ids: list[Argument] = [str(position) for position in after.values()]
        read: list[Argument] = ["XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *keys, *ids]
        (seconds, micros), found = checked(await self._instance.pipeline([("TIME",), read]))
        entries = {self._by_key[key]: [_entry(item) for item in items] for key, items in found or ()}
        return DispatchRead(entries, int(seconds) * 1000 + int(micros) // 1000)


def _entry(item: list[Any]) -> DispatchEntry:
    entry_id, fields = item
    if fields[0] != DISPATCH_FIELD:
        raise ValueError(f"dispatch entry {entry_id!r} has the field {fields[0]!r}")
    return DispatchEntry(Position.parse(entry_id), fields[1])


def _bounds(reply: Any, log_id: str) -> LogBounds:
    if isinstance(reply, ReplyError) and reply.message == _NO_SUCH_KEY:
        return LogBounds(first=None, last=LOG_START, trimmed=False, log_id=log_id)
    if isinstance(reply, Exception):
        raise reply
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    first = facts[b"first-entry"]
    return LogBounds(
        first=None if first is None else Position.parse(first[0]),
        last=Position.parse(facts[b"last-generated-id"]),
        trimmed=facts[b"entries-added"] > facts[b"length"],
        log_id=log_id,
    )
