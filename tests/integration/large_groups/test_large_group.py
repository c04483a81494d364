"""A group of 100,000 through the API: joins, leaves, pages, changes and recipients (design.md invariants 2 and 3)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.integration.large_groups.conftest import CALLS, MEMBERS, PEOPLE, Crowd, batch
from tests.support.refusals import refusal
from tests.support.writers import ANA, BEN, CARA, TENANT, person

from qim_common.ids import MembershipOp, UserId, person_bucket
from qim_common.records import Audience

pytestmark = [pytest.mark.server, pytest.mark.slow]

FULL = CALLS + 1
"""The version that has everybody."""


def strangers(count: int, start: int = MEMBERS) -> list[UserId]:
    """People who are in no call."""
    return [person(start + index) for index in range(count)]


async def test_pages_show_everybody_once(crowd: Crowd) -> None:
    users = [member.user async for member in crowd.writers.user(ANA).members(crowd.group)]
    assert len(users) == MEMBERS
    assert set(users) == crowd.at(FULL)


async def test_each_call_is_one_version_and_one_seq_without_a_gap(crowd: Crowd) -> None:
    after, seqs, versions, people = 1, [], [], 0
    while after < FULL:
        page = await crowd.writers.user(ANA).members_since(crowd.group, after, limit=PEOPLE)
        for change in page.changes:
            if change.version > FULL:
                break
            assert change.op is MembershipOp.JOIN
            assert sorted(change.people) == list(change.people) == sorted(batch(change.version - 2))
            seqs.append(change.seq)
            versions.append(change.version)
            people += len(change.people)
        after = page.membership_version
    assert versions == list(range(2, FULL + 1))
    assert seqs == list(range(1, CALLS + 1))
    assert people == MEMBERS - 1


@pytest.mark.parametrize("version", [1, 2, 50, FULL - 1, FULL])
async def test_recipients_of_a_version_come_in_chunks_of_one_mailbox_shard(crowd: Crowd, version: int) -> None:
    chunks = await crowd.chunks(version)
    for chunk in chunks:
        assert chunk.membership_version == version
        assert 1 <= len(chunk.user_ids) <= PEOPLE
        assert sorted(chunk.user_ids) == list(chunk.user_ids)
        buckets = {person_bucket(TENANT, UserId(user), 256) for user in chunk.user_ids}
        assert buckets == {chunk.mailbox_shard}
    assert all(
        (one.mailbox_shard, one.user_ids[-1]) < (other.mailbox_shard, other.user_ids[0])
        for one, other in pairwise(chunks)
    )
    users = [user for chunk in chunks for user in chunk.user_ids]
    assert len(users) == len(set(users))
    assert set(users) == crowd.at(version)


async def test_one_shard_is_read_alone(crowd: Crowd) -> None:
    for shard in (0, 77, 255):
        chunks = await crowd.chunks(50, shard)
        users = [user for chunk in chunks for user in chunk.user_ids]
        wanted = sorted(user for user in crowd.at(50) if person_bucket(TENANT, UserId(user), 256) == shard)
        assert users == wanted


async def test_nobody_comes_above_the_limit_and_the_whole_batch_is_refused(crowd: Crowd) -> None:
    before = await crowd.version()
    refused = await refusal(crowd.writers.change(crowd.group, strangers(2)))
    assert refused.name == ("FAILED_PRECONDITION", "MEMBER_LIMIT_EXCEEDED")
    assert await crowd.version() == before


async def test_a_thousand_leave_and_come_back_as_one_event_each(crowd: Crowd) -> None:
    writers, people = crowd.writers, batch(7)
    before = await crowd.version()
    gone = await writers.change(crowd.group, people, remove=True)
    assert (gone.version, gone.changed_count, gone.member_count) == (before + 1, PEOPLE, MEMBERS - PEOPLE)
    back = await writers.change(crowd.group, people)
    assert (back.version, back.seq, back.member_count) == (before + 2, gone.seq + 1, MEMBERS)
    for version, missing in ((before, set()), (before + 1, set(people)), (before + 2, set())):
        users = [user for chunk in await crowd.chunks(version) for user in chunk.user_ids]
        assert len(users) == MEMBERS - len(missing)
        assert set(users) == crowd.at(FULL) - missing
    page = await writers.user(people[0]).pull_history(crowd.group, from_seq=0, limit=10)
    assert [message.seq for message in page.messages] == [back.seq]
    assert page.messages[0].audience is Audience.CONCERNED


async def test_somebody_leaves_and_somebody_else_takes_the_place(crowd: Crowd) -> None:
    writers, leaver, newcomer = crowd.writers, batch(3)[0], strangers(1, 2 * MEMBERS)[0]
    left = await writers.user(leaver).leave_group(crowd.group)
    joined = await writers.change(crowd.group, [newcomer])
    assert joined.member_count == MEMBERS
    sent = await writers.user(newcomer).send_to(crowd.group, b"hello")
    assert sent.seq > joined.seq > left.member.left_at
    await writers.change(crowd.group, [newcomer], remove=True)
    await writers.change(crowd.group, [leaver])


async def test_changes_at_once_queue_and_all_take_place(crowd: Crowd) -> None:
    writers, before = crowd.writers, await crowd.version()
    people = [batch(number)[:50] for number in range(20, 30)]
    await asyncio.gather(*(writers.change(crowd.group, some, remove=True) for some in people))
    answers = await asyncio.gather(*(writers.change(crowd.group, some) for some in people))
    assert sorted(answer.version for answer in answers) == list(range(before + 11, before + 21))
    assert max(answer.member_count for answer in answers) == MEMBERS
    assert await writers.recipients(crowd.group, before) == await writers.recipients(crowd.group, before + 20)


async def test_pages_stay_whole_while_people_come_and_go(crowd: Crowd) -> None:
    writers = crowd.writers
    coming_and_going = [batch(number)[:200] for number in range(40, 45)]
    steady = crowd.at(FULL) - {user for some in coming_and_going for user in some}
    seen: list[UserId] = []
    token, turn = "", 0
    while turn == 0 or token:
        page = await writers.user(ANA).members_page(crowd.group, page_size=PEOPLE, page_token=token)
        seen += [member.user for member in page.members]
        token = page.next_page_token
        if turn < 10:
            await writers.change(crowd.group, coming_and_going[turn // 2], remove=turn % 2 == 0)
        turn += 1
    assert len(seen) == len(set(seen)), "nobody is shown twice"
    assert steady <= set(seen) <= crowd.at(FULL)


async def test_others_are_served_meanwhile(crowd: Crowd) -> None:
    writers = crowd.writers
    small = await writers.user(BEN).create_group([CARA])
    reading = asyncio.create_task(crowd.chunks(2))
    seqs = [(await writers.user(BEN).send_to(small.group, b"%d" % n)).seq for n in range(20)]
    assert seqs == list(range(1, 21))
    assert {user for chunk in await reading for user in chunk.user_ids} == crowd.at(2)
