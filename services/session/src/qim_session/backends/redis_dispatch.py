"""The dispatch logs of one commit instance: Redis streams, read by this service and written by the writer only.

With QIM_ACK_LEVEL=archived a reader gets an entry no sooner than the archive has it: not beyond the position that the
archiver leaves in the bucket (storage.md, "Backends"). A partition whose next entry is not archived yet is left out of
the blocking reads, which would return at once for it, and its position in the archive is looked at instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from qim_common.keys import BucketKeys
from qim_common.positions import LOG_START, Position
from qim_common.records import DISPATCH_FIELD
from qim_common.redis import Argument, Instance, ReplyError, Role, TopologyMismatch, checked, read_fingerprint
from qim_common.redis.fingerprint import Fingerprint, key_of
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.position import LogBounds
from qim_session.storage.dispatch import DispatchRead

ARCHIVE_POLL_MS: Final = 15
"""How often the archive's position is looked at while it is behind: what reading from it adds to a delivery."""

_NO_SUCH_KEY: Final = "ERR no such key"
_IDENTITY: Final = ("HGET", key_of(Role.COMMIT), "log_id")


class RedisDispatchLog:
    """The `DispatchLog` of one commit instance.

    Args:
        instance: a connection of its own, because a blocking read holds up everything behind it.
        partitions: the buckets that the instance holds, ascending.
        archived: only what the archive holds is delivered.
    """

    def __init__(self, instance: Instance, partitions: Sequence[int], *, archived: bool = False) -> None:
        self._instance = instance
        self._partitions = tuple(partitions)
        self._archived = archived
        self._keys = {partition: BucketKeys(partition).dispatch for partition in self._partitions}
        self._by_key = {key.encode(): partition for partition, key in self._keys.items()}
        self._behind: dict[int, tuple[Position, Position]] = {}
        """Partitions whose next entry the archive did not hold: behind which position, and where the archive was."""

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
        # The archive's positions last: what they have not reached then is behind the ends that were read before.
        streams: list[Sequence[Argument]] = [("XINFO", "STREAM", self._keys[part]) for part in partitions]
        replies = await self._instance.pipeline([*streams, *self._positions(partitions)])
        found = [_bounds(reply, fingerprint) for reply in replies[: len(streams)]]
        if not self._archived:
            return found
        archived = map(_archived, checked(replies[len(streams) :]))
        return [_open_ended(log, upto) for log, upto in zip(found, archived, strict=True)]

    async def read(self, after: Mapping[int, Position], *, count: int, block_ms: int) -> DispatchRead:
        """As `DispatchLog.read`."""
        if self._archived:
            return await self._read_archived(after, count, block_ms)
        time_ms, found, log_id = await self._read(after, count, block_ms)
        return DispatchRead(found, time_ms, log_id)

    async def _read(
        self, after: Mapping[int, Position], count: int, block_ms: int
    ) -> tuple[int, dict[int, list[DispatchEntry]], str]:
        keys: list[Argument] = [self._keys[partition] for partition in after]
        ids: list[Argument] = [str(position) for position in after.values()]
        read: list[Argument] = ["XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *keys, *ids]
        # The identity last: entries of a log that a recovery began anew are not taken for the former one's.
        (seconds, micros), found, log_id = checked(await self._instance.pipeline([("TIME",), read, _IDENTITY]))
        entries = {self._by_key[key]: [_entry(item) for item in items] for key, items in found or ()}
        return int(seconds) * 1000 + int(micros) // 1000, entries, (log_id or b"").decode()

    async def _read_archived(self, after: Mapping[int, Position], count: int, block_ms: int) -> DispatchRead:
        end = _now() + block_ms / 1000
        while True:
            waiting = self._waiting(after)
            archived = await self._archived_upto(waiting)
            moved = [partition for partition, upto in archived.items() if upto != waiting[partition]]
            due = {part: at for part, at in after.items() if part not in waiting or part in moved}
            left_ms = int((end - _now()) * 1000)
            # What was left out for the archive is read without waiting, and waited for between two looks at it.
            wait_ms = 1 if moved else max(1, min(left_ms, ARCHIVE_POLL_MS if waiting else left_ms))
            time_ms, found, log_id = await self._read_due(due, count, wait_ms)
            for partition in due:
                self._behind.pop(partition, None)
            entries: dict[int, list[DispatchEntry]] = {}
            reached = dict(after)
            for partition, upto in (await self._archived_upto(found)).items():
                taken = [entry for entry in found[partition] if entry.position <= upto]
                if taken:
                    entries[partition] = taken
                    reached[partition] = taken[-1].position
                if len(taken) < len(found[partition]):
                    self._behind[partition] = (reached[partition], upto)
            if entries or left_ms <= ARCHIVE_POLL_MS:
                return DispatchRead(entries, time_ms, log_id, frozenset(self._waiting(reached)))

    def _waiting(self, after: Mapping[int, Position]) -> dict[int, Position]:
        """Those partitions that wait for the archive, with where it was."""
        return {
            partition: self._behind[partition][1]
            for partition, at in after.items()
            if partition in self._behind and self._behind[partition][0] == at
        }

    async def _read_due(
        self, due: Mapping[int, Position], count: int, wait_ms: int
    ) -> tuple[int, dict[int, list[DispatchEntry]], str]:
        if due:
            return await self._read(due, count, wait_ms)
        (seconds, micros), log_id = checked(await self._instance.pipeline([("TIME",), _IDENTITY]))
        await asyncio.sleep(wait_ms / 1000)
        return int(seconds) * 1000 + int(micros) // 1000, {}, (log_id or b"").decode()

    async def _archived_upto(self, partitions: Iterable[int]) -> dict[int, Position]:
        asked = list(partitions)
        if not asked:
            return {}
        replies = checked(await self._instance.pipeline(self._positions(asked)))
        return dict(zip(asked, map(_archived, replies), strict=True))

    def _positions(self, partitions: Sequence[int]) -> list[Sequence[Argument]]:
        if not self._archived:
            return []
        return [("HGET", BucketKeys(partition).meta, "arch") for partition in partitions]


def _entry(item: list[Any]) -> DispatchEntry:
    entry_id, fields = item
    if fields[0] != DISPATCH_FIELD:
        raise ValueError(f"dispatch entry {entry_id!r} has the field {fields[0]!r}")
    return DispatchEntry(Position.parse(entry_id), fields[1])


def _archived(reply: bytes | None) -> Position:
    """Up to where the archive holds a bucket's log; nothing of it before a writer or an archiver has noted that."""
    return LOG_START if reply is None else Position.parse(reply)


def _open_ended(log: LogBounds, archived: Position) -> LogBounds:
    return log if archived >= log.last else replace(log, open_end=archived)


def _bounds(reply: Any, fingerprint: Fingerprint) -> LogBounds:
    if isinstance(reply, ReplyError) and reply.message == _NO_SUCH_KEY:
        return LogBounds(
            first=None, last=LOG_START, trimmed=False, log_id=fingerprint.log_id, replaces=fingerprint.replaces
        )
    if isinstance(reply, Exception):
        raise reply
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    first = facts[b"first-entry"]
    return LogBounds(
        first=None if first is None else Position.parse(first[0]),
        last=Position.parse(facts[b"last-generated-id"]),
        trimmed=facts[b"entries-added"] > facts[b"length"],
        log_id=fingerprint.log_id,
        replaces=fingerprint.replaces,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
