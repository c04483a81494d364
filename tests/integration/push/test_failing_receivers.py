"""Receivers that are down, slow or refuse, and push processes that die: nothing is lost, and repeats say so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.integration.push.conftest import TENANT, Person, Push, shown
from tests.support.projection import BUCKETS
from tests.support.webhook_receiver import Answer, WebhookReceiver
from tests.support.writers import until

from qim_common.ids import ConversationId
from qim_common.topology import Topology
from qim_devkit.processes import SuiteError

pytestmark = pytest.mark.server


def ids(notifications: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in notifications]


async def test_what_a_receiver_does_not_take_comes_again_with_the_same_id(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    sent = await ana.send_to(group, b"hello")
    receiver.answers[shown(group)].extend([Answer(0), Answer(None), Answer(503, (("retry-after", "1"),))])
    async with push.running(QIM_WEBHOOK_TIMEOUT_SECONDS="0.5"):
        await receiver.until(lambda: bool(receiver.taken(shown(group))))
    assert [one["seq"] for one in receiver.taken(shown(group))] == [sent.seq]
    assert len(set(ids(receiver.seen(shown(group))))) == 1


async def test_what_came_while_the_receiver_was_down_comes_when_it_is_back(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    async with push.running() as process:
        await receiver.close()
        for _ in range(3):
            last = await ana.send_to(group, b"hello")
        await until(lambda: push.counts(process, "qim_push_failures_total"))
        await receiver.open()
        await receiver.until(lambda: any(one["seq"] == last.seq for one in receiver.taken(shown(group))))
        assert "confidential" not in process.log_tail()
    assert sum(one["count"] for one in receiver.taken(shown(group))) >= 3


async def test_a_refused_notification_is_dropped_and_holds_nobody_up(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, refused, *others = (person() for _ in range(5))
    people = [client.actor.user for client in (refused, *others)]
    group = (await ana.create_group(people)).group
    receiver.refuses = lambda one: bool(one["recipient"] == shown(refused.actor.user))
    await ana.send_to(group, b"hello")
    async with push.running() as process:
        await receiver.until(lambda: len(receiver.taken(shown(group))) == len(others))
        await until(lambda: push.counts(process, "qim_push_refused_total"))
        later = await ana.send_to(group, b"later")
        await receiver.until(lambda: sum(one["seq"] == later.seq for one in receiver.taken(shown(group))) == 3)
    everybody = {one["recipient"] for one in receiver.taken(shown(group))}
    assert everybody == {shown(client.actor.user) for client in others}


async def test_a_process_that_dies_before_its_checkpoint_repeats_with_the_same_id(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"hello")
    receiver.answers[shown(group)].append(Answer(None))
    process = push.process(QIM_WEBHOOK_TIMEOUT_SECONDS="30")
    await process.start()
    await receiver.until(lambda: bool(receiver.seen(shown(group))))
    await process.kill()
    async with push.running():
        await receiver.until(lambda: bool(receiver.taken(shown(group))))
        new = await ana.send_to(group, b"new")
        await receiver.until(lambda: any(one["seq"] == new.seq for one in receiver.taken(shown(group))))
    first, repeated, other = ids(receiver.seen(shown(group)))
    assert first == repeated != other


async def test_a_process_that_ends_in_order_repeats_nothing(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    for number in range(3):
        await ana.send_to(group, b"hello")
        async with push.running():
            await receiver.until(lambda number=number: len(receiver.taken(shown(group))) == number + 1)  # type: ignore[misc]
    assert len(set(ids(receiver.taken(shown(group))))) == 3


async def test_a_receiver_that_hangs_for_one_conversation_holds_up_no_other_partition(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    hanging = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(hanging, b"hello")
    receiver.answers[shown(hanging)].append(Answer(None))
    process = push.process(QIM_WEBHOOK_TIMEOUT_SECONDS="60")
    await process.start()
    try:
        await receiver.until(lambda: bool(receiver.seen(shown(hanging))))
        group = hanging
        while bucket(push, group) == bucket(push, hanging):
            group = (await ana.create_group([ben.actor.user])).group
        await ana.send_to(group, b"hello")
        await receiver.until(lambda: bool(receiver.taken(shown(group))))
        assert receiver.taken(shown(hanging)) == []
    finally:
        await process.kill()


async def test_replicas_share_the_partitions_and_a_dead_ones_are_taken_over(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(12)]
    async with push.running() as first:
        second = push.process()
        await second.start()
        for process in (first, second):
            await until(lambda process=process: push.counts(process, "qim_session_partitions_held"))  # type: ignore[misc]
        await second.kill()
        for group in groups:
            await ana.send_to(group, b"hello")
        await receiver.until(lambda: all(receiver.taken(shown(group)) for group in groups))
    assert all(len(set(ids(receiver.taken(shown(group))))) == 1 for group in groups)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"QIM_WEBHOOK_URL": "http://push.example/hook"}, "QIM_WEBHOOK_URL: write an https URL"),
        ({"QIM_WEBHOOK_SECRET_FILE": __file__}, "refusing to start: "),
        ({"QIM_WEBHOOK_CA_FILE": __file__}, "QIM_WEBHOOK_CA_FILE: holds no certificate"),
        ({"QIM_INSTALLATION_ID": "another"}, "refusing to start: "),
        ({"QIM_METRICS_LISTEN": "192.0.2.1:1"}, "an address cannot be bound"),
    ],
)
async def test_a_bad_configuration_ends_the_process_with_words(
    push: Push, settings: dict[str, str], words: str
) -> None:
    process = push.process(**settings)
    with pytest.raises(SuiteError, match=re.escape(words)):
        await process.start()


def bucket(push: Push, group: ConversationId) -> int:
    return Topology(push.suite.valkey_addresses, BUCKETS, "tests").conversation_bucket(TENANT, group)
