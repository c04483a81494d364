"""The keys of a conversation, written again by a recovery; their forms are those of the committing scripts."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from qim_common.ids import UserId
from qim_common.keys import BucketKeys, ConversationKeys
from qim_common.redis import Argument, Instance, checked
from qim_common.topology import Topology
from qim_writer.backends.redis.place import SCOPE
from qim_writer.domain.refold import Refold, RowEffects
from qim_writer.domain.remade_messages import MessageBatch
from qim_writer.storage import Conversation
from qim_writer.storage_recovery import RebuiltLine

_COUNT: Final = struct.Struct(">H")
_PIECE: Final = 1000
"""Fields of one command, and people of one entry of the membership log."""

_COMMANDS: Final = 250
"""Of one pipeline."""

Item = TypeVar("Item")
Command = Sequence[Argument]


class RedisRebuild:
    """The `RebuildTarget` on one instance."""

    def __init__(self, instance: Instance, topology: Topology) -> None:
        self._instance = instance
        self._topology = topology

    async def add_rows(self, conversation: Conversation, effects: Sequence[RowEffects], entries_from_ms: int) -> None:
        """See the Protocol."""
        keys, bucket = self._places(conversation)
        commands: list[Command] = []
        controls: list[Argument] = []
        entries: list[Argument] = []
        for effect in effects:
            if effect.change is not None:
                version, data = effect.change
                commands.append(("XADD", keys.grpchg, f"{version}-0", "d", data))
            if effect.logged is not None:
                revision, data = effect.logged
                commands.append(("XADD", keys.grplog, f"{revision}-0", "d", data))
            if effect.control is not None:
                controls += effect.control
            if effect.entry is not None and effect.time_ms >= entries_from_ms:
                entries += effect.entry
        commands += _in_pieces(("ZADD", keys.msgctl), controls)
        commands += _in_pieces(("HSET", _entries_key(bucket)), entries)
        await self._send(commands)

    async def add_messages(self, conversation: Conversation, batch: MessageBatch) -> None:
        """See the Protocol."""
        keys, bucket = self._places(conversation)
        commands: list[Command] = [
            ("APPEND", keys.msgsnd(segment), bytes(column)) for segment, column in sorted(batch.columns.items())
        ]
        commands += _in_pieces(("ZADD", keys.msgts), _flat(batch.samples))
        commands += _in_pieces(("HSET", keys.msgrec), _flat(batch.records.items()))
        commands += _in_pieces(("HSET", _entries_key(bucket)), _flat(batch.entries))
        await self._send(commands)

    async def add_state(self, conversation: Conversation, folded: Refold, line: RebuiltLine) -> None:
        """See the Protocol. `grpmeta` comes last: where it is, everything is."""
        keys, bucket = self._places(conversation)
        scope = SCOPE.pack(conversation.tenant, conversation.id)
        await self._add_people(conversation, keys, bucket, scope, folded)
        commands: list[Command] = []
        if line.head:
            commands.append(("SET", keys.msgcseq, line.head))
        if folded.retained:
            commands.append(("SADD", bucket.retained, scope))
        if folded.floor:
            # What the archive holds below the floor may not have been removed yet.
            commands.append(("SADD", bucket.untrimmed, scope))
        fields: dict[str, Argument] = {
            "version": folded.version,
            "revision": folded.revision,
            "generation": folded.generation,
            "policy": folded.policy,
            "cseq": folded.concerned,
            "prevb": folded.before,
            "big": int(folded.big),
            "ts": line.sample_ms,
            "count": folded.count,
            "floor": folded.floor,
            "nord": len(folded.people),
            "chglow": 1,
            "created": folded.created_ms,
            "aseq": line.head,
            "arev": folded.revision,
            "evicted": max(line.newest - 1, 0),
        }
        if line.trimmed:
            fields["trimmed"] = line.trimmed
        if line.gone_buckets:
            fields["agone"] = line.gone_buckets
        if line.newest_ms:
            fields |= {"gone": line.newest, "gonetime": line.newest_ms}
        if folded.raised:
            fields["gens"] = folded.generations
        commands.append(("HSET", keys.grpmeta, *_flat(fields.items())))
        await self._send(commands)

    async def forget(self, conversation: Conversation) -> None:
        """See the Protocol."""
        keys, _ = self._places(conversation)
        cursor = b""
        while cursor != b"0":
            cursor, found = await self._instance.call("SCAN", cursor or b"0", "MATCH", keys.prefix + "*", "COUNT", 5000)
            if found:
                await self._instance.call("UNLINK", *found)

    async def _add_people(
        self, conversation: Conversation, keys: ConversationKeys, bucket: BucketKeys, scope: bytes, folded: Refold
    ) -> None:
        for people in _pieces(list(folded.people), _PIECE):
            current: list[Argument] = []
            older: list[Argument] = []
            members: list[Argument] = []
            for user in people:
                person = folded.people[user]
                current += (user, person.current)
                if len(person.stays) > 1:
                    older += (user, person.older)
                if person.present:
                    members += (0, self._shard(conversation, user) + user)
            commands: list[Command] = [("HSET", keys.grpcur, *current)]
            if older:
                commands.append(("HSET", keys.grpstays, *older))
            if members:
                commands.append(("ZADD", keys.grpmem, *members))
            commands.append(("XADD", bucket.memlog, "*", "e", scope + _COUNT.pack(len(people)) + b"".join(people)))
            await self._send(commands)

    def _shard(self, conversation: Conversation, user: UserId) -> bytes:
        return _COUNT.pack(self._topology.person_bucket(conversation.tenant, user))

    def _places(self, conversation: Conversation) -> tuple[ConversationKeys, BucketKeys]:
        bucket = self._topology.conversation_bucket(conversation.tenant, conversation.id)
        return ConversationKeys(conversation.tenant, conversation.id, bucket), BucketKeys(bucket)

    async def _send(self, commands: Sequence[Command]) -> None:
        for piece in _pieces(commands, _COMMANDS):
            checked(await self._instance.pipeline(piece))


def _entries_key(bucket: BucketKeys) -> str:
    """Where the entries of the window stand: the older generation, whose start says what is too old."""
    return bucket.idem[0]


def _flat(pairs: Iterable[tuple[Argument, Argument]]) -> list[Argument]:
    return [part for pair in pairs for part in pair]


def _in_pieces(command: tuple[Argument, ...], parts: Sequence[Argument]) -> Iterator[Command]:
    """A command that takes pairs, as often as they need it."""
    return ((*command, *piece) for piece in _pieces(parts, 2 * _PIECE))


def _pieces(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))
