"""Which commits the low-latency lane hears of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio
from tests.support.chat import ANA, BEN, CARA, DAN, TENANT, Chat, Sent, user
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.errors import OwnerCannotLeave, PermissionDenied
from qim_common.ids import ConversationId, MembershipOp, direct_conversation_id, uuid7
from qim_devkit.valkey import ValkeyServer
from qim_writer.commands.change_members import AdminChange, MemberChanges
from qim_writer.domain.hints import HintQueue, HintRun
from qim_writer.domain.policy import Limits

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Heard:
    """A writer with small bounds, and what its lane was told since the last look."""

    chat: Chat
    queue: HintQueue

    def runs(self) -> list[HintRun]:
        return self.queue.take(1000)

    async def group(self, people: int) -> ConversationId:
        """A group of so many people; the lane has heard of it."""
        group = await self.chat.create(ANA, *(user(number) for number in range(2, people + 1)))
        self.runs()
        return group


@pytest_asyncio.fixture
async def heard(valkey_session: ValkeyServer) -> AsyncIterator[Heard]:
    """Membership events are broadcast up to 5 members; above 8 a group is big."""
    queue = HintQueue()
    async with redis_stores(valkey_session, hints=queue) as stores:
        yield Heard(Chat(stores, limits=Limits(broadcast_max_members=5, fanout_max_members=8), hints=queue), queue)


def run(group: ConversationId, version: int, time_ms: int, **fields: object) -> HintRun:
    return replace(HintRun(TENANT, group, version, time_ms, broadcast=True), **fields)  # type: ignore[arg-type]


async def test_sends_are_one_run_of_each_conversation_and_version(heard: Heard) -> None:
    group, other = await heard.group(2), await heard.group(2)
    outcomes = await heard.chat.outcomes(*((ANA, (group, other)[n % 2], {}) for n in range(600)))
    last = {group: outcomes[598], other: outcomes[599]}
    runs = heard.runs()
    assert {each.conversation for each in runs} == {group, other}
    for each in runs:
        outcome = last[each.conversation]
        assert isinstance(outcome, Sent)
        assert each == run(each.conversation, 1, outcome.time_ms)


async def test_refused_sends_and_repeats_are_no_runs(heard: Heard) -> None:
    group, request = await heard.group(2), uuid7()
    sent = await heard.chat.send(ANA, group, message_id=request)
    assert heard.runs() == [run(group, 1, sent.time_ms)]
    assert await heard.chat.send(ANA, group, message_id=request) == sent
    with pytest.raises(PermissionDenied):
        await heard.chat.send(DAN, group)
    assert heard.runs() == []


async def test_a_repeat_beside_a_new_send_does_not_take_its_place(heard: Heard) -> None:
    group, request = await heard.group(2), uuid7()
    first = await heard.chat.send(ANA, group, message_id=request)
    heard.runs()
    fields = {"message_id": request}
    again, new, twin = await heard.chat.outcomes(
        (ANA, group, fields), (ANA, group, fields := {"message_id": uuid7()}), (ANA, group, fields)
    )
    assert again == first
    assert isinstance(new, Sent)
    assert twin == new
    assert heard.runs() == [run(group, 1, new.time_ms)]


async def test_the_first_send_of_a_direct_conversation_is_a_run_of_its_version_1(heard: Heard) -> None:
    sent = await heard.chat.send(ANA, peer=BEN)
    assert heard.runs() == [run(direct_conversation_id(TENANT, ANA, BEN), 1, sent.time_ms)]


async def test_a_creation_reaches_everybody_at_version_1(heard: Heard) -> None:
    group, answer = await heard.chat.create_with_answer(ANA, BEN)
    assert heard.runs() == [run(group, 1, answer.time_ms)]
    big, answer = await heard.chat.create_with_answer(ANA, *(user(number) for number in range(2, 10)))
    assert heard.runs() == [run(big, 1, answer.time_ms, big=True, became_big=True)]


async def test_a_change_names_those_concerned_and_whether_it_reached_everybody(heard: Heard) -> None:
    group = await heard.group(3)
    added = await heard.chat.add(group, BEN, DAN)
    assert heard.runs() == [run(group, 2, added.time_ms, concerned=(DAN,))]
    more = await heard.chat.add(group, user(10), user(11))
    assert heard.runs() == [run(group, 3, more.time_ms, broadcast=False, concerned=(user(10), user(11)))]
    await heard.chat.leave(CARA, group)
    (left,) = heard.runs()
    assert (left.version, left.broadcast, left.concerned, left.big) == (4, True, (CARA,), False)


async def test_only_the_change_that_makes_a_group_big_says_so(heard: Heard) -> None:
    group = await heard.group(8)
    for people in ([user(20)], [user(21)]):
        await heard.chat.add(group, *people)
    await heard.chat.remove(group, *(user(number) for number in range(3, 9)))
    await heard.chat.remove(group, user(2))
    assert [(each.big, each.became_big) for each in heard.runs()] == [
        *((True, True), (True, False), (True, False), (False, False)),
    ]


async def test_sends_to_a_big_group_are_no_runs(heard: Heard) -> None:
    group, small = await heard.group(8), await heard.group(2)
    await heard.chat.add(group, user(20))
    heard.runs()
    sent = await heard.chat.outcomes((ANA, group, {}), (ANA, small, {}), (BEN, group, {}))
    assert all(isinstance(each, Sent) for each in sent)
    assert [each.conversation for each in heard.runs()] == [small]
    await heard.chat.remove(group, *(user(number) for number in range(2, 8)))
    heard.runs()
    await heard.chat.send(ANA, group)
    assert [(each.conversation, each.version) for each in heard.runs()] == [(group, 3)], "small again"


async def test_a_change_without_effect_or_refused_or_repeated_is_no_run(heard: Heard) -> None:
    group, request = await heard.group(3), uuid7()
    await heard.chat.add(group, DAN, request_id=request)
    assert len(heard.runs()) == 1
    await heard.chat.add(group, DAN)
    await heard.chat.add(group, DAN, request_id=request)
    with pytest.raises(OwnerCannotLeave):
        await heard.chat.leave(ANA, group)
    assert heard.runs() == []


async def test_the_answer_of_another_writers_call_with_the_same_id_is_no_run(heard: Heard) -> None:
    """It is found only when this writer's plan is applied, and tells of another version."""
    group, change_id = await heard.group(2), uuid7()
    stores = heard.chat.stores
    assert isinstance(stores, RedisStores)
    change = AdminChange(change_id, group, MembershipOp.JOIN, [DAN])

    class OvertakenStore:
        """Between this writer's plan and its change another one makes a change, and then this same one."""

        def __getattr__(self, name: str) -> object:
            return getattr(stores.membership, name)

        async def apply(self, *args: object) -> object:
            elsewhere = Chat(stores, limits=heard.chat.limits)
            await elsewhere.leave(BEN, group)
            await elsewhere.changes.by_principal(heard.chat.operator, change)
            return await stores.membership.apply(*args)  # type: ignore[arg-type]

    overtaken = MemberChanges(OvertakenStore(), heard.chat.limits, hints=heard.queue)  # type: ignore[arg-type]
    _, answer = await overtaken.by_principal(heard.chat.operator, change)
    assert (answer.version, answer.changed) == (3, 1)
    assert heard.runs() == []
