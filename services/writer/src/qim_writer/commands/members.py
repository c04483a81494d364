"""Who is in a group: pages of the present members, the members at a version, and the changes since one."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from qim_common.errors import InvalidArgument, PermissionDenied
from qim_common.identity import Actor, Principal
from qim_common.ids import TenantId, UserId, parse_conversation, parse_group, parse_tenant
from qim_common.tokens import TokenSigner
from qim_writer.commands.callers import caller_of_principal
from qim_writer.domain.stays import VERSION_MAX, Stay
from qim_writer.storage import Changes, Conversation, MembershipStore

PAGE_MAX: Final = 1_000
MEMBERS_PAGE: Final = "MembersPage"
LIST_MEMBERS: Final = "ListMembers"


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One present member."""

    user: UserId
    owner: bool
    stay: Stay


@dataclass(frozen=True, slots=True)
class MemberRows:
    """A page of members; an empty token ends the list."""

    rows: tuple[MemberRow, ...]
    next_token: str
    version: int
    count: int


class Members:
    """The member lists."""

    def __init__(self, store: MembershipStore, tokens: TokenSigner, buckets: int) -> None:
        self._store = store
        self._tokens = tokens
        self._buckets = buckets

    async def page(self, actor: Actor, group_id: bytes, size: int, token: str) -> MemberRows:
        """MembersPage, for present members only. Raises InvalidArgument, PageTokenInvalid, PermissionDenied."""
        group = Conversation(actor.tenant, parse_group(group_id))
        _check_size(size)
        after = self._open(MEMBERS_PAGE, group, actor.user, token)
        await self._require_member(actor, group)
        return await self._page(MEMBERS_PAGE, group, actor.user, size, after)

    async def list_for(self, principal: Principal, group_id: bytes, size: int, token: str) -> MemberRows:
        """ListMembers, for operators and back ends. Raises InvalidArgument, PageTokenInvalid, PermissionDenied."""
        group = Conversation(principal.tenant, parse_group(group_id))
        _check_size(size)
        caller = caller_of_principal(principal).name
        after = self._open(LIST_MEMBERS, group, caller, token)
        return await self._page(LIST_MEMBERS, group, caller, size, after)

    async def _require_member(self, actor: Actor, group: Conversation, *, told: bool = True) -> None:
        """The actor is in the group now; `told` as of the store's facts. Raises PermissionDenied."""
        facts = await self._store.facts(group, actor.user, told=told)
        if facts is None or facts.person is None or not facts.person.present:
            raise PermissionDenied

    def _open(self, method: str, group: Conversation, caller: bytes, token: str) -> bytes:
        return self._tokens.open(method, group.tenant, caller, group.id, token) if token else b""

    async def _page(self, method: str, group: Conversation, caller: bytes, size: int, after: bytes) -> MemberRows:
        page = await self._store.members_page(group, after, size)
        if page is None:
            raise PermissionDenied
        rows = tuple(
            MemberRow(UserId(entry[2:]), entry[2:] == page.owner, stay)
            for entry, stay in zip(page.entries, page.stays, strict=True)
        )
        token = ""
        if len(rows) == size:
            token = self._tokens.issue(method, group.tenant, caller, group.id, page.entries[-1])
        return MemberRows(rows, token, page.version, page.count)

    async def recipients(
        self, tenant: int, conversation_id: bytes, version: int, shard: int | None
    ) -> AsyncIterator[tuple[int, list[bytes]]]:
        """RecipientsForVersion: (mailbox shard, people) chunks of at most 1,000 people, ascending.

        Direct conversations have version 1 for ever. Raises InvalidArgument, PermissionDenied (no such
        conversation), MembershipVersionExpired."""
        conversation = Conversation(parse_tenant(tenant), parse_conversation(conversation_id, "group_id"))
        if not 1 <= version <= VERSION_MAX:
            raise InvalidArgument("membership_version", "must be from 1 to the group's present version")
        if shard is not None and shard >= self._buckets:
            raise InvalidArgument("target_shard", f"must be from 0 to {self._buckets - 1}")
        async for entries in self._store.members_at(conversation, version, shard):
            chunk: list[bytes] = []
            for entry in entries:
                if chunk and entry[:2] != chunk[0][:2]:
                    yield _chunk(chunk)
                    chunk = []
                chunk.append(entry)
            if chunk:
                yield _chunk(chunk)

    async def since(self, actor: Actor | None, tenant: TenantId, group_id: bytes, version: int, limit: int) -> Changes:
        """MembersSince; `actor` None for the session service. Raises InvalidArgument, PermissionDenied,
        MembershipVersionExpired."""
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidArgument("limit", f"must be from 1 to {PAGE_MAX}")
        group = Conversation(tenant, parse_group(group_id))
        if actor is not None:
            await self._require_member(actor, group, told=False)
        changes = await self._store.changes_since(group, version, limit)
        if changes is None:
            raise PermissionDenied
        return changes


def _chunk(entries: list[bytes]) -> tuple[int, list[bytes]]:
    (shard,) = struct.unpack_from(">H", entries[0])
    return shard, [entry[2:] for entry in entries]


def _check_size(size: int) -> None:
    if not 1 <= size <= PAGE_MAX:
        raise InvalidArgument("page_size", f"must be from 1 to {PAGE_MAX}")
