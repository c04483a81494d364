"""Load that remembers what it was told: every message, change and leave with its id, until it is acknowledged.

Everything is repeated with the same ids until an answer comes, as a gateway does; afterwards `check` compares what was
acknowledged with what is there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import grpc
from tests.support.writers import ANA, Writers, acting, person, until

from qim.membership.v1 import membership_pb2
from qim_client.gateway import GatewayClient
from qim_client.retry import RetryPolicy
from qim_client.sending import SendStream
from qim_client.values import Message, Outgoing
from qim_common.errors import QimError, from_rpc_error
from qim_common.ids import ConversationId, UserId, uuid7

PATIENT: Final = RetryPolicy(max_attempts=1_000, first_delay=0.02, longest_delay=0.2)
IMPATIENT: Final = RetryPolicy(max_attempts=1)
SECONDS: Final = 60.0


class Load:
    """Senders and changers of some groups; `acknowledged` maps message ids to (group, seq, body)."""

    def __init__(self, writers: Writers, client: GatewayClient, groups: list[ConversationId]) -> None:
        self.writers = writers
        self.groups = groups
        self.acknowledged: dict[bytes, tuple[ConversationId, int, bytes]] = {}
        self.changes: dict[ConversationId, list[tuple[int, int]]] = {group: [] for group in groups}
        self.unnamed: list[str] = []
        self._client = client
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, senders: int, changing: bool = True) -> None:
        """Begins to send and, in the first two groups, to add and remove people."""
        stream = self._client.open_stream()
        self._tasks = [asyncio.create_task(self._send(stream, number)) for number in range(senders)]
        if changing:
            self._tasks += [asyncio.create_task(self._change(group)) for group in self.groups[:2]]

    async def more(self, count: int = 200) -> None:
        """Waits for so many further acknowledgements; fails where a task has failed."""
        goal = len(self.acknowledged) + count

        def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.acknowledged) >= goal

        await until(reached)

    async def stop(self) -> None:
        """No new work; returns when everything that was begun is acknowledged."""
        self._ending.set()
        await asyncio.gather(*self._tasks)

    async def _send(self, stream: SendStream, number: int) -> None:
        sent = 0
        while not self._ending.is_set():
            items = []
            for _ in range(8):
                group = self.groups[sent % len(self.groups)]
                items.append(Outgoing(acting(ANA), b"%d of %d" % (sent, number), conversation=group))
                sent += 1
            left = items
            while left:
                outcomes = dict(zip((item.client_message_id for item in left), await stream.send(left), strict=True))
                for item in left:
                    told = outcomes[item.client_message_id]
                    if told.sent is not None and item.conversation is not None:
                        self.acknowledged[item.client_message_id] = (item.conversation, told.sent.seq, item.body)
                    elif told.error is not None:
                        self._failed(told.error)
                left = [item for item in left if item.client_message_id not in self.acknowledged]

    async def _change(self, group: ConversationId) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            used = uuid7()
            answer: membership_pb2.MembershipVersion | None = None
            while answer is None:
                try:
                    answer = await self.writers.change(
                        group, [person(number // 2)], remove=number % 2 == 1, request_id=used
                    )
                except grpc.aio.AioRpcError as error:
                    failure = from_rpc_error(error)  # also of a call that a server dropped as it ended
                    if failure.code is grpc.StatusCode.UNAVAILABLE:
                        await asyncio.sleep(0.02)  # the pause of a retry
                        continue
                    if failure.reason != "MEMBERSHIP_CHANGED":
                        raise
            if answer.seq:
                self.changes[group].append((answer.version, answer.seq))

    def _failed(self, error: QimError) -> None:
        if not error.reason and error.code is not grpc.StatusCode.UNAVAILABLE:
            self.unnamed.append(repr(error))

    async def check(self) -> None:
        """Nothing acknowledged is missing, nothing is there twice, no seq is used again, and none is left out."""
        assert self.unnamed == []
        there: dict[bytes, tuple[ConversationId, int, bytes]] = {}
        ids: Counter[bytes] = Counter()
        for group in self.groups:
            history: list[Message] = [each async for each in self.writers.user(ANA).history(group)]
            assert [each.seq for each in history] == list(range(len(history), 0, -1))
            ordinary = [each for each in history if each.event is None]
            ids.update(each.client_message_id for each in ordinary)
            there |= {each.client_message_id: (group, each.seq, each.body) for each in ordinary}
            events = [(each.membership_version, each.seq) for each in reversed(history) if each.event]
            assert events == self.changes[group]
        assert there == self.acknowledged
        assert not ids or max(ids.values()) == 1


@asynccontextmanager
async def load(
    writers: Writers,
    *,
    groups: int = 6,
    senders: int = 6,
    members: Sequence[UserId] = (),
    policy: RetryPolicy = PATIENT,
) -> AsyncIterator[Load]:
    """Running load on new groups of Ana's with these members; it is ended and checked on leaving."""
    made = [(await writers.user(ANA).create_group(members)).group for _ in range(groups)]
    async with writers.client(timeout=SECONDS, policy=policy) as client:
        running = Load(writers, client, made)
        running.start(senders=senders)
        try:
            yield running
        finally:
            await running.stop()
        await running.check()
