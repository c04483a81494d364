"""The acceptance list of ADR-0021, 1 to 5, where the ADR wants it shown: real Redis, three real nodes, real processes.

Everything goes through the public API of a suite of the backend `tiered` whose messages leave Redis as soon as the
archive holds them: what is read has come from Cassandra. Once with each level of acknowledgement that needs no replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.acceptance.crowd import Crowd
from tests.acceptance.stage import Person, Stage, opened, pull_all, seqs
from tests.integration.session.running import listed
from tests.support.archived import until
from tests.support.cassandra import TieredPlace
from tests.support.cassandra import opened as cassandra_opened
from tests.support.valkey import require_valkey

from qim_client import Conversation
from qim_client.values import Outgoing
from qim_common.enums import MemberState
from qim_common.errors import MembershipChanged, PermissionDenied
from qim_common.ids import ConversationId
from qim_devkit.suite import Suite
from qim_devkit.tiered import COLD, PROMPT
from qim_session.backends.cassandra_sets import CassandraConversationSets

ROUNDS = {"log": 25, "archived": 8}
"""An acknowledgement of the archive takes longer, and comers wait for each."""

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", params=sorted(ROUNDS))
async def suite(
    request: pytest.FixtureRequest, module_cassandra: TieredPlace, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Suite]:
    require_valkey()
    directory = tmp_path_factory.mktemp("acceptance") / "suite"
    async with module_cassandra.suite(directory, env_overrides=COLD | PROMPT, ack_level=request.param) as running:
        yield running


@pytest_asyncio.fixture
async def stage(suite: Suite) -> AsyncIterator[Stage]:
    async with opened(suite) as clients:
        yield clients


async def test_acceptance_1_who_joins_receives_and_reads_from_the_join_on_and_counts_what_came_after(
    stage: Stage,
) -> None:
    ana, ben, cara = await stage.people(3)
    group = await stage.group(ana, ben)
    await stage.send(ana, group, 30)
    with pytest.raises(PermissionDenied):
        await cara.client.pull_history(group)
    joined = (await stage.add(group, cara)).seq
    assert joined == 31
    await stage.send(ana, group, 20)

    assert await cara.told_live(group, 51) == await cara.delivered(group) == seqs(31, 51)
    assert await cara.readable(group) == seqs(31, 51)
    page = await cara.client.pull_history(group)
    assert page.earliest_available_seq == (await cara.entry(group)).earliest_available_seq == 31
    entry = await cara.entry(group)
    assert (entry.state, entry.head_seq, entry.unread_count) == (MemberState.MEMBER, 51, 20)
    assert (await ben.entry(group)).unread_count == 50
    assert await ben.readable(group) == seqs(1, 51)
    members = {member.user: member.joined_at async for member in ben.client.members(group)}
    assert members == {ana.user: 0, ben.user: 0, cara.user: 30}


@pytest.mark.parametrize("ended_by", [MemberState.LEFT, MemberState.REMOVED])
async def test_acceptance_2_who_leaves_or_is_removed_gets_nothing_after_it_and_a_replay_says_the_same(
    stage: Stage, ended_by: MemberState
) -> None:
    ana, ben = await stage.people(2)
    group = await stage.group(ana, ben)
    await stage.send(ana, group, 20)
    if ended_by is MemberState.LEFT:
        await ben.client.leave_group(group)
    else:
        assert (await stage.remove(group, ben)).seq == 21
    await stage.send(ana, group, 20)

    async def told() -> Conversation:
        """What ben sees; the own event is the last thing that is delivered (design.md, "leaver and L")."""
        assert await ben.readable(group) == seqs(1, 20)
        entry = await ben.entry(group)
        assert (entry.state, entry.head_seq, entry.unread_count) == (ended_by, 20, 20)
        assert entry.preview is not None
        assert entry.preview.seq == 20
        assert await ben.client.get_total_unread() == 0
        for refused in (ben.client.send_to(group, b"still here"), ben.client.members_page(group)):
            with pytest.raises(PermissionDenied):
                await refused
        replayed = await pull_all(ben.on_another_device(stage))
        assert replayed == {group: seqs(1, 21)}
        return entry

    before = await told()
    assert await ben.told_live(group, 21) == await ben.delivered(group) == seqs(1, 21)
    await ana.told_live(group, 41)
    assert ben.live.ranges(group)[-1] == (21, 21)
    await registered(stage, ben, {group})
    await stage.lose_the_projection([ana, ben])
    assert await told() == before
    assert await ben.delivered(group) == seqs(1, 21)


async def test_acceptance_3_a_new_stay_replaces_the_old_and_what_came_between_is_never_seen(stage: Stage) -> None:
    ana, ben = await stage.people(2)
    group = await stage.group(ana, ben)
    await stage.send(ana, group, 15)
    await ben.client.leave_group(group)
    await stage.send(ana, group, 15)
    assert await ben.delivered(group) == seqs(1, 16)
    assert await ben.readable(group) == seqs(1, 15)
    assert (await stage.add(group, ben)).seq == 32
    await stage.send(ana, group, 10)

    assert await ben.readable(group) == seqs(32, 42)
    assert await ben.told_live(group, 42) == await ben.delivered(group) == [*seqs(1, 16), *seqs(32, 42)]
    entry = await ben.entry(group)
    assert (entry.state, entry.unread_count, entry.earliest_available_seq) == (MemberState.MEMBER, 10, 32)
    assert {member.user: member.joined_at async for member in ana.client.members(group)}[ben.user] == 31
    late = await pull_all(ben.on_another_device(stage))
    assert late == {group: [*seqs(1, 16), *seqs(32, 42)]}


async def test_acceptance_4_under_concurrent_changes_each_message_has_exactly_the_members_of_its_moment(
    stage: Stage,
) -> None:
    owner, *others = await stage.people(7)
    crowd = Crowd(stage, owner, senders=others[:2], comers=others[2:])
    await crowd.play(ROUNDS[stage.suite.ack_level])
    await crowd.check()


async def test_acceptance_4_a_send_at_a_version_that_has_passed_takes_no_seq_and_succeeds_when_frozen_again(
    stage: Stage,
) -> None:
    ana, ben, cara = await stage.people(3)
    group = await stage.group(ana, ben)

    async def send_at(version: int) -> int:
        item = Outgoing(ana.client.actor, b"to those of the version", conversation=group, expected_version=version)
        return (await ana.client.send(item)).seq

    frozen = await ana.client.freeze_delivery(group)
    await stage.add(group, cara)
    with pytest.raises(MembershipChanged):
        await send_at(frozen.membership_version)
    assert await send_at((await ana.client.freeze_delivery(group)).membership_version) == 2
    assert await cara.told_live(group, 2) == [1, 2]


async def test_acceptance_5_after_the_projection_is_lost_and_the_log_has_moved_on_lists_and_unread_are_the_same(
    stage: Stage,
) -> None:
    ana, ben = await stage.people(2)
    groups = [await stage.group(ana, ben) for _ in range(6)]
    for number, group in enumerate(groups[1:], 1):
        await stage.send(ana, group, number)
    direct = (await ana.client.send_to_person(ben.user, b"hi")).conversation
    await ben.client.leave_group(groups[2])
    await stage.send(ana, groups[2], 3)
    await ben.client.mark_read(groups[4], 2)
    await ben.client.set_conversation_flags(groups[5], muted=True)
    everything = {*groups, direct}
    await registered(stage, ben, everything)
    before = await settled(ben, everything)
    unread = await ben.client.get_total_unread()
    mailbox = await pull_all(ben.on_another_device(stage))

    await stage.below.all_archived()
    await stage.suite.kill("session")
    await stage.projection.wipe([ana.user, ben.user])
    await stage.below.cut_dispatch_logs()
    await stage.suite.restart("session")

    assert await listed(ben.client) == before
    assert {entry.conversation: entry.unread_count for entry in before} == {
        groups[0]: 0,
        groups[1]: 1,
        groups[2]: 2,
        groups[3]: 3,
        groups[4]: 2,
        groups[5]: 5,
        direct: 1,
    }
    assert await ben.client.get_total_unread() == unread == 12
    assert await pull_all(ben.on_another_device(stage)) == mailbox


async def settled(person: Person, conversations: set[ConversationId]) -> list[Conversation]:
    """The list once it is complete, and in the order of its own last activities."""
    found: list[Conversation] = []

    async def ordered() -> bool:
        found[:] = await listed(person.client)
        order = [(entry.last_activity_ms, entry.conversation) for entry in found]
        return order == sorted(order, reverse=True) and {entry.conversation for entry in found} == conversations

    await until(ordered)
    return found


async def registered(stage: Stage, person: Person, conversations: set[ConversationId]) -> None:
    """Wait until the person's conversation set in Cassandra, which is the authority, holds these."""
    place = stage.suite.cassandra_place
    assert place is not None
    async with cassandra_opened(place.settings(timeout_seconds=20.0)) as session:
        sets = CassandraConversationSets(session)

        async def there() -> bool:
            return set(await sets.of(stage.tenant, person.user)) >= conversations

        await until(there)
