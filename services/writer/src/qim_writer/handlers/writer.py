"""`qim.writer.v1.Writer`: commit and history for end users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from qim.common.v1 import types_pb2
from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_common.bindings import Bindings
from qim_common.calls import current_call, require_actor
from qim_common.errors import InvalidArgument, QimError
from qim_common.ids import parse_tenant
from qim_common.server.tasks import TaskKeeper
from qim_writer.commands.change_members import MemberChanges
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.history import Direction, History
from qim_writer.commands.members import Members
from qim_writer.commands.send import prepare_send
from qim_writer.handlers import convert
from qim_writer.handlers.frames import FrameBudget
from qim_writer.handlers.send_stream import SendStream
from qim_writer.storage import CommitLog

Context = grpc.aio.ServicerContext[Any, Any]
_DIRECTIONS = {writer_pb2.DIRECTION_OLDER: Direction.OLDER, writer_pb2.DIRECTION_NEWER: Direction.NEWER}


class _Single:
    """The outcome of one unary send; satisfies `qim_writer.storage.SendSink`."""

    __slots__ = ("expired", "outcome")

    def __init__(self) -> None:
        self.expired = False
        self.outcome: asyncio.Future[writer_pb2.SendMessageResponse] = asyncio.get_running_loop().create_future()

    def committed(self, index: int, seq: int, time_ms: int, version: int, generation: int) -> None:
        """See `SendSink`."""
        if not self.outcome.done():
            self.outcome.set_result(
                writer_pb2.SendMessageResponse(
                    seq=seq, time_ms=time_ms, membership_version=version, generation=generation
                )
            )

    def refused(self, index: int, error: QimError) -> None:
        """See `SendSink`."""
        if not self.outcome.done():
            self.outcome.set_exception(error)


class WriterHandler(writer_pb2_grpc.WriterServicer):
    """Gateways for the actor; the session service for MembersSince too."""

    def __init__(
        self,
        *,
        commits: CommitLog,
        changes: MemberChanges,
        history: History,
        members: Members,
        groups: GroupState,
        own_clear: OwnClear,
        bindings: Bindings,
        tasks: TaskKeeper,
        message_max_bytes: int,
    ) -> None:
        self._commits = commits
        self._changes = changes
        self._history = history
        self._members = members
        self._groups = groups
        self._own_clear = own_clear
        self._bindings = bindings
        self._tasks = tasks
        self._max_bytes = message_max_bytes
        self._frames = FrameBudget()

    async def SendMessage(  # noqa: N802
        self, request: writer_pb2.SendMessageRequest, context: Context
    ) -> writer_pb2.SendMessageResponse:
        """See the proto."""
        message = request.message
        sink = _Single()
        send = prepare_send(
            require_actor(),
            conversation_id=message.conversation_id,
            peer=message.peer_user_id,
            message_id=message.client_message_id,
            custom_type=message.custom_type,
            record_type=message.type,
            body=message.body,
            expected_version=message.expected_membership_version,
            max_bytes=self._max_bytes,
            sink=sink,
            index=0,
        )
        self._commits.submit([send])
        try:
            response = await sink.outcome
        except asyncio.CancelledError:
            sink.expired = True
            raise
        response.conversation_id = send.conversation.id
        return response

    async def SendMessages(  # type: ignore[override]  # noqa: N802 - writes its answers itself
        self, request_iterator: AsyncIterator[writer_pb2.SendMessagesRequest], context: Context
    ) -> None:
        """See the proto."""
        stream = SendStream(self._commits, self._bindings, self._frames, max_bytes=self._max_bytes)
        await stream.serve(context)

    async def LeaveGroup(  # noqa: N802
        self, request: writer_pb2.LeaveGroupRequest, context: Context
    ) -> writer_pb2.MemberListBatch:
        """See the proto."""
        actor = require_actor()
        group, stay = await self._tasks.shield(self._changes.leave(actor, request.request_id, request.group_id))
        return writer_pb2.MemberListBatch(
            request_id=request.request_id,
            group_id=group.id,
            members=[convert.member_of(actor.user, stay, owner=False)],
            membership_version=stay.ended_version,
        )

    async def PullHistory(  # noqa: N802
        self, request: writer_pb2.PullHistoryRequest, context: Context
    ) -> writer_pb2.PullHistoryResponse:
        """See the proto."""
        direction = _DIRECTIONS.get(request.direction)
        if direction is None:
            raise InvalidArgument("direction", "must be OLDER or NEWER")
        page = await self._history.page(
            require_actor(), request.conversation_id, request.from_seq, direction, request.limit
        )
        return writer_pb2.PullHistoryResponse(
            messages=convert.messages_of(page.conversation, page.messages),
            next_from_seq=page.next_from,
            earliest_available_conversation_seq=page.visible.earliest,
            head_seq=page.visible.head,
            generation=page.facts.generation,
        )

    async def GetMessages(  # noqa: N802
        self, request: writer_pb2.GetMessagesRequest, context: Context
    ) -> writer_pb2.GetMessagesResponse:
        """See the proto."""
        found = await self._history.named(require_actor(), request.conversation_id, request.seqs)
        return writer_pb2.GetMessagesResponse(
            messages=convert.messages_of(found.conversation, found.messages), remaining_seqs=found.remaining
        )

    async def GetVisibleRange(  # noqa: N802
        self, request: writer_pb2.GetVisibleRangeRequest, context: Context
    ) -> writer_pb2.VisibleRange:
        """See the proto."""
        _, facts, person, visible = await self._history.range(require_actor(), request.conversation_id)
        return writer_pb2.VisibleRange(
            ranges=[types_pb2.SeqRange(first_seq=first, last_seq=last) for first, last in visible.ranges],
            earliest_available_conversation_seq=visible.earliest,
            head_seq=visible.head,
            state=types_pb2.MemberState.ValueType(person.newest.state),
            stays=[convert.stay_of(stay) for stay in person.stays],
            own_clear_seq=person.own_clear,
            group_floor_seq=facts.floor_for(person),
            membership_version=facts.version_for(person),
            generation=facts.generation,
        )

    async def MembersSince(  # noqa: N802
        self, request: writer_pb2.MembersSinceRequest, context: Context
    ) -> writer_pb2.MembersSinceResponse:
        """See the proto."""
        actor = current_call().actor
        if actor is not None and request.tenant_id:
            raise InvalidArgument("tenant_id", "is the actor's; leave it empty")
        tenant = parse_tenant(request.tenant_id) if actor is None else actor.tenant
        found = await self._members.since(actor, tenant, request.group_id, request.membership_version, request.limit)
        return writer_pb2.MembersSinceResponse(
            changes=[convert.change_of(change) for change in found.changes],
            membership_version=found.changes[-1].version if found.changes else request.membership_version,
            current_membership_version=found.current,
        )

    async def ClearHistory(  # noqa: N802
        self, request: writer_pb2.ClearHistoryRequest, context: Context
    ) -> writer_pb2.ClearHistoryResponse:
        """See the proto."""
        actor = require_actor()
        work = self._own_clear(actor, request.request_id, request.conversation_id, request.up_to_seq)
        return writer_pb2.ClearHistoryResponse(own_clear_seq=await self._tasks.shield(work))

    async def ClearGroupHistory(  # noqa: N802
        self, request: writer_pb2.ClearGroupHistoryRequest, context: Context
    ) -> writer_pb2.ClearGroupHistoryResponse:
        """See the proto."""
        actor = require_actor()
        work = self._groups.clear_group(actor, request.request_id, request.group_id, request.up_to_seq)
        _, group = await self._tasks.shield(work)
        return writer_pb2.ClearGroupHistoryResponse(group_floor_seq=group.floor)

    async def TransferOwnership(  # noqa: N802
        self, request: writer_pb2.TransferOwnershipRequest, context: Context
    ) -> writer_pb2.TransferOwnershipResponse:
        """See the proto."""
        actor = require_actor()
        work = self._groups.transfer(actor, request.request_id, request.group_id, request.new_owner_user_id)
        _, group = await self._tasks.shield(work)
        return writer_pb2.TransferOwnershipResponse(owner_user_id=group.policy.owner)
