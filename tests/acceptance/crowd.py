"""Senders and membership changes of one group at the same time, and the fold of what was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.acceptance.stage import Person, Stage, pull_all

from qim_client.answers import Sent
from qim_client.values import Message, Outgoing
from qim_common.errors import MembershipChanged, PermissionDenied
from qim_common.ids import ConversationId, MembershipOp

FRAME = 8


class Crowd:
    """A group with one who stays (the owner) and comers who come and go while everybody sends.

    Parameters:
        senders: members who never leave; the first sends many at a time, the second to a frozen version.
        comers: join and leave again and again, by operators' calls and their own, and send whenever they are inside.
    """

    def __init__(self, stage: Stage, owner: Person, senders: Sequence[Person], comers: Sequence[Person]) -> None:
        self._stage = stage
        self._owner = owner
        self._senders = senders
        self._comers = comers
        self._sent: list[Sent] = []
        self._overtaken = 0
        self._ended = asyncio.Event()
        self._group: ConversationId

    async def play(self, rounds: int) -> None:
        """Each comer joins and leaves `rounds` times, and the others send until then."""
        self._group = await self._stage.group(self._owner, *self._senders)
        many, careful = self._senders
        senders = [asyncio.create_task(self._send_many(many)), asyncio.create_task(self._send_frozen(careful))]
        comers = [asyncio.create_task(self._come_and_go(comer, rounds)) for comer in self._comers]
        try:
            await asyncio.gather(*comers)
        finally:
            self._ended.set()
            await asyncio.gather(*senders)

    async def check(self) -> None:
        """Each message reached exactly the members at the moment its seq was allocated."""
        await self._stage.below.cold(self._stage.tenant, self._group)
        history = await self._owner.history(self._group)
        assert [message.seq for message in history] == list(range(1, len(history) + 1)), "a refused send took a seq"
        ordinary = {message.seq: message for message in history if message.event is None}
        acknowledged = [(sent.seq, sent.membership_version) for sent in sorted(self._sent, key=lambda one: one.seq)]
        assert acknowledged == [(seq, message.membership_version) for seq, message in ordinary.items()]
        assert self._overtaken > 0, "no send met a change"
        inside = self._fold(history)
        for person in (self._owner, *self._senders, *self._comers):
            received = [message.seq for message in history if person.user in inside[message.seq]]
            assert await person.delivered(self._group) == received
            assert await person.told_live(self._group, received[-1]) == received
            late = await pull_all(person.on_another_device(self._stage))
            assert late[self._group] == received

    def _fold(self, history: Sequence[Message]) -> dict[int, set[bytes]]:
        """Who received each seq: who was inside then, or was changed by it; and each record's version."""
        members: set[bytes] = {self._owner.user, *(sender.user for sender in self._senders)}
        received: dict[int, set[bytes]] = {}
        version = 1
        for message in history:
            changed: set[bytes] = set()
            if message.event is not None:
                changed = set(message.event.people)
                joined = message.event.op is MembershipOp.JOIN
                assert changed.isdisjoint(members) if joined else changed <= members
                members = members | changed if joined else members - changed
                version += 1
            assert message.membership_version == version
            received[message.seq] = members | changed
        return received

    async def _send_many(self, sender: Person) -> None:
        async with self._stage.gateway.open_stream() as stream:
            while not self._ended.is_set():
                items = [Outgoing(sender.client.actor, b"many", conversation=self._group) for _ in range(FRAME)]
                for outcome in await stream.send(items):
                    assert outcome.sent is not None, outcome.error
                    self._sent.append(outcome.sent)

    async def _send_frozen(self, sender: Person) -> None:
        """At the version at which the person froze the delivery, as a back end may, and again where it has passed."""
        while not self._ended.is_set():
            frozen = await sender.client.freeze_delivery(self._group)
            item = Outgoing(
                sender.client.actor,
                b"frozen",
                conversation=self._group,
                expected_version=frozen.membership_version,
            )
            try:
                sent = await sender.client.send(item)
            except MembershipChanged:
                self._overtaken += 1
            else:
                assert sent.membership_version == frozen.membership_version
                self._sent.append(sent)

    async def _come_and_go(self, comer: Person, rounds: int) -> None:
        for number in range(rounds):
            await self._stage.add(self._group, comer)
            sending = asyncio.create_task(self._send_until_outside(comer))
            if number % 2:
                await comer.client.leave_group(self._group)
            else:
                await self._stage.remove(self._group, comer)
            await sending

    async def _send_until_outside(self, comer: Person) -> None:
        """Races with the end of the stay: it is accepted before it, or refused."""
        for _ in range(FRAME):
            try:
                self._sent.append(await comer.client.send_to(self._group, b"racing"))
            except PermissionDenied:
                return
