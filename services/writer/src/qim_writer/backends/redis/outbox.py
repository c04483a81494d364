"""The dispatch logs of one commit instance as the archiver's outbox (docs/decisions/0016)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qim_common.keys import BucketKeys, ConversationKeys, archiver_lease
from qim_common.positions import LOG_START, Position
from qim_common.records import DISPATCH_FIELD
from qim_common.redis import (
    Argument,
    Connection,
    Hook,
    Instance,
    RedisUnavailable,
    ReplyError,
    Role,
    TopologyMismatch,
    checked,
    load_script,
    read_fingerprint,
    run,
    submit,
)
from qim_common.redis.fingerprint import key_of
from qim_common.topology import Topology
from qim_writer.domain.archive_rounds import BucketRound, OutboxEntry
from qim_writer.domain.group_rows import GROUP_ROWS_FIELD
from qim_writer.storage import Conversation
from qim_writer.storage_outbox import OutboxRead, OutboxState

NOTE_ARCHIVED: Final = load_script("qim_writer", "note_archived")
HOLD_LEASE: Final = load_script("qim_writer", "hold_lease")

_NOTED: Final = 0
_NO_SUCH_KEY: Final = "ERR no such key"
_BUCKETS_AT_ONCE: Final = 16
"""Logs of one XREAD: an answer is bounded by these times the entries asked for."""

_ENTRIES_MAX: Final = 64
"""Entries of one log in one XREAD; fewer where they are large."""

_ENTRIES_PER_ROUND: Final = 4096
"""Of one log: what a round brings is noted in one script call a bucket, which others must not wait for."""

_RECORDS_AT_ONCE: Final = 64
"""Of those that are too large for the log, in one HMGET."""


async def open_outbox(source: Connection | Instance, buckets: Sequence[int]) -> None:
    """From now on there is an archive, which holds nothing yet; where there was one before, nothing changes.

    Scripts record what the archive needs only where a bucket says so: every tiered writer and archiver calls this
    before it does anything else on an instance. Raises BackendUnavailable."""
    metas = (BucketKeys(bucket).meta for bucket in buckets)
    checked(await source.pipeline([("HSETNX", meta, "arch", str(LOG_START)) for meta in metas]))


def opening(buckets: Sequence[int]) -> Hook:
    """`open_outbox` as a hook of an instance, behind that of the fence."""

    async def hook(connection: Connection) -> None:
        await open_outbox(connection, buckets)

    return hook


class RedisOutbox:
    """The `Outbox` of one commit instance.

    Args:
        instance: started.
        topology: of the commit instances.
    """

    def __init__(self, instance: Instance, topology: Topology) -> None:
        self._instance = instance
        self._topology = topology
        self._buckets = tuple(topology.buckets_of(instance.position))
        self._keys = {bucket: BucketKeys(bucket) for bucket in self._buckets}
        self._by_stream = {keys.dispatch.encode(): bucket for bucket, keys in self._keys.items()}
        self._first = 0
        self._count = 4
        self._life = 0
        instance.on_lost.append(self._ended)

    def _ended(self) -> None:
        self._life += 1

    @property
    def instance(self) -> int:
        """As `Outbox.instance`."""
        return self._instance.position

    @property
    def buckets(self) -> Sequence[int]:
        """As `Outbox.buckets`."""
        return self._buckets

    async def state(self) -> OutboxState:
        """As `Outbox.state`. Raises TopologyMismatch where the instance has no fingerprint."""
        fingerprint = await read_fingerprint(self._instance, Role.COMMIT)
        if fingerprint is None:
            raise TopologyMismatch(f"Redis {self._instance.address} has lost its fingerprint and its logs' identity")
        commands: list[tuple[Argument, ...]] = []
        for keys in self._keys.values():
            commands += [("HMGET", keys.meta, "arch", "archn"), ("XINFO", "STREAM", keys.dispatch)]
        replies = await self._instance.pipeline(commands)
        archived, refused = {}, {}
        for at, bucket in enumerate(self._buckets):
            noted, info = replies[2 * at], replies[2 * at + 1]
            try:
                arch, trimmed = _judged(noted, info)
            except (ReplyError, ValueError) as error:
                refused[bucket] = f"its keys cannot be read: {error}"
                continue
            if trimmed:
                refused[bucket] = "its dispatch log has lost entries that were not archived"
            else:
                archived[bucket] = arch
        return OutboxState(fingerprint.log_id, archived, refused)

    async def read(self, after: Mapping[int, Position], *, max_bytes: int) -> OutboxRead:
        """As `Outbox.read`. Each reading begins at another bucket, so that none waits for ever."""
        wanted = list(after)
        begin = self._first % max(len(wanted), 1)
        wanted = wanted[begin:] + wanted[:begin]
        upto, life = dict(after), self._life
        entries: dict[int, list[OutboxEntry]] = {}
        unreadable: dict[int, str] = {}
        (seconds, micros), log_id = checked(
            await self._instance.pipeline([("TIME",), ("HGET", key_of(Role.COMMIT), "log_id")])
        )
        taken, cut = 0, False
        while wanted and taken < max_bytes:
            further: list[int] = []
            for at in range(0, len(wanted), _BUCKETS_AT_ONCE):
                if taken >= max_bytes:
                    self._first += at
                    further += wanted[at:]
                    break
                some = wanted[at : at + _BUCKETS_AT_ONCE]
                size, full = await self._read_some(some, upto, entries, unreadable)
                taken += size
                room = [bucket for bucket in full if len(entries[bucket]) < _ENTRIES_PER_ROUND]
                cut = cut or len(room) < len(full)
                further += room
            wanted = further
        server_ms = int(seconds) * 1000 + int(micros) // 1000
        complete = not wanted and not cut
        return OutboxRead(entries, unreadable, (log_id or b"").decode(), server_ms, complete, life)

    async def confirm(self, life: int) -> None:
        """As `Outbox.confirm`: an answer on the connection that everything was read from."""
        await self._instance.call("PING")
        if life != self._life:
            raise RedisUnavailable(f"Redis {self._instance.address} was lost after its logs were read")

    async def _read_some(
        self,
        buckets: Sequence[int],
        upto: dict[int, Position],
        entries: dict[int, list[OutboxEntry]],
        unreadable: dict[int, str],
    ) -> tuple[int, list[int]]:
        """One XREAD; the bytes of its entries, and the buckets that may have more."""
        keys: list[Argument] = [self._keys[bucket].dispatch for bucket in buckets]
        ids: list[Argument] = [str(upto[bucket]) for bucket in buckets]
        asked = self._count
        found = await self._instance.call("XREAD", "COUNT", asked, "STREAMS", *keys, *ids)
        size = number = 0
        full = []
        for key, items in found or ():
            bucket = self._by_stream[key]
            into: list[OutboxEntry] = []
            for entry_id, fields in items:
                try:
                    entry = _entry(entry_id, fields)
                except ValueError as error:
                    unreadable[bucket] = str(error)
                    break
                size += len(entry.blocks) + len(entry.group_rows)
                into.append(entry)
            number += len(items)
            if into:
                entries.setdefault(bucket, []).extend(into)
                upto[bucket] = into[-1].position
            if len(items) == asked and bucket not in unreadable:
                full.append(bucket)
        if number:
            # So that an answer has about 4 MiB at most where entries stay as large as these.
            room = 4 * 1024 * 1024 * number // ((size + 1) * _BUCKETS_AT_ONCE)
            self._count = max(1, min(room, _ENTRIES_MAX))
        return size, full

    async def records(self, conversation: Conversation, seqs: Sequence[int]) -> list[bytes | None]:
        """As `Outbox.records`."""
        key = self._conversation(conversation).msgrec
        found: list[bytes | None] = []
        for at in range(0, len(seqs), _RECORDS_AT_ONCE):
            found += await self._instance.call("HMGET", key, *seqs[at : at + _RECORDS_AT_ONCE])
        return found

    async def note(self, rounds: Sequence[BucketRound]) -> frozenset[int]:
        """As `Outbox.note`; one call a bucket, which has its own tag."""
        outcomes = await asyncio.gather(*(self._note(one) for one in rounds), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return frozenset(one.bucket for one, outcome in zip(rounds, outcomes, strict=True) if outcome != _NOTED)

    def _note(self, one: BucketRound) -> asyncio.Future[Any]:
        bucket = self._keys[one.bucket]
        keys: list[Argument] = [bucket.meta, bucket.dispatch, bucket.hot]
        args: list[Argument] = [str(one.after), str(one.upto), one.recorded, one.entries]
        for scope, found in one.conversations.items():
            keys.append(ConversationKeys(found.tenant, found.conversation, one.bucket).grpmeta)
            args += (scope, found.head, found.revision, found.oldest_ms)
        return submit(self._instance, NOTE_ARCHIVED, keys, args)

    def _conversation(self, conversation: Conversation) -> ConversationKeys:
        bucket = self._topology.conversation_bucket(conversation.tenant, conversation.id)
        return ConversationKeys(conversation.tenant, conversation.id, bucket)


class RedisArchiveLease:
    """The `ArchiveLease` of one commit instance.

    Args:
        instance: started.
        token: of this process, random.
        seconds: its life without a renewal.
    """

    def __init__(self, instance: Instance, *, token: bytes, seconds: float) -> None:
        self._instance = instance
        self._key = archiver_lease(instance.position)
        self._token = token
        self._life_ms = int(seconds * 1000)

    async def hold(self) -> bool:
        """As `ArchiveLease.hold`."""
        return bool(await run(self._instance, HOLD_LEASE, [self._key], [self._token, self._life_ms]))

    async def release(self) -> None:
        """As `ArchiveLease.release`."""
        await run(self._instance, HOLD_LEASE, [self._key], [self._token, 0])


def _entry(entry_id: bytes, fields: list[bytes]) -> OutboxEntry:
    """Raises ValueError for fields that no script writes."""
    position = Position.parse(entry_id)
    if fields[::2] == [DISPATCH_FIELD]:
        return OutboxEntry(position, fields[1], b"")
    if fields[::2] == [DISPATCH_FIELD, GROUP_ROWS_FIELD]:
        return OutboxEntry(position, fields[1], fields[3])
    raise ValueError(f"the dispatch entry {position} has the fields {fields[::2]!r}")


def _judged(noted: Any, info: Any) -> tuple[Position, bool]:
    """How far a bucket is archived, and whether its log has lost entries after that. Raises ReplyError, ValueError."""
    if isinstance(noted, Exception):
        raise noted
    arch, entries = noted
    archived = Position.parse(arch) if arch else LOG_START
    return archived, _is_trimmed(info, archived, int(entries or 0))


def _is_trimmed(info: Any, archived: Position, archived_entries: int) -> bool:
    """Whether a log, as XINFO tells of it, has lost entries after `archived`."""
    if isinstance(info, ReplyError) and info.message == _NO_SUCH_KEY:
        return archived > LOG_START
    if isinstance(info, Exception):
        raise info
    facts = dict(zip(info[::2], info[1::2], strict=True))
    first = facts[b"first-entry"]
    # Trimming keeps the entry at `archived`: that or an older one is the first. Otherwise no more may be gone than was
    # archived.
    if first is not None and Position.parse(first[0]) <= archived:
        return False
    gone = int(facts[b"entries-added"]) - int(facts[b"length"])
    return gone > archived_entries and Position.parse(facts[b"last-generated-id"]) > archived
