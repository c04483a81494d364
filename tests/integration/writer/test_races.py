"""Whatever happens at once, in one process or in two: one order of seqs and versions, and every answer fits it."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import grpc
import pytest
from tests.support.refusals import of_error
from tests.support.writer_methods import message, method
from tests.support.writers import ANA, BEN, CARA, OPERATOR, SECONDS, Writers, acting, as_actor, person

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_client.values import GroupSettings, MembershipChange, Outgoing
from qim_common.errors import GroupAlreadyExists, QimError
from qim_common.identity import Principal
from qim_common.ids import ConversationId, MembershipOp, UserId, uuid7

pytestmark = pytest.mark.server

T = TypeVar("T")
LEAVING = 4
"""Tasks that leave at once through one process: with more, those of two processes spend their time overtaking."""


@pytest.fixture(scope="module")
async def second(writers: Writers) -> AsyncIterator[Writers]:
    """Another writer process on the same Valkeys."""
    async with writers.second() as running:
        yield running


async def eventually(call: Callable[[], Awaitable[T]]) -> T:
    """The answer; MEMBERSHIP_CHANGED, which says so in its RetryInfo, is retried with the same id."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                refused = of_error(error)
                if refused.reason != "MEMBERSHIP_CHANGED":
                    raise
                assert refused.retry


async def log_of(writers: Writers, group: ConversationId) -> list[MembershipChange]:
    """The changes from version 2 on."""
    changes: list[MembershipChange] = []
    while True:
        page = await writers.user(ANA).members_since(group, 1 + len(changes), limit=1000)
        changes += page.changes
        if page.membership_version == page.current_version:
            return changes


def at_version(initial: set[UserId], changes: list[MembershipChange], version: int) -> set[UserId]:
    """The members at a version, by replaying the log."""
    members = set(initial)
    for change in changes[: version - 1]:
        if change.op is MembershipOp.JOIN:
            members |= set(change.people)
        else:
            members -= set(change.people)
    return members


@pytest.mark.slow
async def test_a_leaver_is_in_a_messages_audience_exactly_when_its_seq_is_below_the_leave(
    writers: Writers, second: Writers
) -> None:
    ana = writers.user(ANA)
    leavers = [person(number) for number in range(1000)]
    group = (await ana.create_group(leavers[:999])).group
    await writers.change(group, leavers[999:])
    left: dict[UserId, int] = {}
    queue = iter(leavers)
    done = asyncio.Event()

    async def leave(where: Writers) -> None:
        for user in queue:
            left[user] = (await where.user(user).leave_group(group, timeout=SECONDS)).member.left_at

    async def speak(where: Writers) -> None:
        async with where.gateway_client.open_stream() as stream:
            while not done.is_set():
                (outcome,) = await stream.send([Outgoing(ana.actor, b"x", conversation=group)])
                assert outcome.sent

    speaking = [asyncio.ensure_future(speak(where)) for where in (writers, second)]
    await asyncio.gather(*(leave(where) for where in (writers, second) for _ in range(LEAVING)))
    done.set()
    await asyncio.gather(*speaking)

    changes = await log_of(writers, group)
    assert [change.version for change in changes] == list(range(2, 1003))
    assert {change.people[0]: change.seq for change in changes[1:]} == left
    leave_seqs = [change.seq for change in changes]
    assert leave_seqs == sorted(leave_seqs)
    history = sorted([each async for each in ana.history(group)], key=lambda each: each.seq)
    assert [each.seq for each in history] == list(range(1, len(history) + 1))
    spoken = [each for each in history if each.event is None]
    assert len(spoken) == len(history) - 1001
    between = 0
    for each in spoken:
        # Its audience are the members at its version; the changes up to that version must be those with smaller seqs.
        assert each.membership_version == 1 + bisect_right(leave_seqs, each.seq)
        between += leave_seqs[0] < each.seq < leave_seqs[-1]
    assert between > 10
    initial = {ANA, *leavers[:999]}
    for each in spoken[:: len(spoken) // 25]:
        recipients = await writers.recipients(group, each.membership_version)
        assert len(set(recipients)) == len(recipients)
        assert set(recipients) == at_version(initial, changes, each.membership_version)
        assert set(recipients) - {ANA} == {user for user, seq in left.items() if each.seq < seq}


async def test_of_two_batches_at_the_member_limit_exactly_one_wins(writers: Writers, second: Writers) -> None:
    for round_ in range(10):
        group = (await writers.user(ANA).create_group([BEN], settings=GroupSettings(member_limit=8))).group
        batches = [[person(number) for number in range(start, start + 6)] for start in (0, 10)]
        places = (writers, second) if round_ % 2 else (writers, writers)
        adding = [
            eventually(partial(place.change, group, batch, request_id=uuid7()))
            for place, batch in zip(places, batches, strict=True)
        ]
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
        won = [each for each in outcomes if isinstance(each, membership_pb2.MembershipVersion)]
        lost = [of_error(each) for each in outcomes if isinstance(each, grpc.aio.AioRpcError)]
        assert [(each.version, each.member_count, each.changed_count) for each in won] == [(2, 8, 6)]
        assert [each.reason for each in lost] == ["MEMBER_LIMIT_EXCEEDED"]
        winners = batches[0] if outcomes[0] is won[0] else batches[1]
        assert {member.user async for member in writers.user(ANA).members(group)} == {ANA, BEN, *winners}


async def test_changes_from_two_processes_make_one_order(writers: Writers, second: Writers) -> None:
    ana = writers.user(ANA)
    group = (await ana.create_group()).group
    dice = random.Random(7)  # noqa: S311  no secret
    answers: list[tuple[int, int]] = []
    leave = method("LeaveGroup")

    async def act(number: int) -> None:
        place = (writers, second)[number % 2]
        for _ in range(15):
            people = [person(dice.randrange(12)) for _ in range(3)]
            kind = dice.choice(("add", "remove", "leave", "send"))
            used = uuid7()
            if kind == "send":
                await ana.send_to(group, b"x")
            elif kind == "leave":
                request = writer_pb2.LeaveGroupRequest(request_id=used, group_id=group)
                call = partial(leave.call, place.caller("gateway"), request, metadata=as_actor(acting(people[0])))
                try:
                    await eventually(call)
                except grpc.aio.AioRpcError as error:
                    assert of_error(error).reason == "PERMISSION_DENIED"  # noqa: PT017  never was in the group
            else:
                change = partial(place.change, group, people, remove=kind == "remove", request_id=used)
                answer = await eventually(change)
                if answer.seq:
                    answers.append((answer.version, answer.seq))

    await asyncio.gather(*(act(number) for number in range(16)))
    changes = await log_of(writers, group)
    assert [change.version for change in changes] == list(range(2, len(changes) + 2))
    assert set(answers) <= {(change.version, change.seq) for change in changes}
    assert len(set(answers)) == len(answers)
    history = [each async for each in ana.history(group)]
    assert sorted(each.seq for each in history) == list(range(1, len(history) + 1))
    assert [each.seq for each in reversed(history) if each.event] == [change.seq for change in changes]
    times = [each.time_ms for each in history]
    assert times == sorted(times, reverse=True)
    for change in changes:
        before, after = (at_version({ANA}, changes, version) for version in (change.version - 1, change.version))
        assert set(change.people) == before ^ after
        assert set(await second.recipients(group, change.version)) == after
    assert {member.user async for member in ana.members(group)} == at_version({ANA}, changes, len(changes) + 1)


async def test_a_group_created_by_many_at_once_has_one_creator(writers: Writers, second: Writers) -> None:
    for _ in range(5):
        group = ConversationId(b"\x02" + uuid7()[1:])
        creators = [(place, person(number)) for number, place in enumerate((writers, second) * 4)]
        outcomes = await asyncio.gather(
            *(place.user(user).create_group([CARA], group=group) for place, user in creators), return_exceptions=True
        )
        won = [user for (_, user), each in zip(creators, outcomes, strict=True) if not isinstance(each, BaseException)]
        assert [type(each) for each in outcomes if isinstance(each, BaseException)] == [GroupAlreadyExists] * 7
        (winner,) = won
        assert set(await writers.recipients(group, 1)) == {winner, CARA}


async def test_the_same_request_at_two_processes_at_once_is_carried_out_once(
    writers: Writers, second: Writers, group: ConversationId
) -> None:
    for number in range(5):
        change_id, create_id, leave_id = uuid7(), uuid7(), uuid7()
        sent = Outgoing(acting(ANA), b"once", conversation=group)
        places = (writers, second, writers, second)
        people = [person(number)]
        seqs = {each.seq for each in await asyncio.gather(*(place.user(ANA).send(sent) for place in places))}
        assert len(seqs) == 1
        changed = await asyncio.gather(*(place.change(group, people, request_id=change_id) for place in places))
        assert len({(each.version, each.seq, each.changed_count) for each in changed}) == 1
        created = await asyncio.gather(*(place.user(BEN).create_group(request_id=create_id) for place in places))
        assert len(set(created)) == 1
        left = await asyncio.gather(
            *(place.user(people[0]).leave_group(group, request_id=leave_id) for place in places)
        )
        assert len({(each.member.left_at, each.membership_version) for each in left}) == 1
    changes = await log_of(writers, group)
    assert len(changes) == 10


async def test_an_expected_version_is_never_met_by_a_message_after_a_change(writers: Writers, second: Writers) -> None:
    """The compare and the commit are one step: what was sent for a version is before every change after it."""
    ana = writers.user(ANA)
    group = (await ana.create_group()).group
    stop = asyncio.Event()
    sent: list[tuple[int, int]] = []
    refused: list[str] = []

    async def speak() -> None:
        while not stop.is_set():
            expected = (await ana.freeze_delivery(group)).membership_version
            item = Outgoing(ana.actor, b"x", conversation=group, expected_version=expected)
            try:
                sent.append((expected, (await ana.send(item)).seq))
            except QimError as error:
                refused.append(error.reason)

    speaking = [asyncio.ensure_future(speak()) for _ in range(8)]
    for number in range(60):
        await eventually(partial(second.change, group, [person(number % 5)], remove=number % 10 >= 5))
    stop.set()
    await asyncio.gather(*speaking)
    seqs = [change.seq for change in await log_of(writers, group)]
    assert len(seqs) == 60
    assert all(expected == 1 + bisect_right(seqs, seq) for expected, seq in sent)
    assert set(refused) <= {"MEMBERSHIP_CHANGED"}
    head = (await ana.get_visible_range(group)).head_seq
    assert head == 60 + len(sent)


async def test_ids_of_different_principals_and_of_a_person_and_a_principal_do_not_meet(
    writers: Writers, group: ConversationId
) -> None:
    used = uuid7()
    other = Principal(OPERATOR.kind, "another-operator", OPERATOR.tenant, None)
    request = writer_pb2.SendMessageRequest(message=message(group, client_message_id=used))
    first = await writers.change(group, [person(1)], request_id=used)
    second = await writers.change(group, [person(2)], request_id=used, principal=other)
    sent = await method("SendMessage").call(writers.caller("gateway"), request)
    left = await writers.user(BEN).leave_group(group, request_id=used)
    assert [first.seq, second.seq, sent.seq, left.member.left_at] == [2, 3, 4, 5]
