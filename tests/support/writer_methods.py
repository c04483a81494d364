"""Every method that a writer serves, with a request that is good but for what a test breaks in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc
from tests.support.writers import ANA, BEN, SECONDS, TENANT, Caller, Pairs, acting, as_actor, as_principal

from qim.common.v1 import types_pb2
from qim.membership.v1 import membership_pb2
from qim.writer.v1 import group_control_pb2, internal_pb2, writer_pb2
from qim_common.ids import ConversationId, UserId, uuid7


@dataclass(frozen=True)
class Method:
    """One method. `identity` is what a good call carries; `stub` and `name` find it on a `Caller`; `on_group`: its
    request names a conversation."""

    stub: str
    name: str
    role: str
    identity: Callable[[], Pairs]
    request: Callable[[ConversationId], Any]
    implemented: bool = True
    stream: str = ""
    on_group: bool = True

    def __str__(self) -> str:
        return f"{self.name}-{self.role}"

    @property
    def path(self) -> str:
        """As on the wire."""
        package = "membership.v1.GroupMembership" if self.stub == "membership" else f"writer.v1.{_SERVICES[self.stub]}"
        return f"/qim.{package}/{self.name}"

    async def call(
        self, caller: Caller, request: Any, *, metadata: Pairs | None = None, timeout: float | None = SECONDS
    ) -> Any:
        """The answer; of a stream of answers the list; of SendMessages the answers to one frame."""
        method = getattr(getattr(caller, self.stub), self.name)
        identity = self.identity() if metadata is None else metadata
        if self.stream == "both":
            return await _one_frame(method, request, identity)
        if self.stream:
            return [answer async for answer in method(request, metadata=identity)]
        return await method(request, timeout=timeout, metadata=identity)


async def _one_frame(method: Any, request: Any, identity: Pairs) -> list[Any]:
    """The answers to one frame. Where the server ends the stream while it is being written, grpc.aio reports INTERNAL
    of its own making: such a call is made again."""
    while True:
        try:
            return [answer async for answer in method(iter([request]), metadata=identity)]
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INTERNAL or "Core" not in str(error.details()):
                raise


_SERVICES: Final = {"writer": "Writer", "internal": "Internal", "control": "GroupControl"}


def _ana() -> Pairs:
    return as_actor(acting(ANA))


def _nobody() -> Pairs:
    return ()


def message(group: bytes, **fields: Any) -> writer_pb2.OutgoingMessage:
    """A message that is good but for `fields`."""
    return writer_pb2.OutgoingMessage(
        **({"conversation_id": group, "client_message_id": uuid7(), "body": b"hi"} | fields)
    )


def frame(*messages: writer_pb2.OutgoingMessage, user: UserId = ANA, **fields: Any) -> writer_pb2.SendMessagesRequest:
    """A frame of one person's messages."""
    actors = {"actors": [acting(user).to_message()]}
    return writer_pb2.SendMessagesRequest(messages=messages, **(actors | fields))


_CHANGE = membership_pb2.AdminMembershipChange

METHODS: Final = (
    *(
        Method("membership", name, "gateway", _ana, request)
        for name, request in (
            ("CreateGroup", lambda _: membership_pb2.GroupCreateRequest(request_id=uuid7())),
            ("AuthorizeSend", lambda group: membership_pb2.AuthorizeSendRequest(conversation_id=group)),
            ("AuthorizeHistory", lambda group: membership_pb2.AuthorizeHistoryRequest(conversation_id=group)),
            ("MembersPage", lambda group: membership_pb2.MemberPageRequest(group_id=group, page_size=10)),
            ("FreezeDelivery", lambda group: membership_pb2.FreezeDeliveryRequest(conversation_id=group)),
        )
    ),
    *(
        Method("writer", name, "gateway", _ana, request)
        for name, request in (
            ("SendMessage", lambda group: writer_pb2.SendMessageRequest(message=message(group))),
            ("LeaveGroup", lambda group: writer_pb2.LeaveGroupRequest(request_id=uuid7(), group_id=group)),
            (
                "PullHistory",
                lambda group: writer_pb2.PullHistoryRequest(
                    conversation_id=group, direction=writer_pb2.DIRECTION_OLDER, limit=10
                ),
            ),
            ("GetMessages", lambda group: writer_pb2.GetMessagesRequest(conversation_id=group, seqs=[1])),
            ("GetVisibleRange", lambda group: writer_pb2.GetVisibleRangeRequest(conversation_id=group)),
            (
                "MembersSince",
                lambda group: writer_pb2.MembersSinceRequest(group_id=group, membership_version=1, limit=10),
            ),
        )
    ),
    Method("writer", "SendMessages", "gateway", _nobody, lambda group: frame(message(group)), stream="both"),
    Method(
        "writer",
        "MembersSince",
        "session",
        _nobody,
        lambda group: writer_pb2.MembersSinceRequest(group_id=group, membership_version=1, limit=10, tenant_id=TENANT),
    ),
    Method(
        "membership",
        "RecipientsForVersion",
        "session",
        _nobody,
        lambda group: membership_pb2.RecipientsForVersionRequest(
            tenant_id=TENANT, group_id=group, membership_version=1
        ),
        stream="answers",
    ),
    Method(
        "internal",
        "ConversationStates",
        "session",
        _nobody,
        lambda group: internal_pb2.ConversationStatesRequest(
            tenant_id=TENANT, user_id=ANA, conversations=[internal_pb2.ConversationQuery(conversation_id=group)]
        ),
    ),
    Method(
        "internal",
        "DeliveredPage",
        "session",
        _nobody,
        lambda group: internal_pb2.DeliveredPageRequest(tenant_id=TENANT, user_id=ANA, conversation_id=group, limit=10),
    ),
    Method(
        "membership",
        "AdminChangeMembers",
        "admin",
        as_principal,
        lambda group: _CHANGE(request_id=uuid7(), group_id=group, kind=_CHANGE.KIND_ADD, user_ids=[ANA]),
    ),
    *(
        Method("control", name, "admin", as_principal, request)
        for name, request in (
            ("GetGroup", lambda group: group_control_pb2.ControlGetGroupRequest(group_id=group)),
            (
                "ListMembers",
                lambda group: group_control_pb2.ControlListMembersRequest(group_id=group, page_size=10),
            ),
        )
    ),
    *(
        Method("writer", name, "gateway", _ana, request)
        for name, request in (
            (
                "ClearHistory",
                lambda group: writer_pb2.ClearHistoryRequest(request_id=uuid7(), conversation_id=group),
            ),
            (
                "ClearGroupHistory",
                lambda group: writer_pb2.ClearGroupHistoryRequest(request_id=uuid7(), group_id=group),
            ),
            (
                "TransferOwnership",
                lambda group: writer_pb2.TransferOwnershipRequest(
                    request_id=uuid7(), group_id=group, new_owner_user_id=BEN
                ),
            ),
        )
    ),
    *(
        Method("control", name, "admin", as_principal, request)
        for name, request in (
            (
                "UpdateGroupSettings",
                lambda group: group_control_pb2.ControlUpdateGroupSettingsRequest(
                    request_id=uuid7(), group_id=group, settings=types_pb2.GroupSettings(member_limit=77)
                ),
            ),
            (
                "TransferOwnership",
                lambda group: group_control_pb2.ControlTransferOwnershipRequest(
                    request_id=uuid7(), group_id=group, new_owner_user_id=BEN
                ),
            ),
            (
                "ClearGroupHistory",
                lambda group: group_control_pb2.ControlClearGroupHistoryRequest(request_id=uuid7(), group_id=group),
            ),
            (
                "GroupTimeline",
                lambda group: group_control_pb2.ControlGroupTimelineRequest(group_id=group, page_size=10),
            ),
            (
                "ExplainVisibility",
                lambda group: group_control_pb2.ControlExplainVisibilityRequest(group_id=group, user_id=ANA, seq=1),
            ),
            (
                "FreezeGroup",
                lambda group: group_control_pb2.ControlFreezeGroupRequest(
                    request_id=uuid7(), group_id=group, frozen=True
                ),
            ),
        )
    ),
    Method(
        "control",
        "RunRetention",
        "admin",
        as_principal,
        lambda _: group_control_pb2.ControlRunRetentionRequest(dry_run=True),
        on_group=False,
    ),
    Method(
        "control",
        "FindGroups",
        "admin",
        as_principal,
        lambda _: group_control_pb2.ControlFindGroupsRequest(user_id=ANA, page_size=10),
        implemented=False,
    ),
)
"""All of them; a test compares them with the services' descriptors."""

SERVED: Final = tuple(method for method in METHODS if method.implemented)
OF_GATEWAYS: Final = tuple(method for method in METHODS if method.role == "gateway")


def method(name: str, role: str = "") -> Method:
    """The one with this name (and role)."""
    return next(each for each in METHODS if each.name == name and (not role or each.role == role))
