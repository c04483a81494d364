"""The preconditions of the trait GroupMembership (group-membership-contract), one test a clause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.message import Message
from tests.support.chat import ANA, BEN, CARA, EVE, Chat, acting, device

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.errors import InternalIdentityRequired, PermissionDenied, RoleNotAllowed
from qim_common.identity import Peer, Role
from qim_common.ids import ConversationId
from qim_common.roles import ADMIN_CHANGE_MEMBERS, CALLERS, CallerKind, caller_kind


async def test_the_owner_of_a_new_group_is_the_authenticated_actor(chat: Chat) -> None:
    """Clause: every actor comes from the authenticated context, no owner that a client claims: whoever the request
    invites, and in whatever order, the owner is the actor."""
    group = await chat.create(CARA, BEN, ANA)
    page = await chat.members.page(acting(CARA), group, 10, "")
    assert [row.user for row in page.rows if row.owner] == [CARA]
    assert {row.user for row in page.rows} == {ANA, BEN, CARA}


async def test_the_sender_of_a_message_is_the_authenticated_actor(chat: Chat) -> None:
    """Clause: every actor comes from the authenticated context, no sender that a client claims: sender and device of
    the record are the actor's, also where the body says something else."""
    group = await chat.create(ANA, BEN)
    sent = await chat.send(BEN, group, body=b"I am " + ANA)
    record = await chat.record(group, sent.seq)
    assert (record.tail.sender, record.tail.device) == (BEN, device(BEN))


@pytest.mark.parametrize(
    "message",
    [
        membership_pb2.GroupCreateRequest,
        membership_pb2.AuthorizeSendRequest,
        membership_pb2.AuthorizeHistoryRequest,
        membership_pb2.MemberPageRequest,
        membership_pb2.FreezeDeliveryRequest,
        writer_pb2.OutgoingMessage,
        writer_pb2.LeaveGroupRequest,
        writer_pb2.PullHistoryRequest,
        writer_pb2.GetMessagesRequest,
        writer_pb2.GetVisibleRangeRequest,
    ],
    ids=lambda message: message.DESCRIPTOR.name,
)
def test_no_request_of_an_end_user_can_name_who_asks(message: type[Message]) -> None:
    """Clause: every actor comes from the authenticated context; an owner, sender or internal identity that a client
    claims is not accepted: the requests have no field for one (the actor stands in the call's metadata, and in a
    stream's frame beside the messages)."""
    words = {word for field in message.DESCRIPTOR.fields_by_name for word in field.split("_")}
    assert not words & {"owner", "sender", "principal", "tenant", "role"}
    assert "actor" not in words or message is writer_pb2.OutgoingMessage
    if message is writer_pb2.OutgoingMessage:
        assert "actor_index" in message.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("has_actor", [False, True])
@pytest.mark.parametrize("has_principal", [False, True])
def test_admin_change_members_takes_an_internal_principal_only(
    role: Role, has_actor: bool, has_principal: bool
) -> None:
    """Clause: admin_change_members takes an explicit InternalPrincipal only: of all callers with all identities, one
    is let through: the admin service with a principal and without an end user."""
    peer = Peer("example.org", role, "x")
    if role is Role.ADMIN and has_principal and not has_actor:
        kind = caller_kind(ADMIN_CHANGE_MEMBERS, peer, has_actor=False, has_principal=True)
        assert kind is CallerKind.PRINCIPAL
        return
    admin_with_an_actor = role is Role.ADMIN and has_principal
    with pytest.raises(RoleNotAllowed if admin_with_an_actor else InternalIdentityRequired):
        caller_kind(ADMIN_CHANGE_MEMBERS, peer, has_actor=has_actor, has_principal=has_principal)


def test_no_method_of_gateways_changes_other_peoples_membership() -> None:
    """Clause: it cannot be reached by any call from outside: what a gateway may call neither adds nor removes anybody
    but the caller."""
    methods = {method.rpartition("/")[2] for method, row in CALLERS.items() if Role.GATEWAY in row}
    assert not {method for method in methods if "Members" in method} - {"MembersPage", "MembersSince"}


Ask = Callable[[Chat, ConversationId], Awaitable[object]]


async def _sends(chat: Chat, group: ConversationId) -> object:
    return await chat.send(BEN, group)


async def _authorizes_send(chat: Chat, group: ConversationId) -> object:
    return await chat.authorization.send(acting(BEN), group)


async def _lists_members(chat: Chat, group: ConversationId) -> object:
    return await chat.members.page(acting(BEN), group, 10, "")


async def _asks_changes(chat: Chat, group: ConversationId) -> object:
    return await chat.members.since(acting(BEN), chat.tenant, group, 1, 10)


@pytest.mark.parametrize("ask", [_sends, _authorizes_send, _lists_members, _asks_changes])
async def test_membership_is_asked_on_every_request(chat: Chat, ask: Ask) -> None:
    """Clause: authorize_send, authorize_history and members_page are called by the writer on every request; the
    gateway's authentication does not replace them: the very next request after a removal is refused, and after a
    return it is served again."""
    group = await chat.create(ANA, BEN)
    await ask(chat, group)
    await chat.remove(group, BEN)
    with pytest.raises(PermissionDenied):
        await ask(chat, group)
    await chat.add(group, BEN)
    await ask(chat, group)


async def test_history_is_cut_anew_on_every_request(chat: Chat) -> None:
    """Clause: authorize_history is called on every request: a page in the middle of reading shows what holds at that
    moment."""
    group = await chat.create(ANA, BEN)
    await chat.send_many(4, ANA, group)
    assert await chat.read(BEN, group) == [1, 2, 3, 4]
    left = await chat.leave(BEN, group)
    await chat.send(ANA, group)
    assert await chat.read(BEN, group) == list(range(1, left.left_at))
    with pytest.raises(PermissionDenied):
        await chat.read(EVE, group)
