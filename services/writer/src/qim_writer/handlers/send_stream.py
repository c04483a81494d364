"""`Writer.SendMessages`: batches in both directions on one stream.

A reader task checks frames and hands their messages to the commit; the handler writes the answers as they complete.
A stream that has too much without an answer, or with one that the caller has not taken yet, is not read until some of
it is through; nor is one with a frame in flight while the streams of the process together have too much. So a fast
caller is slowed down by flow control and never by an error, and a caller that does not read costs no more memory. At
its maximum age, or when the server drains, the stream stops reading, answers everything that it has read and ends
with OK.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import grpc

from qim.common.v1 import identity_pb2
from qim.writer.v1 import writer_pb2
from qim_common.bindings import Bindings
from qim_common.calls import CallContext, check_frame_actor, current_call
from qim_common.errors import InvalidArgument, QimError, TooManyItems
from qim_common.identity import Actor
from qim_writer.commands.send import prepare_send
from qim_writer.handlers.frames import Frame, FrameBudget
from qim_writer.storage import CommitLog, Send

MESSAGES_MAX: Final = 256
ACTORS_MAX: Final = 256
ACTORS_KEPT: Final = 16_384
"""End users whose ids a stream does not check again; whether the gateway may act in their tenant, every frame asks."""
TIMEOUT_MS_MAX: Final = 60_000
TIMEOUT_MS_DEFAULT: Final = 5_000
FRAMES_IN_FLIGHT: Final = 256
"""Frames of one stream that are read and whose answers are not yet written."""

BYTES_IN_FLIGHT: Final = 16 * 1024 * 1024
"""Of those frames and their answers; the frame that passes it is still taken."""

Context = grpc.aio.ServicerContext[Any, Any]


class SendStream:
    """One stream of one gateway."""

    def __init__(self, commits: CommitLog, bindings: Bindings, budget: FrameBudget, *, max_bytes: int) -> None:
        self._commits = commits
        self._bindings = bindings
        self._budget = budget
        self._max_bytes = max_bytes
        self._call: CallContext = current_call()
        self._loop = asyncio.get_running_loop()
        self._actors: dict[tuple[int, bytes, bytes], Actor] = {}
        self._finished: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._open = 0
        self._open_bytes = 0
        self._timers: dict[Frame, asyncio.TimerHandle] = {}

    async def serve(self, context: Context) -> None:
        """Reads and answers until the caller has ended, or the stream's time is over. Raises InvalidArgument and
        TooManyItems for a frame that is malformed."""
        reader = asyncio.create_task(self._read(context), name="send stream")
        reader.add_done_callback(lambda _: self._wake.set())
        clock = asyncio.create_task(self._end_in_time(reader), name="send stream's age")
        try:
            while not (reader.done() and not self._open):
                await self._wake.wait()
                self._wake.clear()
                while self._finished:
                    frame = self._finished.popleft()
                    await context.write(frame.response)
                    self._written(frame)
            if not reader.cancelled():
                reader.result()
        finally:
            clock.cancel()
            reader.cancel()
            for timer in self._timers.values():
                timer.cancel()
            # What still waits for its commit is bounded by the commit's own queue.
            self._budget.forget(self._room)
            self._budget.give_back(self._open_bytes)

    async def _end_in_time(self, reader: asyncio.Task[None]) -> None:
        life = self._call.stream
        if life is not None:
            await life.wait()
            # A frame is handed to the commit in the step in which it was read, so nothing that was read is lost.
            reader.cancel()

    async def _read(self, context: Context) -> None:
        # Not with grpc's iterator, which keeps a frame with its bodies until it has the next one.
        while isinstance(request := await context.read(), writer_pb2.SendMessagesRequest):
            self._accept(request)
            del request
            while self._full():
                self._room.clear()
                self._budget.tell(self._room)
                await self._room.wait()

    def _full(self) -> bool:
        """One frame in flight is always allowed, so streams that hold the whole budget stop no other."""
        return self._open >= FRAMES_IN_FLIGHT or (
            self._open > 0 and (self._open_bytes >= BYTES_IN_FLIGHT or self._budget.used_up)
        )

    def _accept(self, request: writer_pb2.SendMessagesRequest) -> None:
        actors = self._check(request)
        frame = Frame(request, self._done)
        self._open += 1
        self._open_bytes += frame.size
        self._budget.take(frame.size)
        timeout = (request.timeout_ms or TIMEOUT_MS_DEFAULT) / 1000
        self._timers[frame] = self._loop.call_later(timeout, frame.expire)
        sends: list[Send] = []
        for index, message in enumerate(request.messages):
            if message.actor_index >= len(actors):
                frame.refused(index, InvalidArgument("actor_index", "points behind the frame's actors"))
                continue
            actor = actors[message.actor_index]
            if isinstance(actor, QimError):
                frame.refused(index, actor)
                continue
            try:
                send = prepare_send(
                    actor,
                    conversation_id=message.conversation_id,
                    peer=message.peer_user_id,
                    message_id=message.client_message_id,
                    custom_type=message.custom_type,
                    record_type=message.type,
                    body=message.body,
                    expected_version=message.expected_membership_version,
                    max_bytes=self._max_bytes,
                    sink=frame,
                    index=index,
                )
            except QimError as error:
                # Not kept: its traceback holds this step, and so the whole request, in a cycle.
                frame.refused(index, error)
            else:
                frame.goes_to(index, send.conversation.id)
                sends.append(send)
        self._commits.submit(sends)

    def _check(self, request: writer_pb2.SendMessagesRequest) -> list[Actor | QimError]:
        """The frame's actors, each good or refused; raises for a malformed frame."""
        if not request.messages:
            raise InvalidArgument("messages", "a frame carries at least one message")
        if len(request.messages) > MESSAGES_MAX:
            raise TooManyItems(metadata={"field": "messages", "most": str(MESSAGES_MAX)})
        if not request.actors:
            raise InvalidArgument("actors", "a frame names at least one actor")
        if len(request.actors) > ACTORS_MAX:
            raise TooManyItems(metadata={"field": "actors", "most": str(ACTORS_MAX)})
        if request.timeout_ms > TIMEOUT_MS_MAX:
            raise InvalidArgument("timeout_ms", f"must be from 0 to {TIMEOUT_MS_MAX}")
        allowed: set[int] = set()
        return [self._actor(message, index, allowed) for index, message in enumerate(request.actors)]

    def _actor(self, message: identity_pb2.AuthenticatedActor, index: int, allowed: set[int]) -> Actor | QimError:
        """One actor of a frame; `allowed` gathers the tenants that the frame's actors have been let into."""
        key = (message.tenant_id, message.user_id, message.device_id)
        known = self._actors.get(key)
        if known is not None and known.tenant in allowed:
            return known
        try:
            actor = check_frame_actor(self._bindings, self._call.peer, message, f"actors[{index}]")
        except QimError as error:
            return error.with_traceback(None)
        if len(self._actors) >= ACTORS_KEPT:
            self._actors.clear()
        self._actors[key] = actor
        allowed.add(actor.tenant)
        return actor

    def _done(self, frame: Frame) -> None:
        timer = self._timers.pop(frame, None)
        if timer is not None:
            timer.cancel()
        self._finished.append(frame)
        self._wake.set()

    def _written(self, frame: Frame) -> None:
        self._open -= 1
        self._open_bytes -= frame.size
        self._budget.give_back(frame.size)
        self._room.set()
        self._wake.set()
