"""What the session instances hold of each person: list, cursors, and (development only) the conversation set."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, kind_of
from qim_common.keys import projection_epoch, unflushed, usig
from qim_common.redis import Argument, Instance, checked, load_script, run
from qim_common.topology import Topology
from qim_session.backends.person_places import PersonPlaces
from qim_session.domain.cursors import NOTHING, Cursor
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.flags import NO_FLAGS, Flags
from qim_session.domain.list_pages import ListPosition
from qim_session.domain.signals import Signal, SignalKind
from qim_session.domain.written_behind import MarkKind, person_part
from qim_session.storage.cursors import Marks
from qim_session.storage.lists import ListRead

ADVANCE_CURSORS: Final = load_script("qim_session", "advance_cursors")
_TIED: Final = 16
"""Entries of the cursor's own moment, and big conversations, that a first read of a page allows for."""
_SET_ROW: Final = struct.Struct(">BQ")


class RedisPeople:
    """The `ConversationLists`, `Cursors` and `ConversationSets` of the redis backend, over all session instances.

    Args:
        written_behind: cursors that move are noted, for who writes them behind (backend tiered).
    """

    def __init__(self, instances: Sequence[Instance], topology: Topology, *, written_behind: bool = False) -> None:
        self._places = PersonPlaces(instances, topology)
        self._written_behind = written_behind

    async def page(self, tenant: TenantId, user: UserId, *, below: ListPosition | None, limit: int) -> ListRead:
        """As `ConversationLists.page`."""
        highest: Argument = "+inf" if below is None else below.time_ms
        count = limit + _TIED
        while True:
            # One read gives one moment's order; a page that needs more is read again as a whole.
            found, big, complete = await self._read(
                tenant, user, [highest, "-inf", "BYSCORE", "REV", "LIMIT", 0, count]
            )
            positions = [at for at in found if (below is None or at < below) and at.conversation not in big]
            if len(positions) >= limit or len(found) < count:
                return ListRead(positions[:limit], big, complete=complete)
            count *= 4

    async def risen(
        self, tenant: TenantId, user: UserId, *, above: ListPosition, after: ConversationId, limit: int
    ) -> ListRead:
        """As `ConversationLists.risen`; reads all that rose, which is what the order by id costs."""
        found, big, complete = await self._read(tenant, user, [above.time_ms, "+inf", "BYSCORE"])
        positions = [at for at in found if at > above and at.conversation > after and at.conversation not in big]
        positions.sort(key=attrgetter("conversation"))
        return ListRead(positions[:limit], big, complete=complete)

    async def _read(
        self, tenant: TenantId, user: UserId, span: Sequence[Argument]
    ) -> tuple[list[ListPosition], frozenset[ConversationId], bool]:
        """A span of the list, the big conversations, and whether the list is complete."""
        instance, keys = self._places.locate(tenant, user)
        # What becomes big after the span was read is known to be so by the last command.
        read: list[Sequence[Argument]] = [
            ("GET", projection_epoch(instance.position)),
            ("GET", keys.epoch),
            ("ZRANGE", keys.convs, *span, "WITHSCORES"),
            ("SMEMBERS", keys.bigconvs),
        ]
        epoch, mark, flat, members = checked(await instance.pipeline(read))
        found = [
            ListPosition(int(float(score)), ConversationId(member))
            for member, score in zip(flat[::2], flat[1::2], strict=True)
        ]
        return found, frozenset(map(ConversationId, members)), mark == (epoch or b"0")

    async def oldest_first(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """As `ConversationLists.oldest_first`."""
        instance, keys = self._places.locate(tenant, user)
        return list(map(ConversationId, await instance.call("ZRANGE", keys.convs, 0, -1)))

    async def read(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        """As `Cursors.read`."""
        instance, keys = self._places.locate(tenant, user)
        found = await _cursors(instance, keys.read_cursors, conversations)
        return {conversation: cursor or NOTHING for conversation, cursor in found.items()}

    async def marks(
        self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Marks]:
        """As `Cursors.marks`."""
        if not conversations:
            return {}
        instance, keys = self._places.locate(tenant, user)
        commands: list[Sequence[Argument]] = [
            ("HMGET", keys.read_cursors, *conversations),
            ("HMGET", keys.flags, *conversations),
        ]
        cursors, flags = checked(await instance.pipeline(commands))
        return {
            conversation: Marks(
                read=NOTHING if cursor is None else Cursor.unpack(cursor),
                flags=NO_FLAGS if flag is None else Flags.unpack(flag),
            )
            for conversation, cursor, flag in zip(conversations, cursors, flags, strict=True)
        }

    async def advance_read(self, actor: Actor, conversation: ConversationId, cursor: Cursor) -> bool:
        """As `Cursors.advance_read`."""
        instance, keys = self._places.locate(actor.tenant, actor.user)
        told = Signal(
            SignalKind.READ_MARK,
            *(actor.tenant, actor.user, actor.device, conversation, cursor.generation),
            seq=cursor.seq,
        )
        names = [keys.read_cursors, usig(instance.position), unflushed(instance.position)]
        person = person_part(MarkKind.READ, actor.tenant, actor.user) if self._written_behind else b""
        return bool(await run(instance, ADVANCE_CURSORS, names, [told.pack(), person, conversation, cursor.pack()]))

    async def device(
        self, tenant: TenantId, user: UserId, device: DeviceId, conversations: Sequence[ConversationId]
    ) -> dict[ConversationId, Cursor]:
        """As `Cursors.device`."""
        instance, keys = self._places.locate(tenant, user)
        found = await _cursors(instance, keys.device_cursors(device), conversations)
        return {conversation: cursor for conversation, cursor in found.items() if cursor is not None}

    async def advance_device(
        self, tenant: TenantId, user: UserId, device: DeviceId, cursors: Mapping[ConversationId, Cursor]
    ) -> int:
        """As `Cursors.advance_device`."""
        instance, keys = self._places.locate(tenant, user)
        person = person_part(MarkKind.DEVICE, tenant, user, device) if self._written_behind else b""
        args: list[Argument] = [b"", person]
        for conversation, cursor in cursors.items():
            args += [conversation, cursor.pack()]
        names = [keys.device_cursors(device), usig(instance.position), unflushed(instance.position)]
        moved: int = await run(instance, ADVANCE_CURSORS, names, args)
        return moved

    async def register(self, entries: Sequence[ProjectionEntry]) -> None:
        """As `ConversationSets.register`; a row is kind u8, first_seen_at u64 (ms), big-endian."""
        by_instance: dict[Instance, list[Sequence[Argument]]] = {}
        for entry in entries:
            instance, keys = self._places.locate(entry.tenant, entry.user)
            row = _SET_ROW.pack(kind_of(entry.conversation), entry.time_ms)
            command = ("HSETNX", keys.authority, entry.conversation, row)
            by_instance.setdefault(instance, []).append(command)
        for instance, commands in by_instance.items():
            checked(await instance.pipeline(commands))

    async def of(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """As `ConversationSets.of`."""
        instance, keys = self._places.locate(tenant, user)
        return list(map(ConversationId, await instance.call("HKEYS", keys.authority)))


async def _cursors(
    instance: Instance, key: str, conversations: Sequence[ConversationId]
) -> dict[ConversationId, Cursor | None]:
    if not conversations:
        return {}
    stored = await instance.call("HMGET", key, *conversations)
    unpacked = [None if value is None else Cursor.unpack(value) for value in stored]
    return dict(zip(conversations, unpacked, strict=True))
