"""What attached devices get, compared with what the same person's mailbox holds (design.md invariants 4, 5 and 12)."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.session_live.conftest import TENANT, Person
from tests.support.live import BOUND_SECONDS, LiveReader, Place
from tests.support.members import Operators

from qim_client import (
    ActorClient,
    Delivered,
    FlagsChanged,
    GatewayClient,
    MailboxEntry,
    ReadMarked,
    StateChanged,
    actor,
)
from qim_client.values import Message, StateEntry
from qim_common.ids import DeviceId, UserId, direct_conversation_id, uuid7
from qim_common.records import StateChange

pytestmark = pytest.mark.server


async def mailbox(client: ActorClient, newest: Place) -> list[MailboxEntry]:
    """Everything in the person's mailbox once it holds `newest`: a live stream is ahead of the projection.

    A device that never acknowledged gets all of it at once.
    """
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            page = await client.pull_mailbox(limit=1000)
            assert not page.more
            if newest in map(place, page.entries):
                return list(page.entries)
            await asyncio.sleep(0.02)


def place(entry: MailboxEntry) -> Place:
    first = entry.withheld.first if entry.withheld is not None else entry.cursor.seq
    return entry.conversation, first, entry.cursor.seq


def messages(reader: LiveReader, attachment: object) -> list[Message]:
    return [
        event.message
        for event in reader.events
        if isinstance(event, Delivered) and event.attachment is attachment and event.message is not None
    ]


async def test_a_message_is_delivered_as_the_mailbox_has_it(person: Person, live: LiveReader) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    attachment = await live.attach(ben.actor)
    await ana.send_to(group, b"hello", custom_type="text/x-greeting")
    await live.until(lambda: live.seqs(attachment, group) == [1])
    (entry,) = await mailbox(ben, (group, 1, 1))
    assert messages(live, attachment) == [entry.message]


async def test_what_was_delivered_before_the_attach_comes_first(person: Person, live: LiveReader) -> None:
    ana, ben = person(), person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(3)]
    for number in range(4):
        for group in groups:
            await ana.send_to(group, b"%d" % number)
    attachment = await live.attach(ben.actor)
    assert [live.seqs(attachment, group) for group in groups] == [[1, 2, 3, 4]] * 3
    assert sorted(live.places(attachment)) == sorted(map(place, await mailbox(ben, live.places(attachment)[-1])))


async def test_a_message_reaches_every_device_of_every_member_and_nobody_else(person: Person, live: LiveReader) -> None:
    ana, ben, cara = person(), person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    devices = [actor(TENANT, ben.actor.user, DeviceId(uuid7())) for _ in range(2)]
    attachments = [await live.attach(one) for one in (ana.actor, *devices)]
    outside = await live.attach(cara.actor)
    await ana.send_to(group, b"to all")
    for attachment in attachments:
        await live.until(lambda attachment=attachment: live.seqs(attachment, group) == [1])  # type: ignore[misc]
    assert live.places(outside) == []


async def test_a_direct_conversation_begins_live(person: Person, live: LiveReader) -> None:
    ana, ben = person(), person()
    attachment = await live.attach(ben.actor)
    await ana.send_to_person(ben.actor.user, b"hi")
    conversation = direct_conversation_id(TENANT, ana.actor.user, ben.actor.user)
    await live.until(lambda: live.seqs(attachment, conversation) == [1])
    (created,) = live.of(attachment, StateChanged)
    assert (created.conversation, created.change.kind) == (conversation, StateChange.CREATED)


async def test_a_newcomer_gets_the_join_and_what_follows(person: Person, live: LiveReader, operator: Operators) -> None:
    ana, ben, cara = person(), person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    attachment = await live.attach(cara.actor)
    await ana.send_to(group, b"before")
    joined = await operator.add(group, [cara.actor.user])
    await ana.send_to(group, b"after")
    await live.until(lambda: live.seqs(attachment, group) == [joined, joined + 1])
    assert live.places(attachment) == list(map(place, await mailbox(cara, live.places(attachment)[-1])))


async def test_who_is_removed_gets_the_removal_and_nothing_after_it(
    person: Person, live: LiveReader, operator: Operators
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    removed_one, witness = await live.attach(ben.actor), await live.attach(ana.actor)
    await ana.send_to(group, b"seen")
    removed = await operator.remove(group, [ben.actor.user])
    after = await ana.send_to(group, b"not for ben")
    await live.until(lambda: after.seq in live.seqs(witness, group))
    assert live.seqs(removed_one, group) == [1, removed]
    assert messages(live, removed_one)[-1].event is not None
    held = await mailbox(ben, live.places(removed_one)[-1])
    assert live.places(removed_one) == list(map(place, held))


async def test_who_leaves_and_comes_back_gets_exactly_the_stays(
    person: Person, live: LiveReader, operator: Operators
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    attachment = await live.attach(ben.actor)
    await ana.send_to(group, b"1")
    await ben.leave_group(group)
    await ana.send_to(group, b"3")
    back = await operator.add(group, [ben.actor.user])
    last = await ana.send_to(group, b"5")
    await live.until(lambda: last.seq in live.seqs(attachment, group))
    assert live.seqs(attachment, group) == [1, 2, back, last.seq]


async def test_a_body_that_is_not_in_the_log_comes_whole(person: Person, live: LiveReader) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    attachments = [await live.attach(one.actor) for one in (ana, ben)]
    bodies = [b"a" * 5_000, b"small", b"b" * 60_000]
    for body in bodies:
        await ana.send_to(group, body)
    for attachment in attachments:
        await live.until(lambda attachment=attachment: live.seqs(attachment, group) == [1, 2, 3])  # type: ignore[misc]
        assert [message.body for message in messages(live, attachment)] == bodies
    held = await mailbox(ben, (group, 3, 3))
    assert [entry.message for entry in held] == messages(live, attachments[1])


async def test_a_membership_event_that_is_not_in_the_log_reaches_those_it_names(
    person: Person, live: LiveReader, operator: Operators
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    crowd = [UserId(uuid7()) for _ in range(400)]
    joining, witness = await live.attach(actor(TENANT, crowd[7])), await live.attach(ben.actor)
    joined = await operator.add(group, crowd)
    sent = await ana.send_to(group, b"welcome")
    await live.until(lambda: live.seqs(joining, group) == [joined, sent.seq])
    await live.until(lambda: live.seqs(witness, group) == [joined, sent.seq])
    event = messages(live, joining)[0].event
    assert event is not None
    assert set(event.people) == set(crowd)


async def test_state_entries_reach_the_members(person: Person, live: LiveReader, operator: Operators) -> None:
    ana, ben, cara = person(), person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    inside, outside = await live.attach(ben.actor), await live.attach(cara.actor)
    await ana.send_to(group, b"1")
    await ana.clear_group_history(group)
    await ana.transfer_ownership(group, ben.actor.user)
    await operator.freeze(group)

    def changes() -> list[StateEntry]:
        # A tail that is behind at the attach brings the creation too.
        told = [event.change for event in live.of(inside, StateChanged)]
        return [change for change in told if change.kind is not StateChange.CREATED]

    await live.until(lambda: len(changes()) >= 3)
    floor, owner, frozen = changes()
    assert (floor.kind, floor.group_floor_seq, floor.settings) == (StateChange.FLOOR, 1, None)
    assert (owner.kind, owner.owner, owner.frozen) == (StateChange.OWNER, ben.actor.user, False)
    assert owner.settings is not None
    assert (frozen.kind, frozen.frozen, frozen.made_by) == (StateChange.FROZEN, True, "")
    assert [change.revision for change in changes()] == [2, 3, 4]
    assert live.of(outside, StateChanged) == []


async def test_an_own_clear_reaches_only_the_person_and_tells_a_leaver_no_revision(
    person: Person, live: LiveReader
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    owner, clearing = await live.attach(ana.actor), await live.attach(ben.actor)
    await ana.send_to(group, b"1")
    await ben.clear_history(group)
    await ana.send_to(group, b"2")
    await ben.leave_group(group)
    await ben.clear_history(group)

    def clears() -> list[int]:
        return [
            event.change.revision
            for event in live.of(clearing, StateChanged)
            if event.change.kind is StateChange.OWN_CLEAR
        ]

    await live.until(lambda: len(clears()) == 2)
    assert clears() == [2, 0]
    assert all(event.change.kind is not StateChange.OWN_CLEAR for event in live.of(owner, StateChanged))


async def test_read_marks_and_flags_reach_the_persons_other_devices(
    gateway: GatewayClient, person: Person, live: LiveReader, elsewhere: LiveReader
) -> None:
    ana, phone = person(), person()
    tablet = gateway.as_actor(TENANT, phone.actor.user, DeviceId(uuid7()))
    group = (await ana.create_group([phone.actor.user])).group
    await ana.send_to(group, b"1")
    own, other = await live.attach(phone.actor), await elsewhere.attach(tablet.actor)
    stranger = await live.attach(ana.actor)
    await phone.mark_read(group)
    await phone.set_conversation_flags(group, muted=True)
    await elsewhere.until(lambda: bool(elsewhere.of(other, FlagsChanged)))
    (mark,) = elsewhere.of(other, ReadMarked)
    (flags,) = elsewhere.of(other, FlagsChanged)
    assert (mark.conversation, mark.read_seq) == (group, 1)
    assert (flags.conversation, flags.hidden, flags.muted) == (group, False, True)
    await tablet.set_conversation_flags(group, muted=False)
    await live.until(lambda: bool(live.of(own, FlagsChanged)))
    assert live.of(own, ReadMarked) == []
    assert [event.muted for event in live.of(own, FlagsChanged)] == [False]
    assert not live.of(stranger, ReadMarked)
    assert not live.of(stranger, FlagsChanged)
