"""The writer on the comparison backend, over mTLS: what it serves, what it cannot, and when it does not start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import pytest_asyncio
from tests.support.refusals import of_error
from tests.support.scylla import refused_start, scylla_environment, scylla_writers
from tests.support.writers import ANA, BEN, CARA, DAN, SECONDS, TENANT, Writers, as_principal, person

from qim.writer.v1 import group_control_pb2, internal_pb2
from qim_client.values import GroupSettings, Outgoing
from qim_common.cassandra import CassandraSettings
from qim_common.errors import PermissionDenied, QimError
from qim_common.ids import ConversationId, uuid7
from qim_devkit.cassandra import CassandraCluster

pytestmark = pytest.mark.server

REFUSED = 1
MISCONFIGURED = 2


@pytest_asyncio.fixture(scope="module")
async def environment(cassandra_run: tuple[CassandraCluster, Path], scylla_schema: CassandraSettings) -> dict[str, str]:
    """The variables of a writer on it."""
    return scylla_environment(cassandra_run[0], scylla_schema)


@pytest_asyncio.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> AsyncIterator[Writers]:
    """One writer for all tests here."""
    async with scylla_writers(tmp_path_factory.mktemp("scylla") / "suite", environment) as writers:
        yield writers


@pytest_asyncio.fixture
async def group(served: Writers) -> ConversationId:
    """Ana's group with Ben, in which Ben has written the seq 1."""
    created = await served.user(ANA).create_group([BEN])
    await served.user(BEN).send_to(created.group, b"hello")
    return created.group


async def test_a_group_is_created_written_in_and_read(served: Writers, group: ConversationId) -> None:
    ana, ben = served.user(ANA), served.user(BEN)
    frozen = await ana.freeze_delivery(group)
    item = Outgoing(ana.actor, b"second", conversation=group, expected_version=frozen.membership_version)
    assert (await ana.send(item)).seq == (await ana.send(item)).seq == 2

    page = await ben.pull_history(group)
    assert [(message.seq, message.body) for message in page.messages] == [(2, b"second"), (1, b"hello")]
    assert [message.seq for message in (await ben.get_messages(group, [1, 7])).messages] == [1]
    assert {member.user for member in (await ana.members_page(group)).members} == {ANA, BEN}
    assert set(await served.recipients(group, 1)) == {ANA, BEN}
    assert (await ana.members_since(group, 1)).changes == ()
    for denied in (served.user(CARA).pull_history(group), served.user(CARA).send_to(group, b"no")):
        with pytest.raises(PermissionDenied):
            await denied


async def test_a_stream_of_sends_keeps_its_order_and_a_direct_conversation_begins_with_one(served: Writers) -> None:
    people = [person(number) for number in range(5)]
    created = await served.user(people[0]).create_group(people[1:])
    items = [Outgoing(served.user(who).actor, b"x", conversation=created.group) for _ in range(10) for who in people]
    async with served.gateway_client.open_stream() as stream:
        outcomes = await stream.send(items)
    assert [outcome.sent.seq for outcome in outcomes if outcome.sent] == list(range(1, 51))
    assert (await served.user(ANA).send_to_person(DAN, b"hello")).seq == 1


AS_OPERATOR: Final[dict[str, Any]] = {"timeout": SECONDS, "metadata": as_principal()}


async def reason(call: Awaitable[object]) -> str:
    """Why a call was refused, by the typed client or by a bare stub."""
    try:
        await call
    except QimError as error:
        return error.reason
    except grpc.aio.AioRpcError as error:
        return of_error(error).reason
    return ""


CHANGES: dict[str, Callable[[Writers, ConversationId], Awaitable[object]]] = {
    "LeaveGroup": lambda w, g: w.user(BEN).leave_group(g),
    "LeaveGroup of an unknown group": lambda w, g: w.user(BEN).leave_group(ConversationId(b"\2" + uuid7()[1:])),
    "AdminChangeMembers, adding": lambda w, g: w.change(g, [CARA]),
    "AdminChangeMembers, adding a member": lambda w, g: w.change(g, [BEN]),
    "AdminChangeMembers, removing": lambda w, g: w.change(g, [BEN], remove=True),
    "ClearHistory": lambda w, g: w.user(BEN).clear_history(g),
    "ClearGroupHistory": lambda w, g: w.user(ANA).clear_group_history(g),
    "TransferOwnership": lambda w, g: w.user(ANA).transfer_ownership(g, BEN),
    "CreateGroup with a retention": lambda w, g: w.user(ANA).create_group(settings=GroupSettings(retention_days=7)),
    "GroupControl.UpdateGroupSettings": lambda w, g: w.caller("admin").control.UpdateGroupSettings(
        group_control_pb2.ControlUpdateGroupSettingsRequest(request_id=uuid7(), group_id=g), **AS_OPERATOR
    ),
    "GroupControl.TransferOwnership": lambda w, g: w.caller("admin").control.TransferOwnership(
        group_control_pb2.ControlTransferOwnershipRequest(request_id=uuid7(), group_id=g, new_owner_user_id=BEN),
        **AS_OPERATOR,
    ),
    "GroupControl.ClearGroupHistory": lambda w, g: w.caller("admin").control.ClearGroupHistory(
        group_control_pb2.ControlClearGroupHistoryRequest(request_id=uuid7(), group_id=g), **AS_OPERATOR
    ),
    "GroupControl.FreezeGroup": lambda w, g: w.caller("admin").control.FreezeGroup(
        group_control_pb2.ControlFreezeGroupRequest(request_id=uuid7(), group_id=g, frozen=True), **AS_OPERATOR
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_every_change_of_members_or_state_is_unsupported_and_changes_nothing(
    served: Writers, group: ConversationId, change: str
) -> None:
    before = await served.user(BEN).freeze_delivery(group)
    assert await reason(CHANGES[change](served, group)) == "UNSUPPORTED_BY_BACKEND"
    assert await served.user(BEN).freeze_delivery(group) == before


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda w, g: w.user(BEN).pull_history(g, limit=0), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(BEN).pull_history(ConversationId(b"\3" + g[1:])), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(BEN).members_since(g, 2), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(BEN).members_since(g, 0), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(BEN).send_to(g, b"x", custom_type="qim.membership.v1"), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(BEN).send_to(g, bytes(65_537)), "MESSAGE_TOO_LARGE"),
        (lambda w, g: w.user(BEN).create_group(settings=GroupSettings(member_limit=200_000)), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(ANA).create_group([BEN], settings=GroupSettings(member_limit=1)), "MEMBER_LIMIT_EXCEEDED"),
        (lambda w, g: w.user(BEN).create_group(group=g), "GROUP_ALREADY_EXISTS"),
        (lambda w, g: w.user(BEN).clear_history(g, request_id=bytes(16)), "INVALID_ARGUMENT"),
        (lambda w, g: w.user(CARA).members_page(g), "PERMISSION_DENIED"),
        (lambda w, g: w.recipients(g, 2), "INVALID_ARGUMENT"),
        (lambda w, g: w.recipients(ConversationId(b"\2" + uuid7()[1:]), 1), "PERMISSION_DENIED"),
    ],
)
async def test_bad_requests_are_refused_by_their_reasons(
    served: Writers, group: ConversationId, call: Callable[[Writers, ConversationId], Awaitable[object]], expected: str
) -> None:
    assert await reason(call(served, group)) == expected


async def test_operators_and_the_session_service_read_what_there_is(served: Writers, group: ConversationId) -> None:
    control = served.caller("admin").control
    found = await control.GetGroup(group_control_pb2.ControlGetGroupRequest(group_id=group), **AS_OPERATOR)
    assert (found.membership_version, found.member_count, found.head_seq) == (1, 2, 1)
    timeline = await control.GroupTimeline(
        group_control_pb2.ControlGroupTimelineRequest(group_id=group, page_size=10), **AS_OPERATOR
    )
    assert ([entry.revision for entry in timeline.state_changes], len(timeline.changes)) == ([1], 0)
    why = await control.ExplainVisibility(
        group_control_pb2.ControlExplainVisibilityRequest(group_id=group, user_id=BEN, seq=1), **AS_OPERATOR
    )
    assert (why.visible, why.delivered) == (True, True)

    query = internal_pb2.ConversationQuery(conversation_id=group)
    answer = await served.caller("session").internal.ConversationStates(
        internal_pb2.ConversationStatesRequest(tenant_id=TENANT, user_id=ANA, conversations=[query]), timeout=SECONDS
    )
    (state,) = answer.states
    assert (state.entry.unread_count, state.entry.head_seq) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"QIM_ALLOW_COMPARISON_BACKEND": None}, MISCONFIGURED, "QIM_ALLOW_COMPARISON_BACKEND: set it to yes to run"),
        ({"QIM_CASSANDRA_CONTACT_POINTS": None}, MISCONFIGURED, "QIM_CASSANDRA_CONTACT_POINTS: is not set"),
        ({"QIM_CASSANDRA_CONTACT_POINTS": "127.0.0.1:1"}, REFUSED, "start Cassandra or mend QIM_CASSANDRA_*"),
        ({"QIM_CASSANDRA_KEYSPACE": "system"}, REFUSED, "--backend scylla"),
        ({"QIM_CASSANDRA_KEYSPACE": "never_made"}, REFUSED, "has no keyspace never_made"),
    ],
)
async def test_it_does_not_start_where_it_is_not_allowed_or_has_no_tables(
    served: Writers, environment: dict[str, str], changes: dict[str, str | None], code: int, words: str
) -> None:
    ended, text = await refused_start(served, {**environment, "QIM_CASSANDRA_TIMEOUT_SECONDS": "2", **changes})
    assert words in text
    assert ended == code
