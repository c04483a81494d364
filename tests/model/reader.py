"""What each read path of the real service tells one person, compared with what the model says.

The service is asked on every path; AssertionError names the one that differs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.model.sights import DENIED, Sight, told_entry, told_stay
from tests.model.world import SECONDS, World

from qim_client import Attached, Delivered, Detached, Subscription, actor, answers, values
from qim_client.actor import MAX_PAGE, ActorClient
from qim_client.values import Direction, Message
from qim_common.errors import QimError
from qim_common.ids import ConversationId, DeviceId, UserId, uuid7

Answer = TypeVar("Answer")


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
    _activity: int = 0

    @property
    def _client(self) -> ActorClient:
        return self.world.person(self.sight.who)

    async def compare(self) -> None:
        """Ask the paths; raises AssertionError naming the one that differs, and what it should have said."""
        paths: list[Callable[[], Awaitable[None]]] = [self.visible_range, self.follow_up]
        paths.append(self.named if self.turn % 2 else self.history)
        paths.append(self.authorization if self.turn // 2 % 2 else self.entry)
        if self.sight.group:
            paths += [self.members, self.explanation]
        results = await asyncio.gather(*(path() for path in paths), return_exceptions=True)
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, BaseException):
                result.add_note(f"path {path.__name__}, expected {self.sight}")
                raise result

    async def visible_range(self) -> None:
        """GetVisibleRange."""
        told = await outcome(self._client.get_visible_range(self.conversation))
        sight = self.sight
        if isinstance(told, str):
            assert told == sight.visible
            return
        assert _seqs(told.ranges) == sight.visible
        assert told.earliest_available_seq == sight.earliest
        assert told.head_seq == sight.head_seen
        assert [told_stay(stay) for stay in told.stays] == sight.stays
        assert told.state.name == sight.state
        assert (told.own_clear_seq, told.group_floor_seq) == (sight.cleared, sight.floor)
        assert told.membership_version == sight.version

    async def history(self) -> None:
        """PullHistory from the oldest or from the newest on, in small pages."""
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
            self.compare_messages(told.messages)
            assert told.earliest_available_seq == self.sight.earliest
            assert told.head_seq == self.sight.head_seen
            seen += [message.seq for message in told.messages]
            start = told.next_from_seq
            if not start:
                break
        assert (seen if direction is Direction.NEWER else seen[::-1]) == self.sight.visible

    async def named(self) -> None:
        """GetMessages of all seqs, and of some beyond the head."""
        told = await outcome(self._client.get_messages(self.conversation, range(1, self.sight.head + 3)))
        if isinstance(told, str):
            assert told == self.sight.visible
            return
        self.compare_messages(told.messages)
        assert [message.seq for message in told.messages] == self.sight.visible

    async def authorization(self) -> None:
        """AuthorizeHistory and AuthorizeSend."""
        history, send = await asyncio.gather(
            outcome(self._client.authorize_history(self.conversation)),
            outcome(self._client.authorize_send(self.conversation)),
        )
        assert history == (self.sight.visible if isinstance(self.sight.visible, str) else None)
        assert send == (self.sight.send or None)

    async def members(self) -> None:
        """MembersPage."""
        told = await outcome(self._client.members_page(self.conversation, page_size=MAX_PAGE))
        if isinstance(told, str):
            assert told == self.sight.members
            return
        assert sorted(member.user for member in told.members) == self.sight.members
        joined = {member.user: member.joined_at for member in told.members}
        assert joined[self.sight.who] == self.sight.stays[-1][0]
        assert (told.member_count, told.membership_version) == (len(self.sight.members), self.sight.version)

    async def explanation(self) -> None:
        """ExplainVisibility of one seq at a time, beyond the head too."""
        seq = 1 + self.turn * 7 % (self.sight.head + 1)
        operator = self.world.operators["operator"]
        told = await operator.explain_visibility(self.conversation, self.sight.who, seq)
        assert told.visible == (seq in self.sight.visible if isinstance(self.sight.visible, list) else False)
        assert told.delivered == (seq in self.sight.delivered), f"seq {seq}: {told.sentence}"
        assert told.sentence.startswith("Visible" if told.visible else ("Hidden", "Seq", "The person never"))

    async def entry(self) -> None:
        """GetConversation."""
        entry = await outcome(self._client.get_conversation(self.conversation))
        if isinstance(entry, str):
            assert (entry, self.sight.state) == (DENIED, "ABSENT")
        else:
            self._compare_entry(entry)

    async def flagged(self) -> None:
        """SetConversationFlags, which answers the entry; what it sets is taken back."""
        for muted in (True, False):
            entry = await outcome(self._client.set_conversation_flags(self.conversation, muted=muted))
            if isinstance(entry, str):
                assert (entry, self.sight.state) == (DENIED, "ABSENT")
            else:
                assert entry.muted is muted
                self._compare_entry(entry)

    async def follow_up(self) -> None:
        """What follows the dispatch log: first the entry has to be there."""
        await self.listed()
        await self.mailbox()

    async def listed(self) -> None:
        """ListConversations, once the entry is there."""
        entry = await self._settled_entry()
        if entry is None:
            assert self.sight.state == "ABSENT"
        else:
            self._compare_entry(entry)
            self._activity = entry.last_activity_ms

    async def mailbox(self) -> None:
        """PullMailbox, after `listed`."""
        pulled = await self._client.pull_mailbox(limit=MAX_PAGE)
        assert not pulled.more
        entries = [item for item in pulled.entries if item.conversation == self.conversation]
        messages = [item.message for item in entries if item.message is not None]
        self.compare_delivered(messages, [item.withheld for item in entries if item.withheld is not None])
        assert [item.cursor.seq for item in entries] == sorted(item.cursor.seq for item in entries)
        if messages and messages[-1].seq == self.sight.delivered[-1]:
            assert self._activity == messages[-1].time_ms

    async def live(self, subscription: Subscription) -> None:
        """Subscribe, on a device that has nothing yet; nobody else is attached."""
        device = DeviceId(uuid7())
        attachment = await subscription.attach(actor(self._client.actor.tenant, self.sight.who, device))
        entries: list[answers.MailboxEntry] = []
        async with asyncio.timeout(SECONDS):
            async for event in subscription:
                if isinstance(event, Attached):
                    break
                if isinstance(event, Delivered) and event.conversation == self.conversation:
                    entries.append(event.entry)
            await attachment.detach()
            while not isinstance(await anext(subscription), Detached):
                pass
        messages = [item.message for item in entries if item.message is not None]
        self.compare_delivered(messages, [item.withheld for item in entries if item.withheld is not None])
        assert [item.cursor.seq for item in entries] == sorted(item.cursor.seq for item in entries)

    def compare_delivered(self, messages: Sequence[Message], withheld: Iterable[values.SeqRange]) -> None:
        """What a mailbox holds: every delivered seq, with its body exactly where it is due."""
        shown = [message.seq for message in messages]
        assert sorted(shown + _seqs(withheld)) == self.sight.delivered
        assert set(shown) - self.sight.perhaps == self.sight.shown & set(self.sight.delivered)
        self.compare_messages(messages)

    async def _settled_entry(self) -> answers.Conversation | None:
        """The entry of the list; waits for it where there must be one."""
        deadline = time.monotonic() + SECONDS
        while True:
            page = await self._client.list_conversations()
            for entry in page.conversations:
                if entry.conversation == self.conversation:
                    return entry
            if self.sight.state == "ABSENT" or time.monotonic() > deadline:
                return None
            await asyncio.sleep(0.01)

    def _compare_entry(self, entry: answers.Conversation) -> None:
        head = self.sight.head_seen
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
            self.compare_messages([entry.preview])

    def compare_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            assert told_entry(message) == self.sight.line[message.seq], f"seq {message.seq}"


async def compare_list(world: World, who: UserId, sights: Mapping[ConversationId, Sight]) -> None:
    """A person's whole list, page by page, and the total: exactly these conversations, newest activity first.

    The order follows the dispatch log, so it is waited for.
    """
    person = world.person(who)
    known = {group for group, sight in sights.items() if sight.state != "ABSENT"}
    deadline = time.monotonic() + SECONDS
    while True:
        listed = [entry async for entry in _pages(person)]
        activity = [entry.last_activity_ms for entry in listed]
        once = sorted(entry.conversation for entry in listed) == sorted(known)
        settled = once and activity == sorted(activity, reverse=True)
        if settled or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.01)
    assert sorted(entry.conversation for entry in listed) == sorted(known)
    assert activity == sorted(activity, reverse=True)
    total = sum(sight.unread for sight in sights.values() if sight.state == "MEMBER")
    assert await person.get_total_unread() == total


async def _pages(person: ActorClient) -> AsyncIterator[answers.Conversation]:
    token = ""
    while True:
        page = await person.list_conversations(page_size=2, page_token=token)
        for entry in page.conversations:
            yield entry
        if not (token := page.next_page_token):
            return


def _seqs(ranges: Iterable[values.SeqRange]) -> list[int]:
    return [seq for stretch in ranges for seq in range(stretch.first, stretch.last + 1)]
