"""A tiered suite and people in it, each with a device that pulls and one that is attached from the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tests.support.archived import Below, until
from tests.support.projection import Projection
from tests.support.subscribers import Subscriber, Subscriptions, first_and_last

from qim_client import ActorClient, Conversation, GatewayClient, OperatorClient
from qim_client.answers import MembershipResult
from qim_client.values import Direction, Message, Outgoing
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_devkit.suite import Suite

CALL_SECONDS = 30.0
PAGE = 7
"""Small, so that pages begin and end on both sides of what is still in Redis."""

Seqs = list[int]


def seqs(first: int, last: int) -> Seqs:
    """All seqs from `first` to `last`."""
    return list(range(first, last + 1))


class Person:
    """One person."""

    def __init__(self, stage: Stage) -> None:
        self.user = UserId(uuid7())
        self.client = self.on_another_device(stage)
        self.live = Subscriber(acknowledges=True)
        self._pulled: dict[ConversationId, Seqs] = {}

    def on_another_device(self, stage: Stage) -> ActorClient:
        """Calls on a device that has pulled nothing yet."""
        return stage.gateway.as_actor(stage.tenant, self.user, DeviceId(uuid7()))

    async def history(self, group: ConversationId) -> list[Message]:
        """All that the person may read, in small pages; both directions tell the same."""
        older = await pages(self.client, group, Direction.OLDER)
        newer = await pages(self.client, group, Direction.NEWER)
        assert older[::-1] == newer
        return newer

    async def readable(self, group: ConversationId) -> Seqs:
        """The seqs of that; a single get of every seq up to the group's head agrees."""
        found = [message.seq for message in await self.history(group)]
        asked = seqs(1, max(found, default=0) + 20)
        answered = await self.client.get_messages(group, asked)
        assert sorted(message.seq for message in answered.messages) == found
        return found

    async def delivered(self, group: ConversationId) -> Seqs:
        """What the pulling device has received so far, each seq once, withheld ones included."""
        pulled = await pull_all(self.client)
        for conversation, found in pulled.items():
            before = self._pulled.setdefault(conversation, [])
            assert not before or found[0] > before[-1], "delivered again"
            before += found
        return self._pulled.get(group, [])

    async def told_live(self, group: ConversationId, newest: int) -> Seqs:
        """What the attached device was told, once the seq `newest` has come."""
        await self.live.until(lambda: bool(found := self.live.ranges(group)) and found[-1][1] >= newest)
        assert self.live.fault == ""
        return [seq for first, last in self.live.ranges(group) for seq in seqs(first, last)]

    async def entry(self, group: ConversationId) -> Conversation:
        """The conversation's entry in the person's list, once it is there."""
        found: list[Conversation] = []

        async def listed() -> bool:
            found[:] = [entry async for entry in self.client.conversations() if entry.conversation == group]
            return bool(found)

        await until(listed)
        return found[0]


async def pages(client: ActorClient, group: ConversationId, direction: Direction) -> list[Message]:
    """A whole history in small pages."""
    found: list[Message] = []
    from_seq = 0
    while True:
        page = await client.pull_history(group, from_seq=from_seq, direction=direction, limit=PAGE)
        found += page.messages
        if not page.next_from_seq:
            return found
        from_seq = page.next_from_seq


async def pull_all(client: ActorClient) -> dict[ConversationId, Seqs]:
    """Everything that waits in a device's mailbox, by conversation; it is acknowledged."""
    found: dict[ConversationId, Seqs] = {}
    page = await client.pull_mailbox(limit=1000)
    while page.entries:
        for entry in page.entries:
            found.setdefault(entry.conversation, []).extend(seqs(*first_and_last(entry)))
        cursors = {entry.conversation: entry.cursor for entry in page.entries}
        page = await client.pull_mailbox(ack=list(cursors.values()), limit=1000)
    return found


@dataclass(frozen=True)
class Stage:
    """The running suite, its clients, and what lies below it."""

    suite: Suite
    gateway: GatewayClient
    operator: OperatorClient
    subscriptions: Subscriptions
    below: Below
    projection: Projection

    @property
    def tenant(self) -> TenantId:
        """The suite's own."""
        return TenantId(self.suite.tenants[0])

    async def people(self, count: int) -> list[Person]:
        """New ones; each has a device attached."""
        made = [Person(self) for _ in range(count)]
        await asyncio.gather(
            *(self.subscriptions.attach(0, one.on_another_device(self).actor, one.live) for one in made)
        )
        return made

    async def group(self, owner: Person, *members: Person) -> ConversationId:
        """A new group with default settings."""
        return (await owner.client.create_group([member.user for member in members])).group

    async def send(self, sender: Person, group: ConversationId, count: int) -> Seqs:
        """Send so many messages and wait until Redis holds none of them that may leave it; their seqs."""
        items = [Outgoing(sender.client.actor, b"message %d" % number, group) for number in range(count)]
        async with self.gateway.open_stream() as stream:
            outcomes = await stream.send(items)
        await self.below.cold(self.tenant, group)
        return [outcome.sent.seq for outcome in outcomes if outcome.sent is not None]

    async def add(self, group: ConversationId, *people: Person) -> MembershipResult:
        """Let an operator add people."""
        return await self.operator.add_members(group, [person.user for person in people])

    async def remove(self, group: ConversationId, *people: Person) -> MembershipResult:
        """Let an operator remove people."""
        return await self.operator.remove_members(group, [person.user for person in people])

    async def lose_the_projection(self, people: Sequence[Person]) -> None:
        """The session service dies, and its projection and checkpoints are gone when it comes back."""
        await self.suite.kill("session")
        await self.projection.wipe([person.user for person in people])
        await self.suite.restart("session")


@asynccontextmanager
async def opened(suite: Suite) -> AsyncIterator[Stage]:
    """The clients of a running suite."""
    tenant = TenantId(suite.tenants[0])
    addresses = suite.addresses
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            GatewayClient(addresses["writer"], addresses["session"], suite.gateway_files(), timeout=CALL_SECONDS)
        )
        operator = await stack.enter_async_context(
            OperatorClient(addresses["admin"], suite.operator_files(), tenant, timeout=CALL_SECONDS)
        )
        subscriptions = await stack.enter_async_context(Subscriptions([gateway]))
        below = await stack.enter_async_context(Below(suite))
        projection = await stack.enter_async_context(Projection(suite, tenant))
        yield Stage(suite, gateway, operator, subscriptions, below, projection)
