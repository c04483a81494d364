"""The membership logs of one commit instance: Redis streams, written by the writer, trimmed by this service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qim_common.keys import BucketKeys
from qim_common.positions import Position
from qim_common.redis import Argument, Instance, checked
from qim_session.storage.partitions import MemlogEntry


class RedisMemberLog:
    """The `MemberLog` of one commit instance; `partitions` are the buckets that it holds, ascending."""

    def __init__(self, instance: Instance, partitions: Sequence[int]) -> None:
        self._instance = instance
        self._partitions = tuple(partitions)
        self._keys = {partition: BucketKeys(partition).memlog for partition in self._partitions}
        self._by_key = {key.encode(): partition for partition, key in self._keys.items()}

    @property
    def partitions(self) -> Sequence[int]:
        """As `MemberLog.partitions`."""
        return self._partitions

    async def oldest(self, partitions: Sequence[int], *, count: int) -> dict[int, list[MemlogEntry]]:
        """As `MemberLog.oldest`."""
        keys: list[Argument] = [self._keys[partition] for partition in partitions]
        found = await self._instance.call("XREAD", "COUNT", count, "STREAMS", *keys, *["0"] * len(keys))
        return {
            self._by_key[key]: [MemlogEntry(Position.parse(entry_id), fields[1]) for entry_id, fields in items]
            for key, items in found or ()
        }

    async def trim(self, through: Mapping[int, Position]) -> None:
        """As `MemberLog.trim`."""
        commands: list[Sequence[Argument]] = [
            ("XTRIM", self._keys[partition], "MINID", str(position.after())) for partition, position in through.items()
        ]
        checked(await self._instance.pipeline(commands))
