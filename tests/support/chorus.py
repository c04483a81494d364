"""Many clients that send into the same conversations at the same time, and what was acknowledged to them.

In what order the messages of one conversation were committed is told by their seqs. Each client repeats a message with
its id until it is acknowledged; nothing is repeated for it underneath, so that `troubles` has everything that went
wrong on the way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tests.model.lanes import new_people
from tests.model.world import TENANT, World
from tests.support.ledger import NOT_NOW, SETTLE_SECONDS

from qim_client import GatewayClient, actor
from qim_client.answers import SendOutcome, Sent
from qim_client.retry import RetryPolicy
from qim_client.values import Direction, Message, Outgoing
from qim_common.errors import QimError
from qim_common.ids import ConversationId, UserId

FRAME: Final = 8
ONCE: Final = RetryPolicy(max_attempts=1)


@dataclass(frozen=True)
class Sung:
    """One acknowledged message."""

    item: Outgoing
    sent: Sent


class Chorus:
    """Senders in groups with these ids; in each of them each sends frames of eight messages, `pace` seconds apart."""

    def __init__(self, world: World, groups: Sequence[ConversationId], *, singers: int = 3, pace: float = 0.3) -> None:
        self.world = world
        self.acknowledged: dict[ConversationId, dict[bytes, Sung]] = {}
        self.troubles: Counter[str] = Counter()
        self.retry_after: dict[str, timedelta | None] = {}
        self.people: list[UserId] = new_people(singers)
        self.groups = tuple(groups)
        self._pace = pace
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        """How many messages were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    async def create(self) -> None:
        """The groups, all of them with everybody."""
        for group in self.groups:
            await self.world.person(self.people[0]).create_group(self.people, group=group)
            self.acknowledged[group] = {}

    @asynccontextmanager
    async def singing(self) -> AsyncIterator[None]:
        """Everybody sends inside of the context; on leaving, all that was begun is acknowledged."""
        if not self.acknowledged:
            await self.create()
        self._ending.clear()
        async with self._client() as client:
            self._tasks = [
                asyncio.create_task(self._sing(client, who, group))
                for who in self.people
                for group in self.acknowledged
            ]
            try:
                yield
            finally:
                self._ending.set()
                async with asyncio.timeout(SETTLE_SECONDS):
                    await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Waits for so many further acknowledgements; raises what ended a sender."""
        wanted = self.count + count
        async with asyncio.timeout(SETTLE_SECONDS):
            while self.count < wanted:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)  # acknowledgements come many at once

    async def more_in(self, groups: Collection[ConversationId], count: int) -> None:
        """Waits until so many more are acknowledged in these groups, whatever becomes of the others."""

        def there() -> int:
            return sum(len(self.acknowledged[group]) for group in groups)

        wanted = there() + count
        async with asyncio.timeout(SETTLE_SECONDS):
            while there() < wanted:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.01)

    def forget_after(self, heads: Mapping[ConversationId, int]) -> list[Sung]:
        """The operator accepted a loss: what was acknowledged after these heads is gone. Answers what that was."""
        lost: list[Sung] = []
        for group, head in heads.items():
            kept = {key: sung for key, sung in self.acknowledged[group].items() if sung.sent.seq <= head}
            lost += [sung for key, sung in self.acknowledged[group].items() if key not in kept]
            self.acknowledged[group] = kept
        return lost

    async def refusal_in(self, group: ConversationId) -> str:
        """Why nobody can send there now."""
        item = Outgoing(actor(TENANT, self.people[0]), b"refused", conversation=group)
        try:
            async with self._client() as client:
                await client.as_actor(TENANT, self.people[0]).send(item)
        except QimError as error:
            return str(error.reason or error.code.name)
        return ""

    def _client(self) -> GatewayClient:
        suite = self.world.suite
        addresses = suite.addresses
        return GatewayClient(addresses["writer"], addresses["session"], suite.gateway_files(), timeout=5.0, policy=ONCE)

    async def until_trouble(self, reason: str = "") -> None:
        """Waits until somebody was refused for this reason, or for any."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while not (reason in self.troubles if reason else self.troubles):  # noqa: ASYNC110  as above
                await asyncio.sleep(0.01)

    async def _sing(self, client: GatewayClient, who: UserId, group: ConversationId) -> None:
        number = 0
        async with client.open_stream() as stream:
            while not self._ending.is_set():
                items: list[Outgoing] = []
                for _ in range(FRAME):
                    number += 1
                    items.append(Outgoing(actor(TENANT, who), b"%d of %s" % (number, who[:4].hex().encode()), group))
                while items:
                    items = self._note(items, await stream.send(items))
                    await asyncio.sleep(0.1 if items else self._pace)

    def _note(self, items: list[Outgoing], outcomes: Sequence[SendOutcome]) -> list[Outgoing]:
        left: list[Outgoing] = []
        for item, told in zip(items, outcomes, strict=True):
            sent, error = told.sent, told.error
            if sent is not None:
                self.acknowledged[sent.conversation][item.client_message_id] = Sung(item, sent)
            elif error is not None and error.code in NOT_NOW:
                reason = str(error.reason or error.code.name)
                self.troubles[reason] += 1
                self.retry_after[reason] = error.retry_after
                left.append(item)
            else:
                raise error or AssertionError("neither answered nor refused")
        return left

    async def histories(self, direction: Direction = Direction.OLDER) -> dict[ConversationId, list[Message]]:
        """All groups as the last of the people reads them."""
        person = self.world.person(self.people[-1])
        return {
            group: [message async for message in person.history(group, direction=direction)]
            for group in self.acknowledged
        }

    async def check(self) -> None:
        """Seqs without a gap, each acknowledged message once where it was acknowledged to be, and no other."""
        backwards, forwards = await asyncio.gather(self.histories(), self.histories(Direction.NEWER))
        for group, acknowledged in self.acknowledged.items():
            history = forwards[group]
            assert backwards[group] == history[::-1], "both ways tell the same"
            assert [message.seq for message in history] == list(range(1, len(history) + 1))
            there = {_told(message) for message in history}
            assert len(there) == len(history)
            assert len(acknowledged) == len(history), "one acknowledgement for each message"
            wanted = {_acknowledged(sung) for sung in acknowledged.values()}
            assert there == wanted, (
                f"missing {sorted(wanted - there, key=lambda one: one[1])[:5]}, "
                f"not acknowledged {sorted(there - wanted, key=lambda one: one[1])[:5]}"
            )
        for who in self.people:
            await self._check_entries(who)

    async def _check_entries(self, who: UserId) -> None:
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                page = await self.world.person(who).list_conversations()
                told = {e.conversation: (e.head_seq, e.unread_count) for e in page.conversations}
                wanted = {
                    group: (len(sung), sum(one.item.actor.user != who for one in sung.values()))
                    for group, sung in self.acknowledged.items()
                }
                if told == wanted:
                    return
                assert told.keys() <= wanted.keys()
                for group, (head, unread) in told.items():
                    assert head <= wanted[group][0], "a head beyond the history"
                    assert unread <= wanted[group][1]
                await asyncio.sleep(0.02)  # the lists follow the log


def _told(message: Message) -> tuple[bytes, int, int, int, int, bytes, UserId]:
    return (
        message.client_message_id,
        message.seq,
        message.time_ms,
        message.membership_version,
        message.generation,
        message.body,
        message.sender,
    )


def _acknowledged(sung: Sung) -> tuple[bytes, int, int, int, int, bytes, UserId]:
    item, sent = sung.item, sung.sent
    return (
        item.client_message_id,
        sent.seq,
        sent.time_ms,
        sent.membership_version,
        sent.generation,
        item.body,
        item.actor.user,
    )
