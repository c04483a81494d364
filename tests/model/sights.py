"""What a person should be told about one conversation, and what each read path really tells them.

`expected_sight` asks the reference model; the result is a plain value, so that it may be compared much later.
`compare` asks the service on every path and raises AssertionError naming the path that differs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.model.reference import Conversation, Refused, Stay
from tests.model.world import SECONDS, World

from qim_client import answers, values
from qim_client.actor import MAX_PAGE, ActorClient
from qim_client.values import Direction, Message
from qim_common.errors import QimError
from qim_common.ids import ConversationId, UserId
from qim_common.records import Audience, RecordType

Answer = TypeVar("Answer")
Line = Mapping[int, tuple[Any, ...]]
DENIED = "PERMISSION_DENIED"


@dataclass(frozen=True)
class Sight:
    """All that one person may be told of a conversation. `visible` and `members` are DENIED where they are refused."""

    who: UserId
    group: bool
    state: str
    visible: list[int] | str
    earliest: int
    line: Line
    head: int
    delivered: list[int]
    shown: set[int]
    perhaps: set[int]
    unread: int
    read: int
    members: list[UserId] | str
    send: str
    stays: list[tuple[Any, ...]]
    cleared: int
    floor: int
    version: int
    revision: int


def expected_sight(model: Conversation, who: UserId) -> Sight:
    """What the model says about a person."""
    stays = model.stays.get(who, [])
    present = who in model.members
    try:
        visible: list[int] | str = model.visible(model.check_reader(who))
    except Refused as refused:
        visible = str(refused)
    readable = [] if isinstance(visible, str) else visible
    own = {seq for seq in model.delivered(who) if model.own_event(who, seq)}
    return Sight(
        who=who,
        group=not model.pair,
        state=(stays[-1].ended_by or "MEMBER") if stays else "ABSENT",
        visible=visible,
        earliest=0 if isinstance(visible, str) else model.earliest(who),
        line={seq: _entry(model, seq) for seq in range(1, model.head + 1)},
        head=model.head,
        delivered=model.delivered(who),
        shown=set(readable) | {seq for seq in own if seq > model.floor},
        perhaps={seq for seq in own if seq <= model.floor},
        unread=model.unread(who) if stays else 0,
        read=model.read.get(who, 0),
        members=sorted(model.members) if present else DENIED,
        send=DENIED if not present else "GROUP_FROZEN" if model.frozen else "",
        stays=[_stay(stay) for stay in stays],
        cleared=model.cleared.get(who, 0),
        floor=model.floor,
        version=model.version,
        revision=model.revision,
    )


def _entry(model: Conversation, seq: int) -> tuple[Any, ...]:
    entry = model.line[seq - 1]
    return (entry.sender, entry.version, entry.prev, entry.broadcast, entry.says)


def _stay(stay: Stay) -> tuple[Any, ...]:
    ends = (stay.left_at, stay.ended, stay.ended_by or "MEMBER", stay.revoked)
    return (stay.joined_at, stay.history_from, stay.began, stay.keeps_earlier, *ends)


def told_stay(stay: values.Stay) -> tuple[Any, ...]:
    """A stay as the service tells it, to compare with the model's."""
    ends = (stay.left_at, stay.ended_version, stay.state.name, stay.revoked)
    return (stay.joined_at, stay.history_from, stay.began_version, stay.keeps_earlier, *ends)


def told_entry(message: Message) -> tuple[Any, ...]:
    """A message as the service tells it, to compare with the model's."""
    says: Any = message.body
    if message.type is RecordType.CONTROL:
        assert message.event is not None
        says = (message.event.op.name, message.event.actor, message.event.people)
    broadcast = message.audience is Audience.BROADCAST
    return (message.sender, message.membership_version, message.prev_seq, broadcast, says)


async def outcome(call: Awaitable[Answer]) -> Answer | str:
    """The answer, or the reason of a refusal."""
    try:
        return await call
    except QimError as error:
        if not error.reason:
            raise
        return error.reason


@dataclass
class Reader:
    """One person's read paths on the real service."""

    world: World
    conversation: ConversationId
    sight: Sight
    turn: int
    """Counts up from look to look: which of the paths that say the same are asked, and the size of the pages."""

    @property
    def _client(self) -> ActorClient:
        return self.world.person(self.sight.who)

    async def compare(self) -> None:
        """Ask the paths; raises AssertionError naming the one that differs, and what it should have said."""
        paths: list[Callable[[], Awaitable[None]]] = [self._range, self._list_and_mailbox]
        paths.append(self._named if self.turn % 2 else self._history)
        paths.append(self._authorization if self.turn // 2 % 2 else self._entry)
        if self.sight.group:
            paths += [self._members, self._explanation]
        results = await asyncio.gather(*(path() for path in paths), return_exceptions=True)
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, BaseException):
                result.add_note(f"path {path.__name__.strip('_')}, expected {self.sight}")
                raise result

    async def _range(self) -> None:
        told = await outcome(self._client.get_visible_range(self.conversation))
        sight = self.sight
        if isinstance(told, str):
            assert told == sight.visible
            return
        assert _seqs(told.ranges) == sight.visible
        assert told.earliest_available_seq == sight.earliest
        assert told.head_seq == max(sight.visible, default=0)
        assert [told_stay(stay) for stay in told.stays] == sight.stays
        assert told.state.name == sight.state
        assert (told.own_clear_seq, told.group_floor_seq) == (sight.cleared, sight.floor)
        assert told.membership_version == sight.version

    async def _history(self) -> None:
        """From the oldest or from the newest on, in small pages."""
        direction = Direction.NEWER if self.turn // 2 % 2 else Direction.OLDER
        seen: list[int] = []
        start = 0
        while True:
            told = await outcome(
                self._client.pull_history(
                    self.conversation, from_seq=start, direction=direction, limit=3 + self.turn % 17
                )
            )
            if isinstance(told, str):
                assert told == self.sight.visible
                return
            self._compare_messages(told.messages)
            assert told.earliest_available_seq == self.sight.earliest
            seen += [message.seq for message in told.messages]
            start = told.next_from_seq
            if not start:
                break
        assert (seen if direction is Direction.NEWER else seen[::-1]) == self.sight.visible

    async def _named(self) -> None:
        told = await outcome(self._client.get_messages(self.conversation, range(1, self.sight.head + 3)))
        if isinstance(told, str):
            assert told == self.sight.visible
            return
        self._compare_messages(told.messages)
        assert [message.seq for message in told.messages] == self.sight.visible

    async def _authorization(self) -> None:
        history, send = await asyncio.gather(
            outcome(self._client.authorize_history(self.conversation)),
            outcome(self._client.authorize_send(self.conversation)),
        )
        assert history == (self.sight.visible if isinstance(self.sight.visible, str) else None)
        assert send == (self.sight.send or None)

    async def _members(self) -> None:
        told = await outcome(self._client.members_page(self.conversation, page_size=MAX_PAGE))
        if isinstance(told, str):
            assert told == self.sight.members
            return
        assert sorted(member.user for member in told.members) == self.sight.members
        joined = {member.user: member.joined_at for member in told.members}
        assert joined[self.sight.who] == self.sight.stays[-1][0]
        assert (told.member_count, told.membership_version) == (len(self.sight.members), self.sight.version)

    async def _explanation(self) -> None:
        """Of one seq at a time, beyond the head too."""
        seq = 1 + self.turn * 7 % (self.sight.head + 1)
        operator = self.world.operators["operator"]
        told = await operator.explain_visibility(self.conversation, self.sight.who, seq)
        assert told.visible == (seq in self.sight.visible if isinstance(self.sight.visible, list) else False)
        assert told.delivered == (seq in self.sight.delivered), f"seq {seq}: {told.sentence}"
        assert told.sentence.startswith("Visible" if told.visible else ("Hidden", "Seq", "The person never"))

    async def _entry(self) -> None:
        entry = await outcome(self._client.get_conversation(self.conversation))
        if isinstance(entry, str):
            assert (entry, self.sight.state) == (DENIED, "ABSENT")
        else:
            self._compare_entry(entry)

    async def _list_and_mailbox(self) -> None:
        """The two paths that follow the dispatch log: first the entry has to be there."""
        entry = await self._settled_entry()
        pulled = await self._client.pull_mailbox(limit=MAX_PAGE)
        assert not pulled.more
        entries = [item for item in pulled.entries if item.conversation == self.conversation]
        messages = [item.message for item in entries if item.message is not None]
        withheld = _seqs(item.withheld for item in entries if item.withheld is not None)
        shown = [message.seq for message in messages]
        assert sorted(shown + withheld) == self.sight.delivered
        assert [item.cursor.seq for item in entries] == sorted(item.cursor.seq for item in entries)
        assert set(shown) - self.sight.perhaps == self.sight.shown & set(self.sight.delivered)
        self._compare_messages(messages)
        if self.turn % 3 == 0:
            total = await self._client.get_total_unread()
            assert total == (self.sight.unread if self.sight.state == "MEMBER" else 0)
        if entry is not None and messages and messages[-1].seq == self.sight.delivered[-1]:
            assert entry.last_activity_ms == messages[-1].time_ms

    async def _settled_entry(self) -> answers.Conversation | None:
        deadline = time.monotonic() + SECONDS
        while True:
            page = await self._client.list_conversations()
            entries = [item for item in page.conversations if item.conversation == self.conversation]
            if entries or self.sight.state == "ABSENT" or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        if self.sight.state == "ABSENT":
            assert not entries
            return None
        (entry,) = entries
        self._compare_entry(entry)
        return entry

    def _compare_entry(self, entry: answers.Conversation) -> None:
        head = 0 if isinstance(self.sight.visible, str) else max(self.sight.visible, default=0)
        assert entry.state.name == self.sight.state
        assert entry.head_seq == head
        assert entry.unread_count == self.sight.unread
        assert entry.read_seq == self.sight.read
        assert told_stay(entry.stay) == self.sight.stays[-1]
        assert entry.revision == self.sight.revision
        if not isinstance(self.sight.visible, str):
            assert entry.earliest_available_seq == self.sight.earliest
        assert (entry.preview.seq if entry.preview else 0) == head
        if entry.preview:
            self._compare_messages([entry.preview])

    def _compare_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            assert told_entry(message) == self.sight.line[message.seq], f"seq {message.seq}"


def _seqs(ranges: Iterable[values.SeqRange]) -> list[int]:
    return [seq for stretch in ranges for seq in range(stretch.first, stretch.last + 1)]
