"""What a person has read, on every device: MarkRead, GetConversation and GetTotalUnread with the real writer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey

from qim.session.v1 import session_pb2
from qim_client import ActorClient, GatewayClient, LeaverHistory, MemberState, OperatorClient, ReadMark
from qim_client.services import Services
from qim_common.errors import InvalidArgument, PermissionDenied
from qim_common.identity import ACTOR_KEY
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7
from qim_devkit.suite import Suite

TENANT = TenantId(1)
SECONDS = 10.0
pytestmark = pytest.mark.server

Person = Callable[[], ActorClient]


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    directory: Path = tmp_path_factory.mktemp("reading")
    async with Suite(directory / "suite") as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def gateway(suite: Suite) -> AsyncIterator[GatewayClient]:
    addresses = suite.addresses
    async with GatewayClient(
        addresses["writer"], addresses["session"], suite.gateway_files(), timeout=SECONDS
    ) as client:
        yield client


@pytest_asyncio.fixture(scope="module")
async def operator(suite: Suite) -> AsyncIterator[OperatorClient]:
    async with OperatorClient(suite.addresses["admin"], suite.operator_files(), TENANT, timeout=SECONDS) as client:
        yield client


class Entries:
    """GetConversation and GetTotalUnread, as they are on the wire."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def one(self, person: ActorClient, conversation: bytes) -> session_pb2.Conversation:
        request = session_pb2.GetConversationRequest(conversation_id=conversation)
        return await self._services.session.call(lambda stub: stub.GetConversation, request, metadata=_metadata(person))

    async def total_unread(self, person: ActorClient) -> int:
        request = session_pb2.GetTotalUnreadRequest()
        answer = await self._services.session.call(
            lambda stub: stub.GetTotalUnread, request, metadata=_metadata(person)
        )
        return answer.unread_count


def _metadata(person: ActorClient) -> tuple[tuple[str, bytes], ...]:
    return ((ACTOR_KEY, person.actor.to_message().SerializeToString()),)


@pytest_asyncio.fixture(scope="module")
async def entries(suite: Suite) -> AsyncIterator[Entries]:
    services = Services(suite.addresses["writer"], suite.addresses["session"], suite.gateway_files(), timeout=SECONDS)
    yield Entries(services)
    await services.close()


@pytest.fixture
def person(gateway: GatewayClient) -> Person:
    return lambda: gateway.as_actor(TENANT, UserId(uuid7()))


async def group_of(owner: ActorClient, *members: ActorClient, messages: int = 0) -> ConversationId:
    group = (await owner.create_group([member.actor.user for member in members])).group
    for number in range(messages):
        await owner.send_to(group, b"%d" % number)
    return group


async def test_a_read_cursor_moves_forward_only_and_is_clamped(person: Person) -> None:
    ana, ben = person(), person()
    group = await group_of(ana, ben, messages=6)
    assert await ben.mark_read(group, 4) == ReadMark(4, 2)
    assert await ben.mark_read(group, 2) == ReadMark(4, 2)
    assert await ben.mark_read(group, 2**53 - 1) == ReadMark(6, 0)
    await ana.send_to(group, b"more")
    assert await ben.mark_read(group, 1) == ReadMark(6, 1)


async def test_it_holds_on_every_device(gateway: GatewayClient, person: Person, entries: Entries) -> None:
    ana, ben = person(), person()
    group = await group_of(ana, ben, messages=3)
    other = gateway.as_actor(TENANT, ben.actor.user, DeviceId(uuid7()))
    await ben.mark_read(group, 2)
    entry = await entries.one(other, group)
    assert (entry.read_seq, entry.unread_count, entry.head_seq) == (2, 1, 3)
    assert entry.preview.body == b"2"


async def test_a_leaver_reads_up_to_the_last_seq_before_the_leave(person: Person) -> None:
    ana, ben = person(), person()
    group = await group_of(ana, ben, messages=3)
    await ben.leave_group(group)
    await ana.send_to(group, b"unseen")
    assert await ben.mark_read(group, 5) == ReadMark(3, 0)


async def test_whoever_may_read_nothing_may_mark_nothing(
    person: Person, operator: OperatorClient, entries: Entries
) -> None:
    ana, ben, eve = person(), person(), person()
    group = await group_of(ana, ben, messages=2)
    await operator.remove_members(group, [ben.actor.user], leaver_history=LeaverHistory.NONE)
    unknown = ConversationId(b"\x02" + uuid7()[1:])
    told = set()
    for somebody, conversation in ((eve, group), (ben, group), (ana, unknown)):
        with pytest.raises(PermissionDenied) as refused:
            await somebody.mark_read(conversation, 1)
        told.add(str(refused.value))
    assert len(told) == 1
    # The entry of a revoked leaver stays; for the others there is none.
    entry = await entries.one(ben, group)
    assert (MemberState(entry.state), entry.head_seq, entry.unread_count) == (MemberState.REMOVED, 0, 0)
    for somebody, conversation in ((eve, group), (ana, unknown)):
        with pytest.raises(PermissionDenied):
            await entries.one(somebody, conversation)


async def test_the_total_counts_only_conversations_that_one_is_still_in(person: Person, entries: Entries) -> None:
    ana, ben = person(), person()
    assert await entries.total_unread(ben) == 0
    first, second, left = [await group_of(ana, ben, messages=number) for number in (1, 2, 4)]
    await ben.leave_group(left)
    listed = [entry.conversation async for entry in ben.conversations()]
    while len(listed) < 3:
        listed = [entry.conversation async for entry in ben.conversations()]
    assert await entries.total_unread(ben) == 3
    await ben.mark_read(second, 1)
    assert await entries.total_unread(ben) == 2
    await ben.mark_read(first, 1)
    assert await entries.total_unread(ben) == 1


@pytest.mark.parametrize("seq", [0, 2**53, 2**64 - 1])
async def test_what_is_no_seq_is_refused_by_name(person: Person, seq: int) -> None:
    ana = person()
    group = await group_of(ana)
    with pytest.raises(InvalidArgument, match="seq"):
        await ana.mark_read(group, seq)


@pytest.mark.parametrize("bad", [b"", b"short", bytes(16), b"\x03" + bytes(15)])
async def test_what_is_no_conversation_is_refused_by_name(person: Person, entries: Entries, bad: bytes) -> None:
    ana = person()
    with pytest.raises(InvalidArgument, match="conversation_id"):
        await ana.mark_read(ConversationId(bad), 1)
    with pytest.raises(InvalidArgument, match="conversation_id"):
        await entries.one(ana, bad)
