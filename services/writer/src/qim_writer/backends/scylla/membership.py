"""Membership that never changes: a group has the members that it was created with, a direct conversation its two."""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Final

from qim_common.cassandra import CassandraRequests
from qim_common.enums import MemberState
from qim_common.errors import IdempotencyKeyReused, InvalidArgument, PermissionDenied
from qim_common.idempotency import IdempotencyKey
from qim_common.ids import ConversationId, TenantId, UserId, person_bucket
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.scylla.conversations import ConversationRow, Conversations
from qim_writer.backends.scylla.people import People
from qim_writer.backends.scylla.unsupported import unsupported
from qim_writer.domain.changes import ChangePlan
from qim_writer.domain.policy import Policy
from qim_writer.domain.stays import Person, Stay
from qim_writer.storage import ChangeAnswer, Changes, Conversation, Facts, Look, MembersPage, PlanFacts

LOOKS_AT_ONCE: Final = 50
"""Conversations of one person that are read at once: three reads each."""

_VERSION: Final = 1
_FROM_THE_START: Final = Stay(0, 0, 0, 1, 0, MemberState.MEMBER)
_SHARD: Final = struct.Struct(">H")


class ScyllaMembershipStore:
    """See `qim_writer.storage.MembershipStore`.

    Facts are of two reads: a head that is read may be of a run whose messages are still being written.
    """

    def __init__(self, session: CassandraRequests, archive: CassandraArchive, *, buckets: int) -> None:
        self._conversations = Conversations(session)
        self._people = People(session)
        self._archive = archive
        self._buckets = buckets

    async def create(
        self, group: Conversation, people: Sequence[UserId], policy: Policy, key: IdempotencyKey, *, big: bool
    ) -> ChangeAnswer:
        """See the Protocol. The row decides who has created the group; the members follow, and a retry writes those
        that are missing. Raises UnsupportedByBackend for a retention by age, too."""
        if policy.settings.retention_days:
            raise unsupported("retention by age")
        row = await self._conversations.create(group, policy.pack(), len(people), key, big=big)
        await self._people.enter(group, people, row.created_ms)
        return _answer(row)

    async def plan_facts(self, group: Conversation, people: Sequence[UserId], key: IdempotencyKey) -> PlanFacts:
        """Only what a creation asks: the first answer of one that was carried out."""
        row = await self._conversations.find(group)
        if row is None or row.request_field != key.field:
            return PlanFacts(None, None)
        if row.request_digest != key.digest:
            raise IdempotencyKeyReused
        return PlanFacts(_answer(row), None)

    async def apply(
        self, group: Conversation, plan: ChangePlan, tail: bytes, key: IdempotencyKey
    ) -> ChangeAnswer | None:
        """Raises UnsupportedByBackend."""
        raise unsupported("membership changes")

    async def facts(self, conversation: Conversation, user: UserId, *, told: bool = True) -> Facts | None:
        """See the Protocol."""
        row, members = await asyncio.gather(
            self._conversations.find(conversation), self._people.among(conversation, (user,))
        )
        return None if row is None else _facts(row, user, present=user in members)

    async def looks(self, tenant: TenantId, user: UserId, conversations: Sequence[ConversationId]) -> list[Look | None]:
        """See the Protocol, but that the record is read after the facts."""
        found: list[Look | None] = []
        for start in range(0, len(conversations), LOOKS_AT_ONCE):
            part = conversations[start : start + LOOKS_AT_ONCE]
            found += await asyncio.gather(*(self._look(Conversation(tenant, one), user) for one in part))
        return found

    async def _look(self, conversation: Conversation, user: UserId) -> Look | None:
        facts = await self.facts(conversation, user)
        if facts is None:
            return None
        wanted = [facts.head] if facts.person is not None and facts.head else []
        records = await self._archive.records(conversation, wanted)
        return Look(facts, records[0] if records else None)

    async def members_page(self, group: Conversation, after: bytes, limit: int) -> MembersPage | None:
        """See the Protocol."""
        row, entries = await asyncio.gather(self._conversations.find(group), self._entries(group))
        if row is None:
            return None
        first = bisect_right(entries, after)
        page = tuple(entries[first : first + limit])
        owner = Policy.unpack(row.policy).owner
        return MembersPage(_VERSION, row.member_count, owner, page, (_FROM_THE_START,) * len(page))

    async def members_at(self, group: Conversation, version: int, shard: int | None) -> AsyncIterator[list[bytes]]:
        """See the Protocol; there is one version."""
        await self._require_version(group, version)
        entries = await self._entries(group)
        yield entries if shard is None else [entry for entry in entries if entry[:2] == _SHARD.pack(shard)]

    async def changes_since(self, group: Conversation, version: int, limit: int) -> Changes | None:
        """See the Protocol; there are none."""
        if await self._conversations.find(group) is None:
            return None
        await self._require_version(group, version)
        return Changes((), _VERSION)

    async def _require_version(self, group: Conversation, version: int) -> None:
        if await self._conversations.find(group) is None:
            raise PermissionDenied
        if version != _VERSION:
            raise InvalidArgument("membership_version", "must be from 1 to the group's present version")

    async def _entries(self, group: Conversation) -> list[bytes]:
        """Everybody, as mailbox shard and user, ascending."""
        return sorted(
            _SHARD.pack(person_bucket(group.tenant, user, self._buckets)) + user
            for user in await self._people.all(group)
        )


class NoMembershipChanges(ScyllaMembershipStore):
    """The store that changes of members are planned on: there are none, for known and unknown groups alike, so that
    nobody learns from the refusal whether a group exists."""

    async def plan_facts(self, group: Conversation, people: Sequence[UserId], key: IdempotencyKey) -> PlanFacts:
        """Raises UnsupportedByBackend."""
        raise unsupported("membership changes")


def _answer(row: ConversationRow) -> ChangeAnswer:
    return ChangeAnswer(_VERSION, 0, row.member_count, row.member_count, row.created_ms)


def _facts(row: ConversationRow, user: UserId, *, present: bool) -> Facts:
    head = row.line.head
    return Facts(
        version=_VERSION,
        revision=1,
        generation=0,
        packed_policy=row.policy,
        member_count=row.member_count,
        floor=0,
        created_ms=row.created_ms,
        head=head,
        newest_broadcast=head,
        newest_broadcast_ms=row.line.time_ms if head else None,
        # There are no ordinals: unread tells one's own messages by the sender in their records.
        person=Person((_FROM_THE_START,), 0, user) if present else None,
        big=row.big,
    )
