"""A person with very many conversations: how long a page of the list takes, and on which process.

Everything goes through the public API of a real suite over mTLS, one call at a time; the latency is the gateway's, from
the call to the parsed answer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.child import LoadFailed
from bench.figures import Latency, latency_of, per_message
from bench.processes import CpuWindow
from bench.rig import BODY_BYTES, TENANT
from qim.session.v1 import session_pb2, session_pb2_grpc
from qim_client.frames import MAX_FRAME_ITEMS
from qim_client.gateway import GatewayClient, actor
from qim_client.services import Services
from qim_client.values import Outgoing
from qim_common.identity import ACTOR_KEY
from qim_common.ids import ConversationId, UserId, uuid7
from qim_devkit.suite import Suite

CONVERSATIONS: Final = 5_000
MESSAGES: Final = 3
"""In each conversation, all from others."""

PAGE_SIZES: Final = (50, 200)
PAGE_BOUND_MS: Final = 5.0

_COLLEAGUES: Final = 50
_AT_ONCE: Final = 32
_SETTLE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_IDLE_SECONDS: Final = 0.5
_IDLE_CORES: Final = 0.15
_CALL_SECONDS: Final = 20.0

Tell = Callable[[str], None]
"""Hears in a few words what is being done."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Many calls of one kind, one after the other.

    Attributes:
        call: what was asked for.
        latency: at the gateway.
        cpu_ms: milliseconds of CPU a call, user and system, by process.
    """

    call: str
    calls: int
    latency: Latency
    cpu_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class ListReport:
    """The figures, and whether every pass over the list showed everything once and the total was right."""

    conversations: int
    times: Sequence[CallTimes]
    faults: list[str]


async def lists(tell: Tell, *, quick: bool) -> ListReport:
    """Measures every page of some passes over the whole list. Raises SuiteError, LoadFailed, QimError."""
    conversations, rounds, totals = (1_000, 2, 5) if quick else (CONVERSATIONS, 5, 30)
    tell(f"lists: making {conversations:,} conversations")
    async with _listing(conversations) as listing:
        times = []
        for size in PAGE_SIZES:
            tell(f"lists: pages of {size}")
            times.append(await listing.pages(size, rounds))
        times.append(await listing.totals(totals))
        return ListReport(conversations, times, listing.faults)


class _Listing:
    """One person's list, read as a gateway reads it."""

    def __init__(self, suite: Suite, stub: session_pb2_grpc.SessionStub, user: UserId, groups: set[bytes]) -> None:
        self.faults: list[str] = []
        self._suite = suite
        self._stub = stub
        self._groups = groups
        self._metadata = ((ACTOR_KEY, actor(TENANT, user).to_message().SerializeToString()),)

    async def settle(self) -> None:
        """Wait until the list shows every message, and the services have nothing left to do. Raises LoadFailed."""
        end = time.perf_counter() + _SETTLE_SECONDS
        while True:
            pages = [page async for page, _ in self._read(1_000)]
            settled = sum(entry.head_seq == MESSAGES for page in pages for entry in page.conversations)
            if settled == len(self._groups):
                break
            if time.perf_counter() > end:
                raise LoadFailed(f"the list shows all messages of {settled} of {len(self._groups)} conversations")
            await asyncio.sleep(_LOOK_SECONDS)
        # The other members' lists come later.
        busy = 1.0
        while busy > _IDLE_CORES and time.perf_counter() < end:
            window = self._window()
            window.start()
            await asyncio.sleep(_IDLE_SECONDS)
            cpu, passed = window.stop()
            busy = sum(cpu.values()) / passed

    async def pages(self, size: int, rounds: int) -> CallTimes:
        """Passes over the whole list in pages of `size`."""
        seconds: list[float] = []
        window = self._window()
        window.start()
        for _ in range(rounds):
            seen: list[bytes] = []
            async for page, taken in self._read(size):
                seconds.append(taken)
                seen += [entry.conversation_id for entry in page.conversations]
            if len(seen) != len(self._groups) or set(seen) != self._groups:
                self.faults.append(f"pages of {size} showed {len(seen)} entries, {len(set(seen))} distinct")
        cpu, _ = window.stop()
        return _times(f"ListConversations, {size} a page", seconds, cpu)

    async def totals(self, calls: int) -> CallTimes:
        """The total of unread, over all conversations."""
        seconds: list[float] = []
        window = self._window()
        window.start()
        for _ in range(calls):
            begun = time.perf_counter()
            answer = await self._stub.GetTotalUnread(
                session_pb2.GetTotalUnreadRequest(), metadata=self._metadata, timeout=_CALL_SECONDS
            )
            seconds.append(time.perf_counter() - begun)
            if answer.unread_count != MESSAGES * len(self._groups):
                self.faults.append(f"the total of unread is {answer.unread_count}")
        cpu, _ = window.stop()
        return _times("GetTotalUnread", seconds, cpu)

    async def _read(self, size: int) -> AsyncIterator[tuple[session_pb2.ListConversationsResponse, float]]:
        token = ""
        while True:
            request = session_pb2.ListConversationsRequest(page_size=size, page_token=token)
            begun = time.perf_counter()
            page = await self._stub.ListConversations(request, metadata=self._metadata, timeout=_CALL_SECONDS)
            yield page, time.perf_counter() - begun
            if not (token := page.next_page_token):
                return

    def _window(self) -> CpuWindow:
        pids = {name: [self._suite.pid(name)] for name in ("session", "writer")}
        return CpuWindow({**pids, "redis": [self._suite.pid(name) for name in self._suite.valkey_names]})


def _times(call: str, seconds: Sequence[float], cpu: dict[str, float]) -> CallTimes:
    cpu_ms = {name: round(us / 1e3, 2) for name, us in per_message(cpu, len(seconds)).items()}
    return CallTimes(call, len(seconds), latency_of(seconds), cpu_ms)


@asynccontextmanager
async def _listing(conversations: int) -> AsyncIterator[_Listing]:
    """Starts everything, makes the conversations, and waits until the list shows them."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="qim-bench-"))
        suite = Suite(Path(directory), valkeys=1, services=("writer", "session"))
        await stack.enter_async_context(suite)
        writer, session, files = suite.addresses["writer"], suite.addresses["session"], suite.gateway_files()
        client = await stack.enter_async_context(GatewayClient(writer, session, files))
        services = Services(writer, session, files)
        stack.push_async_callback(services.close)
        user = UserId(uuid7())
        groups = await _make(client, user, conversations)
        listing = _Listing(suite, services.session.stub(), user, set(groups))
        await listing.settle()
        yield listing


async def _make(client: GatewayClient, user: UserId, count: int) -> list[ConversationId]:
    """Groups of this person and two colleagues, with messages of the colleagues in a random order."""
    choose = random.Random(7)  # noqa: S311  no secret
    colleagues = [UserId(uuid7()) for _ in range(_COLLEAGUES)]
    owners = [choose.sample(colleagues, 2) for _ in range(count)]
    groups: list[ConversationId] = []
    for start in range(0, count, _AT_ONCE):
        calls = (
            client.as_actor(TENANT, owner).create_group([user, other], timeout=_CALL_SECONDS)
            for owner, other in owners[start : start + _AT_ONCE]
        )
        groups += [created.group for created in await asyncio.gather(*calls)]
    senders = [
        (group, person)
        for group, pair in zip(groups, owners, strict=True)
        for person in itertools.islice(itertools.cycle(pair), MESSAGES)
    ]
    choose.shuffle(senders)
    stream = client.open_stream()
    for start in range(0, len(senders), MAX_FRAME_ITEMS):
        batch = [
            Outgoing(actor(TENANT, person), choose.randbytes(BODY_BYTES), conversation=group)
            for group, person in senders[start : start + MAX_FRAME_ITEMS]
        ]
        for outcome in await stream.send(batch, timeout=_CALL_SECONDS):
            if outcome.error is not None:
                raise outcome.error
    await stream.close()
    return groups
