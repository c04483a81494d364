"""The live stream of many persons over one Subscribe call, attached anew when the stream ends.

One task reads, one writes. When the stream ends (its maximum age, a restart of the session service, a cut connection),
a new one is opened, on whatever replica answers, and every attachment is attached again with its newest resume token.
The server repeats then what was not acknowledged; what this subscription has brought already is dropped here: an
attachment brings each message once for as long as it lives. An attach of its own, with or without a token, brings
everything again that is not acknowledged.

Nobody tells which acknowledgements reached a stream that has ended. Those of what is repeated are sent again when it
comes; a detach sends all of them again, and one that the stream's end may have overtaken is asked for on the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import deque
from types import TracebackType
from typing import Final, Self

import grpc

from qim.session.v1 import session_pb2, session_pb2_grpc
from qim_client import convert
from qim_client.attachment import Attachment
from qim_client.connection import Connection
from qim_client.convert_live import live_event
from qim_client.frames import LiveFrames
from qim_client.live_events import Detached, LiveEvent
from qim_client.values import DeviceCursor
from qim_common.errors import InvalidArgument, QimError, RemoteError
from qim_common.identity import Actor
from qim_common.ids import ConversationId

REQUEST_ITEMS: Final = 1000
"""The most attaches, acknowledged cursors, and detaches of one request (session.proto)."""

CLOSE_SECONDS: Final = 5.0
"""How long `close` waits for the server's last words."""


class Subscription:
    """Everything that is delivered to attached persons. Iterate over it, from one task; close it at the end.

    Parameters:
        connection: to the session service.
        max_events: how many events wait for the reader, 1 or more. While it is slower nothing is read, and the server
            ends attachments with OVERLOADED once its own bound is reached.

    Iteration ends when the subscription is closed; it raises the QimError of a stream that cannot be opened again.
    """

    def __init__(self, connection: Connection[session_pb2_grpc.SessionStub], *, max_events: int = 10_000) -> None:
        if max_events < 1:
            raise InvalidArgument("max_events", "must be 1 or more")
        self._connection = connection
        self._max_events = max_events
        self._numbers = itertools.count(1)
        self._attachments: dict[int, Attachment] = {}
        self._to_attach: deque[Attachment] = deque()
        self._to_detach: deque[Attachment] = deque()
        self._cursors: dict[Attachment, dict[ConversationId, DeviceCursor]] = {}
        self._wake = asyncio.Event()
        self._events: deque[LiveEvent] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._failed: QimError | None = None
        self._broken: QimError | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def trouble(self) -> QimError | None:
        """Why the stream has ended; None once a new one answers."""
        return self._broken

    async def attach(self, actor: Actor, resume_token: str = "") -> Attachment:
        """Attach one device of a person, from where its cursors stand, or where an earlier attachment's token says.

        Returns at once: first comes what is not acknowledged yet, then `Attached`, then what happens.

        Raises QimError where the subscription is closed or has failed.
        """
        if self._failed is not None:
            raise self._failed
        if self._closing:
            raise RemoteError(code=grpc.StatusCode.CANCELLED, message="the subscription is closed")
        attachment = Attachment(self, next(self._numbers), actor, resume_token)
        self._attachments[attachment.number] = attachment
        self._to_attach.append(attachment)
        self._wake.set()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="qim-subscription")
        return attachment

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveEvent:
        while not self._events:
            if self._failed is not None:
                raise self._failed
            if self._closing:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        event = self._events.popleft()
        self._room.set()
        return event

    async def close(self) -> None:
        """End the stream: acknowledgements are still sent, and the attachments' resume tokens are the newest then."""
        self._closing = True
        self._news.set()
        self._room.set()
        self._wake.set()
        runner, self._runner = self._runner, None
        if runner is not None:
            _, running = await asyncio.wait([runner], timeout=CLOSE_SECONDS)
            for task in running:
                task.cancel()
                await asyncio.wait([task])

    def _acknowledge(self, attachment: Attachment, cursor: DeviceCursor) -> None:
        if self._attachments.get(attachment.number) is attachment:
            self._cursors.setdefault(attachment, {})[cursor.conversation] = cursor
            self._wake.set()

    def _detach(self, attachment: Attachment) -> None:
        if not attachment._leaving and self._attachments.get(attachment.number) is attachment:
            attachment._leaving = True
            self._leave(attachment)
            self._wake.set()

    def _leave(self, attachment: Attachment) -> None:
        """Ask for its end; first come the acknowledgements that an earlier stream may not have heard."""
        if attachment._moved and attachment._acknowledged:
            self._cursors[attachment] = dict(attachment._acknowledged)
        self._to_detach.append(attachment)

    async def _run(self) -> None:
        attempt = 0
        while self._begin() and not (self._closing and attempt):
            stream = LiveFrames(self._connection.stub())
            writer = asyncio.create_task(self._write(stream), name="qim-subscription-writer")
            ended: QimError | None = None
            try:
                while (answer := await stream.read()) is not None:
                    attempt, self._broken = 0, None
                    await self._take(answer)
            except QimError as error:
                ended = error
            finally:
                stream.cancel()
                writer.cancel()
                await asyncio.wait([writer])
            for attachment in self._attachments.values():
                attachment._moved = True
            attempt += 1
            if self._closing:
                return
            if ended is None and attempt == 1:
                continue  # the stream's maximum age: a new one may begin at once
            broken = ended or RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the stream ends at once")
            self._broken = broken
            if not self._connection.policy.is_retryable(broken):
                self._failed = broken
                self._news.set()
                return
            await asyncio.sleep(self._connection.policy.backoff(broken, attempt=attempt, jitter=_jitter()))

    def _begin(self) -> bool:
        """What a new stream has to attach; whether there is anything."""
        self._to_attach = deque(self._attachments.values())
        self._to_detach.clear()
        for attachment in self._to_attach:
            if attachment._leaving:
                self._leave(attachment)
        self._wake.set()
        return bool(self._to_attach)

    async def _take(self, answer: session_pb2.SubscribeResponse) -> None:
        for wire in answer.events:
            make = live_event(wire)
            if make is None:
                continue
            for number in wire.attachments:
                attachment = self._attachments.get(number)
                if attachment is None:
                    continue
                event = attachment._take(make(attachment))
                if isinstance(event, Detached):
                    if event.error is None and (wire.detached.stream_ends or not attachment._leaving):
                        continue  # it is attached again to the next stream, and detached there if it is leaving
                    self._end(attachment)
                if event is not None:
                    self._push(event)
        while len(self._events) >= self._max_events and not self._closing:
            self._room.clear()
            await self._room.wait()

    def _push(self, event: LiveEvent) -> None:
        if not self._closing:
            self._events.append(event)
            self._news.set()

    def _end(self, attachment: Attachment) -> None:
        self._attachments.pop(attachment.number, None)
        self._cursors.pop(attachment, None)

    async def _write(self, stream: LiveFrames) -> None:
        with contextlib.suppress(QimError):  # the reader learns why the stream ended
            while True:
                self._wake.clear()
                while (request := self._next_request()) is not None:
                    await stream.write(request)
                if self._closing:
                    await stream.done_writing()
                    return
                await self._wake.wait()

    def _next_request(self) -> session_pb2.SubscribeRequest | None:
        """What waits, up to the bounds of one request; None for nothing."""
        request = session_pb2.SubscribeRequest()
        while self._to_attach and len(request.attach) < REQUEST_ITEMS:
            attachment = self._to_attach.popleft()
            request.attach.add(
                attachment=attachment.number, actor=attachment.actor.to_message(), resume_token=attachment.resume_token
            )
        if not self._to_attach:
            self._add_cursors(request)
            while self._to_detach and not self._cursors and len(request.detach) < REQUEST_ITEMS:
                request.detach.add(attachment=self._to_detach.popleft().number)
        return request if request.attach or request.acknowledge or request.detach else None

    def _add_cursors(self, request: session_pb2.SubscribeRequest) -> None:
        room = REQUEST_ITEMS
        while self._cursors and room:
            attachment, waiting = next(iter(self._cursors.items()))
            taken = list(itertools.islice(waiting.values(), room))
            room -= len(taken)
            request.acknowledge.add(attachment=attachment.number, cursors=map(convert.cursor_to_wire, taken))
            if len(taken) == len(waiting):
                del self._cursors[attachment]
            else:
                for cursor in taken:
                    del waiting[cursor.conversation]


def _jitter() -> float:
    return random.random()  # noqa: S311 - spreads retries, no secret
