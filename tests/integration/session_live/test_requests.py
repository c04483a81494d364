"""Requests that cannot be taken: malformed ones end the stream by name, a fault of one attachment only that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.session_live.conftest import TENANT, Person
from tests.support.live import BOUND_SECONDS, LiveReader

from qim.common.v1 import identity_pb2
from qim.session.v1 import session_pb2
from qim_client import GatewayClient, LiveFrames
from qim_common.errors import InvalidArgument, QimError, Reason, TooManyItems, from_status
from qim_common.ids import uuid7

pytestmark = pytest.mark.server
Request = session_pb2.SubscribeRequest
ID = bytes([2]) + uuid7()[1:]


def attach(number: int = 1, **fields: Any) -> session_pb2.SubscribeRequest.Attach:
    given = {"tenant_id": int(TENANT), "user_id": bytes(uuid7()), **fields}
    return Request.Attach(attachment=number, actor=identity_pb2.AuthenticatedActor(**given))


def acknowledge(conversation: bytes = ID, seq: int = 1, count: int = 1) -> session_pb2.SubscribeRequest.Acknowledge:
    cursor = session_pb2.DeviceCursor(conversation_id=conversation, seq=seq)
    return Request.Acknowledge(attachment=1, cursors=[cursor] * count)


async def end_of(frames: LiveFrames) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while await frames.read() is not None:
            pass


MALFORMED: dict[str, tuple[Callable[[], session_pb2.SubscribeRequest], type[QimError], str]] = {
    "number 0": (lambda: Request(attach=[attach(0)]), InvalidArgument, "attach[0].attachment"),
    "a number twice": (lambda: Request(attach=[attach(), attach()]), InvalidArgument, "attach[1].attachment"),
    "too many attaches": (lambda: Request(attach=[attach(n) for n in range(1, 1002)]), TooManyItems, "attach"),
    "too many acknowledgements": (lambda: Request(acknowledge=[acknowledge()] * 1001), TooManyItems, "acknowledge"),
    "too many detaches": (lambda: Request(detach=[Request.Detach(attachment=1)] * 1001), TooManyItems, "detach"),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_request_ends_the_stream_and_names_the_field(gateway: GatewayClient, case: str) -> None:
    make, kind, field = MALFORMED[case]
    frames = gateway.open_live_frames()
    await frames.write(make())
    with pytest.raises(kind) as refused:
        await end_of(frames)
    named = [violation.field for violation in refused.value.violations]
    assert named == [field] or refused.value.metadata["field"] == field


async def test_the_number_of_an_attachment_that_lives_is_refused(gateway: GatewayClient) -> None:
    frames = gateway.open_live_frames()
    await frames.write(Request(attach=[attach(7)]))
    await frames.write(Request(attach=[attach(7)]))
    with pytest.raises(InvalidArgument):
        await end_of(frames)


FAULTS: dict[str, tuple[dict[str, Any], Reason]] = {
    "a foreign tenant": ({"tenant_id": 99}, Reason.TENANT_NOT_ALLOWED),
    "tenant 0": ({"tenant_id": 0}, Reason.INVALID_ARGUMENT),
    "a short user": ({"user_id": b"short"}, Reason.INVALID_ARGUMENT),
    "no user": ({"user_id": b""}, Reason.INVALID_ARGUMENT),
    "a short device": ({"device_id": b"short"}, Reason.INVALID_ARGUMENT),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_a_faulty_actor_ends_its_attachment_and_no_other(gateway: GatewayClient, case: str) -> None:
    fields, reason = FAULTS[case]
    frames = gateway.open_live_frames()
    await frames.write(Request(attach=[attach(1, **fields), attach(2)]))
    found: dict[int, str] = {}
    async with asyncio.timeout(BOUND_SECONDS):
        while len(found) < 2:
            response = await frames.read()
            assert response is not None
            for event in response.events:
                (number,) = event.attachments
                found[number] = event.WhichOneof("event") or ""
                if event.HasField("detached"):
                    assert from_status(event.detached.status).reason == reason
                    assert event.detached.resume_token == ""
    frames.cancel()
    assert found == {1: "detached", 2: "attached"}


CURSORS: dict[str, tuple[dict[str, Any], str]] = {
    "a short conversation": ({"conversation": b"short"}, "cursors[0].conversation_id"),
    "no conversation": ({"conversation": bytes(16)}, "cursors[0].conversation_id"),
    "a seq that is none": ({"seq": 2**53}, "cursors[0].seq"),
    "too many cursors": ({"count": 1001}, "cursors"),
}


@pytest.mark.parametrize("case", CURSORS)
async def test_malformed_cursors_end_their_attachment_and_no_other(
    gateway: GatewayClient, person: Person, case: str
) -> None:
    fields, field = CURSORS[case]
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    frames = gateway.open_live_frames()
    attaches = [Request.Attach(attachment=n, actor=one.actor.to_message()) for n, one in enumerate((ana, ben), 1)]
    await frames.write(Request(attach=attaches))
    came: list[tuple[int, session_pb2.SubscribeEvent]] = []

    async def until(number: int, kind: str) -> session_pb2.SubscribeEvent:
        async with asyncio.timeout(BOUND_SECONDS):
            while True:
                for attachment, event in came:
                    if (attachment, event.WhichOneof("event")) == (number, kind):
                        return event
                response = await frames.read()
                assert response is not None
                came.extend((attachment, event) for event in response.events for attachment in event.attachments)

    await until(1, "attached")
    await until(2, "attached")
    none = acknowledge()
    none.attachment = 9
    await frames.write(Request(acknowledge=[none, acknowledge(**fields)]))
    detached = (await until(1, "detached")).detached
    refused = from_status(detached.status)
    assert (refused.reason, [violation.field for violation in refused.violations]) == (
        Reason.INVALID_ARGUMENT,
        [f"acknowledge[1].{field}"],
    )
    assert detached.resume_token
    came.clear()
    await frames.write(Request(acknowledge=[acknowledge(**fields)]))  # of one that has ended: ignored
    await ana.send_to(group, b"on it goes")
    assert (await until(2, "delivered")).delivered.conversation_id == group
    assert all(number == 2 for number, _ in came)
    frames.cancel()


async def test_what_is_said_about_attachments_that_ended_is_ignored(gateway: GatewayClient) -> None:
    frames = gateway.open_live_frames()
    detach = [Request.Detach(attachment=5)]
    await frames.write(Request(acknowledge=[acknowledge()], detach=detach))
    await frames.write(Request(attach=[attach(5)], detach=detach))
    await frames.write(Request(attach=[attach(5)]))
    kinds: list[str | None] = []
    async with asyncio.timeout(BOUND_SECONDS):
        while "attached" not in kinds:
            response = await frames.read()
            assert response is not None
            kinds += [event.WhichOneof("event") for event in response.events]
    frames.cancel()
    assert kinds == ["detached", "attached"]


async def test_an_acknowledgement_of_a_foreign_conversation_or_generation_does_nothing(
    person: Person, live: LiveReader
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    foreign = (await ana.create_group([])).group
    attachment = await live.attach(ben.actor)
    await ana.send_to(group, b"1")
    await live.until(lambda: live.seqs(attachment, group) == [1])
    await attachment.acknowledge(foreign, 1, 9)
    await attachment.acknowledge(group, 77, 1)
    await live.detach(attachment)
    again = await live.attach(ben.actor)
    assert live.seqs(again, group) == [1]


async def test_detaching_ends_one_attachment_and_no_other(person: Person, live: LiveReader) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    gone, stays = await live.attach(ben.actor), await live.attach(ana.actor)
    detached = await live.detach(gone)
    assert (detached.error, bool(detached.resume_token)) == (None, True)
    await ana.send_to(group, b"1")
    await live.until(lambda: live.seqs(stays, group) == [1])
    assert live.seqs(gone, group) == []
