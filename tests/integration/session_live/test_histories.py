"""Histories of people who write, come, go, detach and resume: what came live is exactly what the mailbox holds."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.integration.session_live.conftest import TENANT, Person
from tests.support.live import LiveReader
from tests.support.members import Operators

from qim_client import ActorClient, Attached, Attachment, Delivered, GatewayClient
from qim_common.errors import PermissionDenied
from qim_common.ids import ConversationId, DeviceId, uuid7

pytestmark = pytest.mark.server
STEPS = 500


@dataclass
class Device:
    """One device that comes and goes on both replicas, and acknowledges some of what it gets."""

    client: ActorClient
    readers: list[LiveReader]
    chance: random.Random
    at: LiveReader | None = None
    attachment: Attachment | None = None
    token: str = ""
    past: list[tuple[LiveReader, Attachment]] = field(default_factory=list)

    async def come(self) -> None:
        """Attach, sometimes as if the token had been lost."""
        self.at = self.chance.choice(self.readers)
        token = self.token if self.chance.random() < 0.7 else ""
        self.attachment = await self.at.subscription.attach(self.client.actor, token)
        self.past.append((self.at, self.attachment))

    async def go(self) -> None:
        """Acknowledge a part of what came, and detach."""
        assert self.at is not None
        assert self.attachment is not None
        came = self.at.of(self.attachment, Delivered)
        if came and self.chance.random() < 0.7:
            await self.attachment.acknowledge_many(
                event.cursor for event in came[: self.chance.randrange(len(came)) + 1]
            )
        self.token = (await self.at.detach(self.attachment)).resume_token
        self.attachment = None

    def seqs(self, group: ConversationId) -> set[int]:
        """Everything that ever came."""
        return {seq for reader, attachment in self.past for seq in reader.seqs(attachment, group)}


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_device_gets_exactly_what_was_delivered_to_its_person(
    gateway: GatewayClient,
    person: Person,
    live: LiveReader,
    elsewhere: LiveReader,
    operator: Operators,
    seed: int,
) -> None:
    chance = random.Random(seed)  # noqa: S311  no secret
    owner, people = person(), [person() for _ in range(4)]
    groups = [(await owner.create_group([one.actor.user for one in people[:2]])).group for _ in range(3)]
    devices = [
        Device(gateway.as_actor(TENANT, one.actor.user, DeviceId(uuid7())), [live, elsewhere], chance)
        for one in (owner, *people)
        for _ in range(2)
    ]

    async def write() -> None:
        for _ in range(STEPS):
            group, one = chance.choice(groups), chance.choice(people)
            with suppress(PermissionDenied):  # who writes or leaves may be outside
                match chance.randrange(12):
                    case 0:
                        await operator.add(group, [one.actor.user])
                    case 1:
                        await operator.remove(group, [one.actor.user])
                    case 2:
                        await one.leave_group(group)
                    case 3:
                        await owner.send_to(group, b"x" * 6_000)
                    case 4:
                        await one.send_to(group, b"mine")
                    case _:
                        await owner.send_to(group, b"more")

    writing = asyncio.create_task(write())
    while not writing.done():
        device = chance.choice(devices)
        if device.attachment is None:
            await device.come()
        elif chance.random() < 0.5:
            await device.go()
        else:
            await asyncio.wait([writing], timeout=0.02)
    await writing
    for device in devices:
        if device.attachment is not None:
            await device.go()
        await device.come()
    for device in devices:
        await expect_all(device, groups, gateway)


async def expect_all(device: Device, groups: list[ConversationId], gateway: GatewayClient) -> None:
    fresh = gateway.as_actor(TENANT, device.client.actor.user, DeviceId(uuid7()))
    reader, attachment = device.past[-1]
    await reader.until(lambda: bool(reader.of(attachment, Attached)))
    held: dict[ConversationId, list[int]] = defaultdict(list)
    for entry in (await fresh.pull_mailbox(limit=1000)).entries:
        first = entry.withheld.first if entry.withheld is not None else entry.cursor.seq
        held[entry.conversation] += range(first, entry.cursor.seq + 1)
    for group in groups:
        assert device.seqs(group) == set(held[group])
        for where, past in device.past:
            seqs = where.seqs(past, group)
            assert seqs == sorted(set(seqs)), "in order, and once"
