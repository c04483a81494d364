"""Plays the hiking group through the public API: one group per policy, side by side, with the same people in each.

End users act through a gateway's certificate; Cara and Ben are added by a back end through the admin service, which
names Ana as the one who asked for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from qim_client import ActorClient, GatewayClient, GroupDetails, OperatorClient, Outgoing, SendStream
from qim_client.names import device_id, user_id
from qim_common.errors import PermissionDenied
from qim_common.ids import ConversationId, TenantId
from qim_devkit.demo.chapter import ANA, BEN, CARA, POLICIES, SCRIPT, Policy, Stretch
from qim_devkit.demo.progress import Loading
from qim_devkit.demo.reading import look
from qim_devkit.demo.sights import Played, Sight

TENANT: Final = TenantId(1)
BATCH: Final = 128
"""Messages in a frame."""

CALL_SECONDS: Final = 30.0
"""The deadline of every call: generous, so that a busy machine makes the demo slow and not wrong."""

NEW_PHONE: Final = "new phone"


@dataclass(slots=True)
class _Group:
    """One group on the stage; the play notes down what the services answer."""

    policy: Policy
    id: ConversationId
    members: list[int] = field(default_factory=list)
    left: int = 0
    joined: int = 0
    returned: int = 0
    refusal: str = ""
    after_refusal: int = 0


@dataclass(frozen=True, slots=True)
class Performance:
    """All groups' plays, and how long it took to commit `messages` and `changes`."""

    played: tuple[Played, ...]
    messages: int
    changes: int
    seconds: float


class Stage:
    """The clients with which the play is played."""

    def __init__(self, gateway: GatewayClient, backend: OperatorClient, stream: SendStream, loading: Loading) -> None:
        self._gateway = gateway
        self._backend = backend
        self._stream = stream
        self._loading = loading

    async def play(self, policies: Sequence[Policy] = POLICIES) -> Performance:
        """The whole play, up to what everybody sees in the end.

        Raises the QimError of a call that is refused, and NotListedError.
        """
        self._loading.playing("Playing three groups side by side: Ben leaves, Cara joins")
        began = time.monotonic()
        groups = await asyncio.gather(*(self._found(policy) for policy in policies))
        await asyncio.gather(*(self._until_ben_is_away(group) for group in groups))
        seconds = time.monotonic() - began
        self._loading.step("Looking through the eyes of Ben, who is away")
        details = await self._details(groups)
        ben_away = await self._look(BEN, "Ben, away", details, phone=NEW_PHONE)
        self._loading.playing("Playing on: Ben returns")
        began = time.monotonic()
        await asyncio.gather(*(self._until_the_end(group) for group in groups))
        seconds += time.monotonic() - began
        self._loading.step("Looking through the eyes of Ana, Ben and Cara")
        details = await self._details(groups)
        ana, ben, cara = await asyncio.gather(
            self._look(ANA, ANA, details),
            self._look(BEN, "Ben, back", details),
            self._look(CARA, CARA, details),
        )
        played = tuple(map(_played, groups, details, ana, ben_away, ben, cara))
        messages = len(groups) * sum(stretch.messages for stretch in SCRIPT.stretches)
        return Performance(played, messages, 3 * len(groups), seconds)

    async def _found(self, policy: Policy) -> _Group:
        people = [user_id(name) for name in (BEN, *SCRIPT.hikers)]
        created = await self._as(ANA).create_group(people, settings=policy.settings)
        return _Group(policy, created.group, [created.member_count])

    async def _until_ben_is_away(self, group: _Group) -> None:
        await self._send(group, SCRIPT.together)
        group.left = (await self._as(BEN).leave_group(group.id)).member.left_at
        group.members.append(await self._count(group))
        try:
            await self._as(BEN).send_to(group.id, b"one last thing")
        except PermissionDenied as error:
            group.refusal = str(error.reason)
        group.after_refusal = await self._send(group, SCRIPT.ben_gone)
        group.joined = await self._add(group, CARA)
        await self._send(group, SCRIPT.cara_there)

    async def _until_the_end(self, group: _Group) -> None:
        group.returned = await self._add(group, BEN)
        await self._send(group, SCRIPT.ben_back)

    async def _send(self, group: _Group, stretch: Stretch) -> int:
        """Commits a stretch; the seq of its first message."""
        people = {name: self._as(name).actor for name in {stretch.opener, *stretch.speakers}}
        items = [
            Outgoing(people[name], f"{name} writes message {number}".encode(), conversation=group.id)
            for number, name in enumerate(stretch.senders(), 1)
        ]
        left = iter(items)
        batches = iter(lambda: list(islice(left, BATCH)), [])
        firsts = await asyncio.gather(*(self._send_batch(group, batch) for batch in batches))
        return firsts[0]

    async def _send_batch(self, group: _Group, batch: Sequence[Outgoing]) -> int:
        outcomes = await self._stream.send(batch, timeout=CALL_SECONDS)
        seqs = [outcome.result().seq for outcome in outcomes]
        self._loading.reached(group.policy, max(seqs))
        return seqs[0]

    async def _add(self, group: _Group, name: str) -> int:
        """Adds one person; the seq of the event."""
        result = await self._backend.add_members(group.id, [user_id(name)], initiator=user_id(ANA))
        group.members.append(await self._count(group))
        self._loading.reached(group.policy, result.seq)
        return result.seq

    async def _count(self, group: _Group) -> int:
        return (await self._backend.get_group(group.id)).member_count

    async def _details(self, groups: Sequence[_Group]) -> list[GroupDetails]:
        return await asyncio.gather(*(self._backend.get_group(group.id) for group in groups))

    async def _look(
        self, name: str, label: str, details: Sequence[GroupDetails], *, phone: str = "phone"
    ) -> list[Sight]:
        return await look(name, label, self._as(name, phone), details)

    def _as(self, name: str, phone: str = "phone") -> ActorClient:
        return self._gateway.as_actor(TENANT, user_id(name), device_id(f"{name}'s {phone}"))


def _played(group: _Group, details: GroupDetails, ana: Sight, ben_away: Sight, ben: Sight, cara: Sight) -> Played:
    at_first, after_leave, after_join, at_last = group.members
    return Played(
        policy=group.policy,
        members=(at_first, after_leave, after_join, at_last),
        left=group.left,
        joined=group.joined,
        returned=group.returned,
        head=details.head_seq,
        refusal=group.refusal,
        after_refusal=group.after_refusal,
        ana=ana,
        ben_away=ben_away,
        ben=ben,
        cara=cara,
    )
