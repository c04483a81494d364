"""The session process behind mTLS, with the real writer: lists and mailboxes of people who write, come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey

from qim.membership.v1 import membership_pb2
from qim.membership.v1.membership_pb2_grpc import GroupMembershipStub
from qim_client import ActorClient, Conversation, GatewayClient, MailboxEntry
from qim_client.config import ClientConfig
from qim_client.values import DeviceCursor
from qim_common.channels import ChannelProvider
from qim_common.enums import MemberState
from qim_common.errors import BackendUnavailable, InvalidArgument, PageTokenInvalid, ResyncRequired, TooManyItems
from qim_common.identity import PRINCIPAL_KEY, Principal, PrincipalKind, Role
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, direct_conversation_id, uuid7
from qim_common.tls import PemFiles
from qim_devkit.suite import Suite

TENANT = TenantId(1)
BOUND_SECONDS = 20.0
pytestmark = pytest.mark.server


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the consumer brings about."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not await condition():  # noqa: ASYNC110  the service tells nobody
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    directory: Path = tmp_path_factory.mktemp("session-service")
    async with Suite(directory / "suite", services=("writer", "session")) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def gateway(suite: Suite) -> AsyncIterator[GatewayClient]:
    profile = ClientConfig.load(suite.paths.client_config).require_gateway()
    async with GatewayClient.from_profile(profile, timeout=10.0) as client:
        yield client


Person = Callable[[], ActorClient]


@pytest.fixture
def person(gateway: GatewayClient) -> Person:
    """Makes a new person, so that tests do not meet each other's conversations."""
    return lambda: gateway.as_actor(TENANT, UserId(uuid7()))


async def add_members(suite: Suite, group: ConversationId, people: Sequence[UserId]) -> int:
    """Let an operator add people; returns the seq of the event."""
    files = suite.pki.issue(Role.ADMIN, "test-admin")
    channels = ChannelProvider(suite.addresses["writer"], PemFiles(files.cert, files.key, (files.ca,)))
    principal = Principal(PrincipalKind.OPERATOR, "tester", TENANT, None)
    try:
        answer = await channels.stub(GroupMembershipStub).AdminChangeMembers(
            membership_pb2.AdminMembershipChange(
                request_id=uuid7(),
                group_id=group,
                kind=membership_pb2.AdminMembershipChange.KIND_ADD,
                user_ids=people,
            ),
            metadata=((PRINCIPAL_KEY, principal.to_message().SerializeToString()),),
            timeout=10.0,
        )
    finally:
        await channels.close()
    return answer.seq


async def listed(client: ActorClient) -> list[Conversation]:
    return list((await client.list_conversations(page_size=1000)).conversations)


async def entry_with_head(client: ActorClient, conversation: ConversationId, head: int) -> Conversation:
    """The list entry of a conversation once it shows this head."""
    found: list[Conversation] = []

    async def shown() -> bool:
        found[:] = [
            entry for entry in await listed(client) if entry.conversation == conversation and entry.head_seq == head
        ]
        return bool(found)

    await until(shown)
    return found[0]


def seqs(entries: Sequence[MailboxEntry]) -> list[int]:
    return [entry.message.seq for entry in entries if entry.message is not None]


async def test_a_new_group_is_listed_by_everybody_before_anybody_writes(person: Person) -> None:
    ana, ben = person(), person()
    created = await ana.create_group([ben.actor.user])
    entry = await entry_with_head(ben, created.group, 0)
    assert (entry.state, entry.unread_count, entry.preview) == (MemberState.MEMBER, 0, None)
    assert entry.last_activity_ms == created.time_ms


async def test_a_list_is_newest_first_with_unread_and_preview(person: Person) -> None:
    ana, ben = person(), person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(3)]
    for group in (groups[1], groups[0]):
        await ana.send_to(group, b"first")
        await ana.send_to(group, b"second")

    async def in_order() -> bool:
        # States are the writer's and always new; the order follows when the messages are projected.
        return [entry.conversation for entry in await listed(ben)] == [groups[0], groups[1], groups[2]]

    await until(in_order)
    entries = await listed(ben)
    assert [entry.unread_count for entry in entries] == [2, 2, 0]
    assert entries[0].preview is not None
    assert entries[0].preview.body == b"second"
    assert [entry.unread_count for entry in await listed(ana)] == [0, 0, 0]


async def test_a_list_is_paged_by_tokens_that_are_bound_to_their_person(person: Person) -> None:
    ana, ben = person(), person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(5)]

    async def all_are_there() -> bool:
        return len(await listed(ben)) == 5

    await until(all_are_there)
    first = await ben.list_conversations(page_size=2)
    found, token = list(first.conversations), first.next_page_token
    while token:
        page = await ben.list_conversations(page_size=2, page_token=token)
        found, token = [*found, *page.conversations], page.next_page_token
        assert len(found) <= 2 * len(groups)
    assert {entry.conversation for entry in found} == set(groups)
    with pytest.raises(PageTokenInvalid):
        await ana.list_conversations(page_size=2, page_token=first.next_page_token)
    with pytest.raises(PageTokenInvalid):
        await ben.list_conversations(page_size=2, page_token=first.next_page_token[:-4] + "BAAA")


@pytest.mark.parametrize("size", [0, 1001])
async def test_a_page_size_out_of_range_is_refused_by_name(person: Person, size: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await person().list_conversations(page_size=size)
    assert [violation.field for violation in refused.value.violations] == ["page_size"]


async def test_a_leaver_keeps_the_entry_as_it_was_at_the_leave(person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"seen")
    await ben.leave_group(group)
    await ana.send_to(group, b"unseen")
    await entry_with_head(ana, group, 3)
    entry = await entry_with_head(ben, group, 1)
    assert (entry.state, entry.unread_count, entry.stay.left_at) == (MemberState.LEFT, 1, 2)
    assert entry.preview is not None
    assert entry.preview.body == b"seen"


async def test_a_direct_conversation_appears_in_both_lists(person: Person) -> None:
    ana, ben = person(), person()
    sent = await ana.send_to_person(ben.actor.user, b"hi")
    conversation = direct_conversation_id(TENANT, ana.actor.user, ben.actor.user)
    assert sent.conversation == conversation
    assert (await entry_with_head(ben, conversation, 1)).unread_count == 1
    assert (await entry_with_head(ana, conversation, 1)).unread_count == 0


async def test_a_mailbox_holds_what_was_delivered_and_shrinks_by_acknowledging(person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    for number in range(5):
        await ana.send_to(group, b"%d" % number)
    await entry_with_head(ben, group, 5)
    page = await ben.pull_mailbox(limit=3)
    assert (seqs(page.entries), page.more) == ([1, 2, 3], True)
    assert await ben.pull_mailbox(limit=3) == page
    page = await ben.pull_mailbox(ack=[page.entries[-1].cursor], limit=3)
    assert (seqs(page.entries), page.more) == ([4, 5], False)
    page = await ben.pull_mailbox(ack=[page.entries[-1].cursor])
    assert (page.entries, page.more) == ((), False)


async def test_an_acknowledgement_never_moves_back_nor_beyond_what_was_delivered(person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"one")
    await entry_with_head(ben, group, 1)
    assert (await ben.pull_mailbox(ack=[DeviceCursor(group, 0, 1_000_000)])).entries == ()
    await ben.pull_mailbox(ack=[DeviceCursor(group, 0, 0)])
    await ana.send_to(group, b"two")
    await entry_with_head(ben, group, 2)
    assert seqs((await ben.pull_mailbox()).entries) == [2]


async def test_devices_acknowledge_for_themselves(gateway: GatewayClient, person: Person) -> None:
    ana, user = person(), UserId(uuid7())
    phone = gateway.as_actor(TENANT, user, DeviceId(uuid7()))
    laptop = gateway.as_actor(TENANT, user, DeviceId(uuid7()))
    group = (await ana.create_group([user])).group
    await ana.send_to(group, b"one")
    await entry_with_head(phone, group, 1)
    await phone.pull_mailbox(ack=[DeviceCursor(group, 0, 1)])
    assert seqs((await laptop.pull_mailbox()).entries) == [1]


async def test_a_newcomer_gets_the_own_join_and_what_follows(suite: Suite, person: Person) -> None:
    ana, cara = person(), person()
    group = (await ana.create_group([person().actor.user])).group
    await ana.send_to(group, b"before")
    join = await add_members(suite, group, [cara.actor.user])
    await ana.send_to(group, b"after")
    await entry_with_head(cara, group, 3)
    assert seqs((await cara.pull_mailbox()).entries) == [join, 3] == [2, 3]


async def test_a_leaver_gets_the_own_leave_and_nothing_after_it(person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"before")
    await ben.leave_group(group)
    await ana.send_to(group, b"after")
    await entry_with_head(ana, group, 3)
    page = await ben.pull_mailbox()
    assert (seqs(page.entries), page.more) == ([1, 2], False)


async def test_a_thousand_people_who_join_at_once_are_all_listed(suite: Suite, person: Person) -> None:
    ana = person()
    group = (await ana.create_group([])).group
    people = [person() for _ in range(1000)]
    await add_members(suite, group, [one.actor.user for one in people])
    for one in (people[0], people[-1]):
        assert (await entry_with_head(one, group, 1)).state is MemberState.MEMBER
        assert seqs((await one.pull_mailbox()).entries) == [1]


async def test_acknowledging_foreign_and_unknown_conversations_has_no_effect(person: Person) -> None:
    ana, ben, eve = person(), person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"one")
    unknown = ConversationId(b"\x02" + uuid7()[1:])
    foreign = [DeviceCursor(group, 0, 1), DeviceCursor(unknown, 0, 1)]
    assert (await eve.pull_mailbox(ack=foreign)).entries == ()
    await entry_with_head(ben, group, 1)
    assert seqs((await ben.pull_mailbox()).entries) == [1]


async def test_acknowledging_another_generation_asks_to_resynchronise(person: Person) -> None:
    ana = person()
    group = (await ana.create_group([])).group
    with pytest.raises(ResyncRequired):
        await ana.pull_mailbox(ack=[DeviceCursor(group, 7, 1)])


async def test_bad_mailbox_requests_are_refused_by_name(person: Person) -> None:
    ana = person()
    for limit in (0, 1001):
        with pytest.raises(InvalidArgument, match="limit"):
            await ana.pull_mailbox(limit=limit)
    for bad in (b"", b"short", bytes(16), b"\x03" + uuid7()[1:]):
        with pytest.raises(InvalidArgument, match=r"ack\[0\].conversation_id"):
            await ana.pull_mailbox(ack=[DeviceCursor(ConversationId(bad), 0, 1)])
    many = [DeviceCursor(ConversationId(b"\x02" + uuid7()[1:]), 0, 1)] * 1001
    with pytest.raises(TooManyItems):
        await ana.pull_mailbox(ack=many)
    assert (await ana.pull_mailbox()).entries == ()


async def test_large_messages_come_in_several_pulls_and_short_pages(person: Person) -> None:
    """Their previews together are above what one answer of the writer may hold."""
    ana, ben = person(), person()
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(150)]
    await asyncio.gather(*(ana.send_to(group, b"x" * 65_536) for group in groups))

    async def all_are_listed() -> bool:
        return {entry.conversation async for entry in ben.conversations() if entry.head_seq == 1} == set(groups)

    await until(all_are_listed)
    collected: list[ConversationId] = []
    cursors: list[DeviceCursor] = []
    while True:
        page = await ben.pull_mailbox(ack=cursors, limit=1000)
        cursors = [entry.cursor for entry in page.entries]
        collected += [entry.conversation for entry in page.entries]
        if not page.more:
            break
    assert sorted(collected) == sorted(groups)


async def test_an_outage_of_the_writer_is_named_and_over_when_it_is_back(suite: Suite, person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await entry_with_head(ben, group, 0)
    await suite.kill("writer")
    with pytest.raises(BackendUnavailable):
        await ben.list_conversations(timeout=2.0)
    await suite.restart("writer")
    await ana.send_to(group, b"again")
    assert (await entry_with_head(ben, group, 1)).unread_count == 1


async def test_a_restarted_session_service_goes_on_where_it_stood(suite: Suite, person: Person) -> None:
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"one")
    await entry_with_head(ben, group, 1)
    await suite.kill("session")
    await ana.send_to(group, b"two")
    await suite.restart("session")
    assert (await entry_with_head(ben, group, 2)).unread_count == 2
