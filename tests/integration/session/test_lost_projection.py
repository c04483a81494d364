"""The projection is lost: lists are built again from the authority, person by person, and say what they said before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from urllib.request import urlopen

import pytest
import pytest_asyncio
from tests.integration.session.running import (
    TENANT,
    Service,
    ids,
    listed,
    lists_all,
    running,
    seqs,
    until,
)

from qim_client import ActorClient, Conversation
from qim_common.ids import ConversationId, person_bucket
from qim_common.keys import BucketKeys, PersonKeys, checkpoints, progress, projection_epoch

BUCKETS = 256
pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Groups of more than three are big, so that both kinds of conversations are in each list."""
    async with running(tmp_path_factory.mktemp("lost-projection"), QIM_PROJECTION_FANOUT_MAX_MEMBERS="3") as started:
        yield started


def keys_of(service: Service, person: ActorClient) -> tuple[int, PersonKeys]:
    bucket = person_bucket(TENANT, person.actor.user, BUCKETS)
    return bucket % len(service.instances), PersonKeys(TENANT, person.actor.user, bucket)


async def registered(service: Service, person: ActorClient, conversations: set[ConversationId]) -> None:
    """Wait until the person's conversation set holds these."""
    position, keys = keys_of(service, person)

    async def there() -> bool:
        return {ConversationId(one) for one in await service.instances[position].hkeys(keys.authority)} >= conversations

    await until(there)


async def wipe(service: Service, people: Sequence[ActorClient]) -> None:
    """Lose lists, big conversations, checkpoints, progress, epochs and marks; cursors, flags and sets stay."""
    for position, instance in enumerate(service.instances):
        await instance.delete(checkpoints(position), progress(position), projection_epoch(position))
    for person in people:
        position, keys = keys_of(service, person)
        await service.instances[position].delete(keys.convs, keys.bigconvs, keys.epoch)


async def cut_dispatch_logs(service: Service) -> None:
    """Move the retention window past everything that was ever dispatched."""
    for bucket in range(BUCKETS):
        await service.instances[bucket % len(service.instances)].xtrim(BucketKeys(bucket).dispatch, maxlen=0)


async def metric(service: Service, name: str) -> float:
    """A counter of the session service; 0 where it never counted."""
    url = f"http://{service.suite.metrics_address('session')}/metrics"
    text = await asyncio.to_thread(lambda: urlopen(url, timeout=5).read().decode())
    values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(values[0]) if values else 0.0


async def a_full_life(service: Service) -> tuple[ActorClient, set[ConversationId]]:
    """Ben with small and big groups, one left, one hidden, one muted, one read, some that nobody wrote in."""
    ana, ben = service.person(), service.person()
    others = [service.person().actor.user for _ in range(4)]
    small = [(await ana.create_group([ben.actor.user])).group for _ in range(6)]
    big = [(await ana.create_group([ben.actor.user, *others])).group for _ in range(3)]
    for number, group in enumerate([big[1], small[2], big[0], small[0], small[4], small[3]]):
        for _ in range(number + 1):
            await ana.send_to(group, b"hello")
    direct = await ana.send_to_person(ben.actor.user, b"hi")
    await ben.leave_group(small[3])
    await ana.send_to(small[3], b"unseen")
    await ben.set_conversation_flags(small[2], hidden=True)
    await ben.set_conversation_flags(small[4], muted=True)
    await ben.mark_read(small[4], 3)
    await ana.send_to(big[1], b"again")
    return ben, {*small, *big, direct.conversation}


async def settled(service: Service, person: ActorClient, conversations: set[ConversationId]) -> list[Conversation]:
    """The list once it is complete and in the order of its own last activities."""
    await lists_all(person, conversations)
    found: list[Conversation] = []

    async def ordered() -> bool:
        found[:] = await listed(person, include_hidden=True)
        order = [(entry.last_activity_ms, entry.conversation) for entry in found]
        return order == sorted(order, reverse=True)

    await until(ordered)
    return found


async def test_acceptance_5_after_a_lost_projection_and_checkpoint_a_list_has_the_same_conversations_and_unread(
    service: Service,
) -> None:
    ben, conversations = await a_full_life(service)
    before = await settled(service, ben, conversations)
    visible = await ids(ben)
    unread = await ben.get_total_unread()
    page = await ben.pull_mailbox(limit=5)
    await ben.pull_mailbox(ack=[page.entries[-1].cursor], limit=1)
    mailbox = await ben.pull_mailbox(limit=1000)
    await registered(service, ben, conversations)

    await service.suite.kill("session")
    await wipe(service, [ben])
    await cut_dispatch_logs(service)
    await service.suite.restart("session")

    assert await listed(ben, include_hidden=True) == before
    assert await ids(ben) == visible
    assert await ben.get_total_unread() == unread
    after = await ben.pull_mailbox(limit=1000)
    assert sorted(seqs(after.entries)) == sorted(seqs(mailbox.entries))
    assert {entry.conversation for entry in after.entries} == {entry.conversation for entry in mailbox.entries}
    assert await metric(service, "qim_session_projection_user_rebuilt_total") >= 1
    assert await metric(service, "qim_session_group_interval_missing_total") == 0


async def test_a_group_that_nobody_has_written_in_is_back_although_its_creation_was_never_consumed(
    service: Service,
) -> None:
    ana, ben = service.person(), service.person()
    await ids(ben)
    await service.suite.kill("session")
    group = (await ana.create_group([ben.actor.user])).group
    await cut_dispatch_logs(service)
    await service.suite.restart("session")
    await lists_all(ben, {group})
    await lists_all(ana, {group})
    assert await ids(ben) == [group]


@pytest.mark.parametrize("first", ["list", "get", "total", "read", "flags", "pull"])
async def test_a_call_of_any_kind_rebuilds_while_the_service_runs(service: Service, first: str) -> None:
    ana, ben = service.person(), service.person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(3)]
    for group in groups:
        await ana.send_to(group, b"one")
    await settled(service, ben, set(groups))
    await registered(service, ben, set(groups))
    position, keys = keys_of(service, ben)
    await service.instances[position].delete(keys.convs, keys.bigconvs, keys.epoch)
    match first:
        case "list":
            assert await ids(ben) == groups[::-1]
        case "get":
            await ben.get_conversation(groups[0])
        case "total":
            assert await ben.get_total_unread() == 3
        case "read":
            await ben.mark_read(groups[0], 1)
        case "flags":
            await ben.set_conversation_flags(groups[0], muted=True)
        case "pull":
            assert {entry.conversation for entry in (await ben.pull_mailbox()).entries} == set(groups)
    assert await service.instances[position].zcard(keys.convs) == 3
    assert await service.instances[position].exists(keys.epoch)


async def test_a_raised_epoch_rebuilds_each_person_once(service: Service) -> None:
    ana, ben = service.person(), service.person()
    group = (await ana.create_group([ben.actor.user])).group
    await lists_all(ben, {group})
    await registered(service, ben, {group})
    before = await metric(service, "qim_session_projection_user_rebuilt_total")
    position, keys = keys_of(service, ben)
    old = int(await service.instances[position].get(keys.epoch))
    await service.instances[position].incr(projection_epoch(position))
    await asyncio.gather(*(ids(ben) for _ in range(10)))
    assert await ids(ben) == [group]
    risen = int(await service.instances[position].get(keys.epoch)) - old
    rebuilt = await metric(service, "qim_session_projection_user_rebuilt_total") - before
    assert 1 <= rebuilt <= risen, "once an epoch, whoever raised it"


async def test_a_registered_conversation_without_a_stay_is_noticed(service: Service) -> None:
    """An invariant is broken on purpose: the metric that stays zero does not."""
    ben = service.person()
    assert await ids(ben) == []
    before = await metric(service, "qim_session_group_interval_missing_total")
    position, keys = keys_of(service, ben)
    await service.instances[position].hset(keys.authority, b"\x02" + b"!" * 15, b"\x02" + bytes(8))
    await service.instances[position].delete(keys.epoch)
    assert await ids(ben) == []
    assert await metric(service, "qim_session_group_interval_missing_total") == before + 1
