"""Who is told of a message, and of what: the whole way from a send to the receiver."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.integration.push.conftest import TENANT, Person, Push, shown
from tests.support.members import Operators
from tests.support.webhook_receiver import WebhookReceiver
from tests.support.writers import until

from qim_client import ActorClient

pytestmark = pytest.mark.server


def told(notifications: list[dict[str, Any]]) -> set[tuple[str | None, int, int]]:
    """Recipient, seq and count of each."""
    return {(one["recipient"], one["seq"], one["count"]) for one in notifications}


def of(client: ActorClient) -> str:
    return shown(client.actor.user)


async def test_members_are_told_with_their_unread_and_the_sender_is_not(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben, cara = person(), person(), person()
    group = (await ana.create_group([ben.actor.user, cara.actor.user])).group
    where = shown(group)
    async with push.running():
        first = await ana.send_to(group, b"hello", custom_type="text")
        await receiver.until(lambda: len(receiver.taken(where)) == 2)
        second = await ben.send_to(group, b"hi")
        await receiver.until(lambda: len(receiver.taken(where)) == 4)
    notifications = receiver.taken(where)
    assert told(notifications) == {
        (of(ben), first.seq, 1),
        (of(cara), first.seq, 1),
        (of(ana), second.seq, 1),
        (of(cara), second.seq, 1),
    }
    (one,) = [one for one in notifications if (one["recipient"], one["seq"]) == (of(cara), first.seq)]
    assert one == {
        "id": f"{TENANT}/{where}/0/{first.seq}/{of(cara)}",
        "tenant": str(TENANT),
        "recipient": of(cara),
        "conversation": where,
        "kind": "group",
        "generation": 0,
        "seq": first.seq,
        "time_ms": first.time_ms,
        "sender": of(ana),
        "custom_type": "text",
        "count": 1,
        "unread": 1,
        "muted": False,
        "hidden": False,
    }
    assert {one["unread"] for one in notifications if one["seq"] == second.seq} == {1, 2}


async def test_who_has_muted_read_hidden_or_left_is_not_told(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, muted, reader, tidy, leaver, cleared, ben = (person() for _ in range(7))
    others = [client.actor.user for client in (muted, reader, ben)]
    group = (await ana.create_group(others)).group
    await muted.set_conversation_flags(group, muted=True)
    second = (await ana.create_group([client.actor.user for client in (tidy, leaver, cleared, ben)])).group
    one = await ana.send_to(group, b"one")
    two = await ana.send_to(second, b"two")
    await reader.mark_read(group)
    await tidy.set_conversation_flags(second, hidden=True)
    await leaver.leave_group(second)
    await cleared.clear_history(second)
    async with push.running():
        await receiver.until(lambda: bool(receiver.taken(shown(group)) and receiver.taken(shown(second))))
    assert told(receiver.taken(shown(group))) == {(of(ben), one.seq, 1)}
    assert told(receiver.taken(shown(second))) == {(of(ben), two.seq, 1)}


async def test_messages_that_were_read_meanwhile_are_not_in_the_count(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    sent = [await ana.send_to_person(ben.actor.user, b"%d" % number) for number in range(3)]
    where = shown(sent[0].conversation)
    await ben.mark_read(sent[0].conversation, sent[1].seq)
    async with push.running():
        await receiver.until(lambda: bool(receiver.taken(where)))
    assert {(one["count"], one["unread"]) for one in receiver.taken(where)} == {(1, 1)}


async def test_what_was_hidden_before_is_told_and_says_so(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    first = await ana.send_to_person(ben.actor.user, b"one")
    direct = first.conversation
    await ben.mark_read(direct)
    await ben.set_conversation_flags(direct, hidden=True)
    await ana.send_to(direct, b"two")
    async with push.running():
        await receiver.until(lambda: bool(receiver.taken(shown(direct))))
    (one,) = receiver.taken(shown(direct))
    assert (one["recipient"], one["hidden"], one["kind"], one["unread"]) == (of(ben), True, "direct", 1)


async def test_newcomers_and_removed_people_are_told_of_what_reached_them(
    push: Push, receiver: WebhookReceiver, person: Person, operator: Operators
) -> None:
    ana, ben, newcomer, removed = (person() for _ in range(4))
    group = (await ana.create_group([ben.actor.user, removed.actor.user])).group
    async with push.running():
        before = await ana.send_to(group, b"before")
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 2)
        await operator.add(group, [newcomer.actor.user])
        between = await ana.send_to(group, b"between")
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 5)
        await operator.remove(group, [removed.actor.user])
        after = await ana.send_to(group, b"after")
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 7)
    assert told(receiver.taken(shown(group))) == {
        (of(ben), before.seq, 1),
        (of(removed), before.seq, 1),
        (of(ben), between.seq, 1),
        (of(removed), between.seq, 1),
        (of(newcomer), between.seq, 1),
        (of(ben), after.seq, 1),
        (of(newcomer), after.seq, 1),
    }


async def test_messages_that_come_together_make_one_notification_a_person(
    push: Push, receiver: WebhookReceiver, person: Person, operator: Operators
) -> None:
    ana, ben, newcomer = person(), person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    for _ in range(3):
        await ana.send_to(group, b"of ana")
    of_ben = await ben.send_to(group, b"of ben")
    await operator.add(group, [newcomer.actor.user])
    last = await ana.send_to(group, b"of ana")
    async with push.running():
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 3)
    notifications = receiver.taken(shown(group))
    assert told(notifications) == {(of(ana), of_ben.seq, 1), (of(ben), last.seq, 4), (of(newcomer), last.seq, 1)}
    assert {one["recipient"]: one["unread"] for one in notifications} == {of(ana): 1, of(ben): 4, of(newcomer): 1}


async def test_bodies_go_along_only_where_that_is_set_and_only_their_beginning(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    large = await ana.send_to(group, b"x" * 10_000, custom_type="large")
    async with push.running(QIM_PUSH_BODY_MAX_BYTES="16"):
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 1)
        small = await ana.send_to(group, b"small")
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 2)
    first, second = receiver.taken(shown(group))
    assert (first["seq"], first["sender"], first["custom_type"]) == (large.seq, of(ana), "large")
    assert (base64.b64decode(first["body"]), first["body_truncated"]) == (b"x" * 16, True)
    assert (second["seq"], base64.b64decode(second["body"]), second["body_truncated"]) == (small.seq, b"small", False)


async def test_of_many_recipients_nobody_is_counted_and_nothing_is_quoted(
    push: Push, receiver: WebhookReceiver, person: Person
) -> None:
    ana, others = person(), [person() for _ in range(3)]
    group = (await ana.create_group([client.actor.user for client in others])).group
    await ana.send_to(group, b"hello")
    settings = {"QIM_PUSH_UNREAD_MAX_RECIPIENTS": "2", "QIM_PUSH_BODY_MAX_BYTES": "16"}
    async with push.running(**settings):
        await receiver.until(lambda: len(receiver.taken(shown(group))) == 3)
    assert [(one["unread"], "body" in one) for one in receiver.taken(shown(group))] == [(None, False)] * 3


@pytest.mark.parametrize("setting", ["skip", "topic"])
async def test_a_big_group_is_left_out_or_one_topic(
    push: Push, receiver: WebhookReceiver, person: Person, setting: str
) -> None:
    ana, others = person(), [person() for _ in range(7)]
    big = (await ana.create_group([client.actor.user for client in others])).group
    sent = [await ana.send_to(big, b"hello") for _ in range(2)]
    small = (await ana.create_group([others[0].actor.user])).group
    await ana.send_to(small, b"hello")
    async with push.running(QIM_PUSH_BIG_GROUPS=setting):
        await receiver.until(lambda: bool(receiver.taken(shown(small))))
        if setting == "topic":
            await receiver.until(lambda: bool(receiver.taken(shown(big))))
    told_of = receiver.taken(shown(big))
    if setting == "skip":
        assert told_of == []
        return
    assert told(told_of) == {(None, sent[-1].seq, 2)}
    assert told_of[0]["id"].endswith("/*")
    assert (told_of[0]["sender"], told_of[0]["unread"], "body" in told_of[0]) == (of(ana), None, False)


async def test_what_is_too_old_is_not_told_any_more(push: Push, receiver: WebhookReceiver, person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"old")
    async with push.running(QIM_PUSH_MAX_AGE_SECONDS="0.000001") as process:
        await until(lambda: push.counts(process, 'qim_push_messages_left_out_total{why="expired"}'))
    async with push.running():
        new = await ana.send_to(group, b"new")
        await receiver.until(lambda: bool(receiver.taken(shown(group))))
    assert told(receiver.taken(shown(group))) == {(of(ben), new.seq, 1)}
