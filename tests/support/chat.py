"""The writer's commands in-process, on stores of any backend: what a test says about a group, without a wire."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qim_common.enums import LeaverHistory
from qim_common.errors import QimError
from qim_common.identity import Actor, Principal, PrincipalKind
from qim_common.ids import ConversationId, DeviceId, MembershipOp, TenantId, UserId, uuid7
from qim_common.records import Record
from qim_common.tokens import TokenSigner
from qim_writer.commands.authorize import Authorization
from qim_writer.commands.change_members import AdminChange, MemberChanges
from qim_writer.commands.create_group import CreateGroup, create_group
from qim_writer.commands.history import Direction, History
from qim_writer.commands.members import Members
from qim_writer.commands.send import prepare_send
from qim_writer.domain.hints import CommitHints
from qim_writer.domain.policy import GroupSettings, Limits
from qim_writer.domain.stays import Stay
from qim_writer.storage import ChangeAnswer, CommitLog, Conversation, MembershipStore, MessageStore, Send

TENANT = TenantId(secrets.randbits(62) | 1)
"""This process's own: others write into the same archive."""

OPERATOR = Principal(PrincipalKind.OPERATOR, "ops", TENANT, None)
MESSAGE_MAX_BYTES = 65_536


def user(number: int) -> UserId:
    """The person of a number from 1; their ids ascend with it."""
    return UserId(b"\x10" + number.to_bytes(15, "big"))


ANA, BEN, CARA, DAN, EVE = (user(number) for number in range(1, 6))


def device(person: UserId) -> DeviceId:
    """A device of the person that is not the person's own id."""
    return DeviceId(b"\x20" + person[1:])


def acting(person: UserId, tenant: TenantId = TENANT) -> Actor:
    """An end user."""
    return Actor(tenant, person, device(person))


@dataclass(frozen=True)
class Stores:
    """One backend: the three stores of `qim_writer.storage` that people, messages and membership need."""

    membership: MembershipStore
    messages: MessageStore
    commits: CommitLog
    buckets: int


@dataclass(frozen=True)
class Sent:
    """What became of one message that was committed."""

    seq: int
    time_ms: int
    version: int
    generation: int


@dataclass
class Outcomes:
    """A sink (`qim_writer.storage.SendSink`) that a test waits for. `order` lists the indexes as they were answered."""

    expected: int
    expired: bool = False
    answers: dict[int, Sent | QimError] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def committed(self, index: int, seq: int, time_ms: int, version: int, generation: int) -> None:
        """See `SendSink`."""
        self._note(index, Sent(seq, time_ms, version, generation))

    def refused(self, index: int, error: QimError) -> None:
        """See `SendSink`."""
        self._note(index, error)

    def _note(self, index: int, answer: Sent | QimError) -> None:
        assert index not in self.answers, "one answer a message"
        self.answers[index] = answer
        self.order.append(index)
        if len(self.answers) == self.expected:
            self.complete.set()

    async def wait(self) -> list[Sent | QimError]:
        """The answers in the order of the messages."""
        async with asyncio.timeout(20):
            await self.complete.wait()
        return [self.answers[index] for index in range(self.expected)]


class Chat:
    """People, groups and messages of one tenant on one backend."""

    def __init__(
        self,
        stores: Stores,
        *,
        limits: Limits | None = None,
        tenant: TenantId = TENANT,
        hints: CommitHints | None = None,
    ) -> None:
        self.stores = stores
        self.hints = hints
        self.limits = limits or Limits()
        self.tenant = tenant
        self.operator = Principal(PrincipalKind.OPERATOR, "ops", tenant, None)
        self.changes = MemberChanges(stores.membership, self.limits, hints=hints)
        self.authorization = Authorization(stores.membership)
        self.history = History(stores.membership, stores.messages)
        with tempfile.TemporaryDirectory() as folder:
            key_file = Path(folder) / "keys"
            key_file.write_text("ab" * 32)
            self.tokens = TokenSigner(key_file, interval=3600)
        self.members = Members(stores.membership, self.tokens, stores.buckets)

    def of(self, conversation: ConversationId) -> Conversation:
        """The conversation as stores name it."""
        return Conversation(self.tenant, conversation)

    async def create(
        self,
        owner: UserId,
        *invited: UserId,
        group_id: bytes = b"",
        request_id: bytes = b"",
        settings: GroupSettings | None = None,
        **named: Any,
    ) -> ConversationId:
        """CreateGroup; the group's canonical id. Settings as a whole, or by their names."""
        group, _ = await self.create_with_answer(
            owner, *invited, group_id=group_id, request_id=request_id, settings=settings, **named
        )
        return group

    async def create_with_answer(
        self,
        owner: UserId,
        *invited: UserId,
        group_id: bytes = b"",
        request_id: bytes = b"",
        settings: GroupSettings | None = None,
        **named: Any,
    ) -> tuple[ConversationId, ChangeAnswer]:
        """CreateGroup with its answer."""
        wanted = settings or GroupSettings(**{"member_limit": self.limits.member_limit, **named})
        request = CreateGroup(request_id or uuid7(), group_id, invited, wanted)
        actor = acting(owner, self.tenant)
        group, answer = await create_group(self.stores.membership, self.limits, actor, request, self.hints)
        return group.id, answer

    async def add(self, group: bytes, *people: UserId, request_id: bytes = b"", owner: bytes = b"") -> ChangeAnswer:
        """An operator adds people."""
        return await self.change(MembershipOp.JOIN, group, people, request_id=request_id, owner=owner)

    async def remove(
        self, group: bytes, *people: UserId, request_id: bytes = b"", leaver: LeaverHistory | None = None
    ) -> ChangeAnswer:
        """An operator removes people."""
        return await self.change(MembershipOp.REMOVE, group, people, request_id=request_id, leaver=leaver)

    async def change(
        self,
        op: MembershipOp,
        group: bytes,
        people: Sequence[UserId],
        *,
        request_id: bytes = b"",
        owner: bytes = b"",
        leaver: LeaverHistory | None = None,
        principal: Principal | None = None,
    ) -> ChangeAnswer:
        """AdminChangeMembers."""
        wanted = AdminChange(request_id or uuid7(), group, op, people, owner, leaver)
        _, answer = await self.changes.by_principal(principal or self.operator, wanted)
        return answer

    async def leave(self, person: UserId, group: bytes, *, request_id: bytes = b"") -> Stay:
        """LeaveGroup."""
        _, stay = await self.changes.leave(acting(person, self.tenant), request_id or uuid7(), group)
        return stay

    def prepared(self, sink: Outcomes, index: int, sender: UserId, conversation: bytes = b"", **fields: Any) -> Send:
        """A message on its way to the commit."""
        message: dict[str, Any] = {
            "conversation_id": conversation,
            "peer": b"",
            "message_id": uuid7(),
            "custom_type": "",
            "record_type": 0,
            "body": b"hello",
            "expected_version": 0,
            "max_bytes": MESSAGE_MAX_BYTES,
        }
        return prepare_send(acting(sender, self.tenant), **{**message, **fields}, sink=sink, index=index)

    async def outcomes(self, *messages: tuple[UserId, bytes, dict[str, Any]]) -> list[Sent | QimError]:
        """Sends messages (sender, conversation or nothing, fields) as one batch; what became of each."""
        sink = Outcomes(len(messages))
        sends = [
            self.prepared(sink, index, who, where, **fields) for index, (who, where, fields) in enumerate(messages)
        ]
        self.stores.commits.submit(sends)
        return await sink.wait()

    async def send(self, sender: UserId, conversation: bytes = b"", **fields: Any) -> Sent:
        """Sends one message; raises its refusal."""
        (outcome,) = await self.outcomes((sender, conversation, fields))
        if isinstance(outcome, QimError):
            raise outcome
        return outcome

    async def send_many(self, count: int, sender: UserId, conversation: bytes) -> list[Sent]:
        """Sends `count` messages as one batch; all must be committed."""
        outcomes = await self.outcomes(*((sender, conversation, {"body": b"%d" % n}) for n in range(count)))
        assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes
        return [outcome for outcome in outcomes if isinstance(outcome, Sent)]

    async def read(self, person: UserId, conversation: bytes, *, limit: int = 1000) -> list[int]:
        """PullHistory page by page from the oldest; all seqs."""
        seqs: list[int] = []
        start = 1
        while start:
            page = await self.history.page(acting(person, self.tenant), conversation, start, Direction.NEWER, limit)
            seqs += [record.seq for record in page.messages]
            start = page.next_from
        return seqs

    async def record(self, conversation: ConversationId, seq: int) -> Record:
        """One stored message."""
        (record,) = await self.stores.messages.records(self.of(conversation), [seq])
        return record

    async def version(self, conversation: ConversationId) -> int:
        """The present membership version."""
        facts = await self.stores.membership.facts(self.of(conversation), ANA)
        assert facts is not None
        return facts.version

    async def head(self, conversation: ConversationId) -> int:
        """The newest seq."""
        facts = await self.stores.membership.facts(self.of(conversation), ANA)
        return 0 if facts is None else facts.head

    async def at(self, conversation: ConversationId, version: int, *, shard: int | None = None) -> list[bytes]:
        """RecipientsForVersion: the people, ascending within each chunk."""
        chunks = self.members.recipients(self.tenant, conversation, version, shard)
        return [person async for _, people in chunks for person in people]

    async def present(self, person: UserId, group: bytes, *, size: int = 1000) -> list[UserId]:
        """MembersPage page by page, as one of the members sees it."""
        people: list[UserId] = []
        token, first = "", True
        while token or first:
            page = await self.members.page(acting(person, self.tenant), group, size, token)
            people += [row.user for row in page.rows]
            token, first = page.next_token, False
        return people
