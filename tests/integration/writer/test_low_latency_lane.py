"""The low-latency lane on the wire: what the session service is told, and that nothing depends on it (storage.md,
"Session"). The session service is played by a server that takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from tests.support.writers import ANA, BEN, CARA, DAN, TENANT, AnotherWriter, Writers, person, until

from qim.session.v1 import session_pb2, session_pb2_grpc
from qim_common.identity import Role, peer_from_auth_context
from qim_common.ids import ConversationId, direct_conversation_id
from qim_common.server.credentials import server_credentials
from qim_common.tls import PemFiles
from qim_devkit.ports import allocate

pytestmark = pytest.mark.server

Run = session_pb2.ProjectRequest.Run


class Notes(session_pb2_grpc.SessionServicer):
    """Takes notes of every call of Project, or refuses it."""

    def __init__(self) -> None:
        self.calls: list[list[session_pb2.ProjectRequest.Run]] = []
        self.peers: set[Role] = set()
        self.refuses = 0

    async def Project(  # noqa: N802
        self, request: session_pb2.ProjectRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> session_pb2.ProjectResponse:
        """See the proto."""
        self.peers.add(peer_from_auth_context(context.auth_context()).role)
        if self.refuses:
            self.refuses -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "not now")
        self.calls.append(list(request.runs))
        return session_pb2.ProjectResponse()

    def of(self, conversation: ConversationId) -> list[session_pb2.ProjectRequest.Run]:
        """All runs of a conversation."""
        return [run for call in self.calls for run in call if run.conversation_id == conversation]


@asynccontextmanager
async def taking_notes(writers: Writers, address: str) -> AsyncIterator[Notes]:
    """A session service that takes notes."""
    notes = Notes()  # type: ignore[abstract]  # the rest of the base class answers UNIMPLEMENTED
    files = writers.suite.pki.issue("session", "session-0")
    server = grpc.aio.server()
    session_pb2_grpc.add_SessionServicer_to_server(notes, server)
    server.add_secure_port(address, server_credentials(PemFiles(files.cert, files.key, (files.ca,))))
    await server.start()
    try:
        yield notes
    finally:
        await server.stop(None)


@asynccontextmanager
async def writer_with_lane(writers: Writers, **settings: str) -> AsyncIterator[tuple[str, Writers, AnotherWriter]]:
    """A writer of its own with a lane: the address of its session service, which does not run yet, and its callers."""
    (port,) = allocate(("session",), {}).values()
    address = f"127.0.0.1:{port}"
    async with writers.another(QIM_SESSION_ADDR=address, **settings) as process:
        beside = Writers(writers.suite, process.address)
        try:
            yield address, beside, process
        finally:
            await beside.close()


async def dropped(process: AnotherWriter) -> float:
    """Runs that the writer counts as dropped."""

    def page() -> str:
        with urlopen(f"http://{process.metrics}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    lines = (await asyncio.to_thread(page)).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("qim_writer_hints_dropped_total "))


async def test_the_session_service_hears_of_sends_changes_and_creations(writers: Writers) -> None:
    async with writer_with_lane(writers) as (address, beside, _), taking_notes(writers, address) as notes:
        created = await beside.user(ANA).create_group([BEN])
        changed = await beside.change(created.group, [CARA, DAN])
        sent = await beside.user(BEN).send_to(created.group, b"hello")
        written = await beside.user(ANA).send_to_person(BEN, b"hi")
        direct = direct_conversation_id(TENANT, ANA, BEN)
        await until(lambda: len(notes.of(created.group)) == 3 and len(notes.of(direct)) == 1)
        common: dict[str, Any] = {"tenant_id": TENANT, "conversation_id": created.group, "broadcast": True}
        assert sorted(notes.of(created.group), key=lambda run: (run.time_ms, not run.concerned_user_ids)) == [
            Run(**common, membership_version=1, time_ms=created.time_ms),
            Run(**common, membership_version=2, time_ms=changed.time_ms, concerned_user_ids=sorted([CARA, DAN])),
            Run(**common, membership_version=2, time_ms=sent.time_ms),
        ]
        assert [run.time_ms for run in notes.of(direct)] == [written.time_ms]
        assert notes.peers == {Role.WRITER}


async def test_a_thousand_people_at_once_and_a_group_that_becomes_big_are_told(writers: Writers) -> None:
    bounds = {"QIM_PROJECTION_FANOUT_MAX_MEMBERS": "3"}
    async with writer_with_lane(writers, **bounds) as (address, beside, _), taking_notes(writers, address) as notes:
        small = await beside.user(ANA).create_group([BEN])
        big = await beside.user(ANA).create_group([BEN, CARA, DAN])
        people = [person(number) for number in range(1_000)]
        await beside.change(small.group, people)
        await beside.user(ANA).send_to(small.group, b"to very many")
        await beside.change(small.group, [CARA])
        await until(lambda: len(notes.of(small.group)) == 3 and len(notes.of(big.group)) == 1)
        _, joined, later = notes.of(small.group)
        assert (joined.big, joined.became_big, later.big, later.became_big) == (True, True, True, False)
        assert list(joined.concerned_user_ids) == sorted(people)
        assert [(run.big, run.became_big) for run in notes.of(big.group)] == [(True, True)]


async def test_many_sends_in_a_short_time_are_few_calls(writers: Writers) -> None:
    async with writer_with_lane(writers) as (address, beside, _), taking_notes(writers, address) as notes:
        groups = [(await beside.user(ANA).create_group()).group for _ in range(20)]
        await until(lambda: all(notes.of(group) for group in groups))
        notes.calls.clear()
        newest: dict[ConversationId, int] = {}
        for _ in range(10):
            sent = await asyncio.gather(*(beside.user(ANA).send_to(group, b"x") for group in groups))
            newest |= {group: each.time_ms for group, each in zip(groups, sent, strict=True)}
        await until(lambda: all(max((r.time_ms for r in notes.of(g)), default=0) == newest[g] for g in groups))
        assert len(notes.calls) < 200


async def test_a_writer_starts_serves_and_stops_without_its_session_service(writers: Writers) -> None:
    async with writer_with_lane(writers) as (address, beside, process):
        created = await beside.user(ANA).create_group([BEN])
        assert (await beside.user(BEN).send_to(created.group, b"nobody projects this")).seq == 1

        async def counted() -> bool:
            return await dropped(process) >= 1

        await until(counted)
        async with taking_notes(writers, address) as notes:

            async def heard() -> bool:
                await beside.user(ANA).send_to(created.group, b"again")
                return bool(notes.of(created.group))

            await until(heard)
            await until(lambda: "the low-latency lane works again" in process.log.read_text())
            assert process.log.read_text().count("the low-latency lane is interrupted") == 1
    log = process.log.read_text()
    assert "writer stopped" in log
    assert "Traceback" not in log


async def test_runs_that_the_session_service_refuses_are_not_sent_again(writers: Writers) -> None:
    async with writer_with_lane(writers) as (address, beside, process), taking_notes(writers, address) as notes:
        notes.refuses = 1
        lost = await beside.user(ANA).create_group()

        async def counted() -> bool:
            return await dropped(process) == 1

        await until(counted)
        later = await beside.user(ANA).create_group()
        await until(lambda: bool(notes.of(later.group)))
        assert notes.of(lost.group) == []
