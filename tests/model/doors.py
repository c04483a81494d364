"""Two writer processes on the same Valkeys, and clients that use either: what changes a group at the same moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.model.moves import wire_settings
from tests.model.world import PATIENT, SECONDS, TENANT, World
from tests.support.writers import OPERATOR, AnotherWriter, as_principal

from qim.membership.v1 import membership_pb2, membership_pb2_grpc
from qim.writer.v1 import group_control_pb2, group_control_pb2_grpc
from qim_client.connection import Connection
from qim_client.gateway import GatewayClient, actor
from qim_client.services import client_tls
from qim_client.values import Outgoing
from qim_common.channels import ChannelProvider
from qim_common.enums import LeaverHistory
from qim_common.errors import QimError
from qim_common.identity import Role
from qim_common.ids import ConversationId, UserId
from qim_common.settings_wire import settings_to_wire


@dataclass
class Call:
    """One call and its answer, None where it was refused. Times are of one clock, seconds.

    `kind` is send, add, remove, leave or state; `seq` is 0 where none was taken; who leaves twice is answered with
    the first seq again.
    """

    kind: str
    people: tuple[UserId, ...]
    leaver: str = ""
    message_id: bytes = b""
    started: float = 0.0
    ended: float = 0.0
    refused: str = ""
    seq: int = 0
    version: int = 0
    answers: list[Any] = field(default_factory=list)


class Door:
    """One writer: as the gateway sees it, and as the admin service does."""

    def __init__(self, world: World, address: str) -> None:
        suite = world.suite
        session = suite.addresses["session"]
        self._gateway = GatewayClient(address, session, suite.gateway_files(), timeout=SECONDS, policy=PATIENT)
        self._channels = ChannelProvider(address, client_tls(suite.pki.issue(Role.ADMIN, "admin-0")))
        self._membership = Connection(
            self._channels, membership_pb2_grpc.GroupMembershipStub, timeout=SECONDS, policy=PATIENT
        )
        self._control = Connection(
            self._channels, group_control_pb2_grpc.GroupControlStub, timeout=SECONDS, policy=PATIENT
        )

    async def send(self, group: ConversationId, who: UserId, body: bytes, message_id: bytes) -> Any:
        """One message."""
        item = Outgoing(actor(TENANT, who), body, conversation=group, client_message_id=message_id)
        return await self._gateway.as_actor(TENANT, who).send(item)

    async def leave(self, group: ConversationId, who: UserId, request_id: bytes) -> Any:
        """LeaveGroup."""
        return await self._gateway.as_actor(TENANT, who).leave_group(group, request_id=request_id)

    async def change(
        self, group: ConversationId, people: Sequence[UserId], request_id: bytes, *, remove: bool, leaver: str
    ) -> Any:
        """AdminChangeMembers for an operator."""
        kinds = membership_pb2.AdminMembershipChange
        request = membership_pb2.AdminMembershipChange(
            request_id=request_id,
            group_id=group,
            kind=kinds.KIND_REMOVE if remove else kinds.KIND_ADD,
            user_ids=people,
            leaver_history=LeaverHistory[leaver].value if leaver else 0,  # type: ignore[arg-type]
        )
        return await self._membership.call(
            lambda stub: stub.AdminChangeMembers, request, metadata=as_principal(OPERATOR)
        )

    async def settings(self, group: ConversationId, settings: dict[str, Any], request_id: bytes) -> Any:
        """UpdateGroupSettings for an operator."""
        request = group_control_pb2.ControlUpdateGroupSettingsRequest(
            request_id=request_id, group_id=group, settings=settings_to_wire(wire_settings(settings))
        )
        return await self._control.call(lambda stub: stub.UpdateGroupSettings, request, metadata=as_principal(OPERATOR))

    async def transfer(self, group: ConversationId, owner: UserId, request_id: bytes) -> Any:
        """TransferOwnership for an operator."""
        request = group_control_pb2.ControlTransferOwnershipRequest(
            request_id=request_id, group_id=group, new_owner_user_id=owner
        )
        return await self._control.call(lambda stub: stub.TransferOwnership, request, metadata=as_principal(OPERATOR))

    async def close(self) -> None:
        """Close every connection."""
        await self._gateway.close()
        await self._channels.close()


async def carry_out(call: Call, doors: Sequence[Door], attempt: Callable[[Door], Awaitable[Any]]) -> Call:
    """Make one call, through all these doors at once; raises AssertionError where their answers differ."""
    call.started = time.monotonic()
    outcomes = await asyncio.gather(*map(attempt, doors), return_exceptions=True)
    call.ended = time.monotonic()
    for outcome in outcomes:
        if isinstance(outcome, QimError) and outcome.reason:
            call.refused = outcome.reason
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            call.answers.append(outcome)
    assert all(answer == call.answers[0] for answer in call.answers), f"{call.kind}: one id, two answers {outcomes}"
    if call.answers:
        call.refused = ""
        answer = call.answers[0]
        call.version = getattr(answer, "version", 0) or answer.membership_version
        call.seq = answer.member.left_at if call.kind == "leave" else getattr(answer, "seq", 0)
    return call


@asynccontextmanager
async def two_doors(world: World) -> AsyncIterator[tuple[list[Door], AnotherWriter]]:
    """The suite's own writer and another one, which may be killed and started again."""
    process = AnotherWriter(world.suite, {})
    await process.start()
    doors = [Door(world, world.suite.addresses["writer"]), Door(world, process.address)]
    try:
        yield doors, process
    finally:
        for door in doors:
            await door.close()
        await process.stop()
