"""`Session.Subscribe`: protobuf in and out of one stream.

A reader task checks requests and hands them to the stream's attachments, the handler writes what waits for the
gateway. At its maximum age, or when the server drains, the stream stops reading, sends every attachment's resume token
and ends with OK; so it does when the gateway has ended its side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc

from qim.session.v1 import session_pb2
from qim_common.bindings import Bindings
from qim_common.calls import CallContext, check_frame_actor, current_call
from qim_common.errors import BackendUnavailable, InvalidArgument, QimError, TooManyItems
from qim_common.identity import Actor
from qim_common.ids import ConversationId, parse_conversation
from qim_session.commands.live.service import LiveService
from qim_session.commands.live.stream import LiveStream
from qim_session.domain.cursors import Cursor

ITEMS_MAX: Final = 1000
"""Attaches, acknowledgements and detaches of one request, and cursors of one acknowledgement."""

EVENTS_PER_RESPONSE: Final = 512
BYTES_PER_RESPONSE: Final = 1024 * 1024
LAST_WORDS_SECONDS: Final = 30.0
"""How long the end of a stream waits for a gateway that does not read."""

SEQ_MAX: Final = 2**53 - 1
Context = grpc.aio.ServicerContext[Any, Any]


class SubscribeStream:
    """One stream of one gateway."""

    def __init__(self, live: LiveService, bindings: Bindings) -> None:
        self._bindings = bindings
        self._call: CallContext = current_call()
        self._stream: LiveStream = live.open()
        self._ending: asyncio.Timeout | None = None

    async def serve(self, context: Context) -> None:
        """Reads and writes until the stream ends. Raises InvalidArgument and TooManyItems for a malformed request, and
        BackendUnavailable where the gateway did not take the last events in time."""
        stream = self._stream
        stream.start()
        reader = asyncio.create_task(self._read(context), name="subscribe")
        keeper = asyncio.create_task(self._keep(reader), name="subscribe's end")
        keeper.add_done_callback(lambda _: stream.outbox.close())
        try:
            async with asyncio.timeout(None) as self._ending:
                while queued := await stream.outbox.take(events_max=EVENTS_PER_RESPONSE, bytes_max=BYTES_PER_RESPONSE):
                    response = session_pb2.SubscribeResponse()
                    for item in queued:
                        event = response.events.add()
                        event.MergeFromString(item.event)
                        event.attachments.extend(item.attachments)
                    await context.write(response)
            await keeper
        except TimeoutError:
            raise BackendUnavailable(message="the stream has ended and its last events were not read") from None
        finally:
            reader.cancel()
            keeper.cancel()
            await stream.abort()

    async def _keep(self, reader: asyncio.Task[None]) -> None:
        """Waits for the end of reading or of the stream's time, and ends it in order. Raises what was malformed."""
        clock = asyncio.create_task(self._end_of_time(), name="subscribe's age")
        try:
            await asyncio.wait([reader, clock], return_when=asyncio.FIRST_COMPLETED)
        finally:
            clock.cancel()
        if self._ending is not None:
            self._ending.reschedule(asyncio.get_running_loop().time() + LAST_WORDS_SECONDS)
        if reader.done() and not reader.cancelled() and reader.exception() is not None:
            self._stream.outbox.close()
            reader.result()
        reader.cancel()
        await self._stream.finish()

    async def _end_of_time(self) -> None:
        if self._call.stream is None:
            raise RuntimeError("Subscribe is a stream of requests")
        await self._call.stream.wait()

    async def _read(self, context: Context) -> None:
        while isinstance(request := await context.read(), session_pb2.SubscribeRequest):
            self._accept(request)
            await self._stream.room()

    def _accept(self, request: session_pb2.SubscribeRequest) -> None:
        """Attach, acknowledge, detach; raises for a malformed request, of which nothing has been carried out then."""
        _bound("attach", request.attach)
        _bound("acknowledge", request.acknowledge)
        _bound("detach", request.detach)
        numbers: set[int] = set()
        for index, attach in enumerate(request.attach):
            self._stream.check_number(attach.attachment, f"attach[{index}].attachment")
            if attach.attachment in numbers:
                raise InvalidArgument(f"attach[{index}].attachment", "is there twice")
            numbers.add(attach.attachment)
        for index, attach in enumerate(request.attach):
            actor = self._actor(attach, f"attach[{index}].actor")
            self._stream.attach(attach.attachment, actor, attach.resume_token)
        for index, acknowledge in enumerate(request.acknowledge):
            self._acknowledge(acknowledge, f"acknowledge[{index}]")
        for item in request.detach:
            self._stream.detach(item.attachment)

    def _acknowledge(self, item: session_pb2.SubscribeRequest.Acknowledge, field: str) -> None:
        """Cursors are a device's word: malformed ones end its attachment, and nobody else's."""
        try:
            cursors = _cursors(item, field)
        except QimError as error:
            self._stream.refuse(item.attachment, error.with_traceback(None))
        else:
            self._stream.acknowledge(item.attachment, cursors)

    def _actor(self, attach: session_pb2.SubscribeRequest.Attach, field: str) -> Actor | QimError:
        try:
            return check_frame_actor(self._bindings, self._call.peer, attach.actor, field)
        except QimError as error:
            return error.with_traceback(None)


def _bound(field: str, items: Sequence[object]) -> None:
    if len(items) > ITEMS_MAX:
        raise TooManyItems(metadata={"field": field, "most": str(ITEMS_MAX)})


def _cursors(item: session_pb2.SubscribeRequest.Acknowledge, field: str) -> list[tuple[ConversationId, Cursor]]:
    if len(item.cursors) > ITEMS_MAX:
        raise InvalidArgument(f"{field}.cursors", f"are more than {ITEMS_MAX}")
    found: list[tuple[ConversationId, Cursor]] = []
    for index, cursor in enumerate(item.cursors):
        conversation = parse_conversation(cursor.conversation_id, f"{field}.cursors[{index}].conversation_id")
        if cursor.seq > SEQ_MAX:
            raise InvalidArgument(f"{field}.cursors[{index}].seq", "is beyond every seq")
        found.append((conversation, Cursor(cursor.generation, cursor.seq)))
    return found
