"""Bare streams, protobuf in and out: for `SendStream`, `Subscription`, and load generators.

Nothing is numbered, repeated or kept here.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, Generic, TypeVar

import grpc

from qim.session.v1 import session_pb2, session_pb2_grpc
from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_common.errors import QimError, RemoteError, from_rpc_error

MAX_FRAME_ITEMS: Final = 256
"""Messages, and actors, of one frame (contracts.md, "Services")."""

MAX_TIMEOUT_MS: Final = 60_000

Request = TypeVar("Request")
Response = TypeVar("Response")


class BareStream(Generic[Request, Response]):
    """One stream on one channel. Writes come from one task at a time, reads too."""

    _answers: ClassVar[type[Any]]

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        self._call = call

    async def write(self, frame: Request) -> None:
        """Hand over one frame; waits while the other side is slower. Raises QimError when the stream has ended."""
        try:
            await self._call.write(frame)
        except grpc.aio.AioRpcError as error:
            raise _end_of(error) from error
        except asyncio.InvalidStateError as error:
            raise RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the stream has ended") from error
        except asyncio.CancelledError:
            self._raise_if_closed()
            raise

    async def read(self) -> Response | None:
        """The next answer; None when the server ended the stream with OK. Raises QimError when it ended otherwise."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _end_of(error) from error
        except asyncio.CancelledError:
            self._raise_if_closed()
            raise
        if isinstance(answer, self._answers):
            found: Response = answer
            return found
        return None

    async def done_writing(self) -> None:
        """Tell the server that no more frames come; it answers what it has and ends the stream."""
        await self._call.done_writing()

    def cancel(self) -> None:
        """End the stream at once; frames in flight have an unknown outcome."""
        self._call.cancel()

    def _raise_if_closed(self) -> None:
        """Raises where it is the channel that was closed (its certificate was renewed), and not this task's cancel."""
        task = asyncio.current_task()
        if self._call.cancelled() and (task is None or not task.cancelling()):
            raise RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the stream's channel was closed")


class FrameStream(BareStream[writer_pb2.SendMessagesRequest, writer_pb2.SendMessagesResponse]):
    """One SendMessages stream."""

    _answers = writer_pb2.SendMessagesResponse

    def __init__(self, stub: writer_pb2_grpc.WriterStub) -> None:
        super().__init__(stub.SendMessages())


class LiveFrames(BareStream[session_pb2.SubscribeRequest, session_pb2.SubscribeResponse]):
    """One Subscribe stream."""

    _answers = session_pb2.SubscribeResponse

    def __init__(self, stub: session_pb2_grpc.SessionStub) -> None:
        super().__init__(stub.Subscribe())


def _end_of(error: grpc.aio.AioRpcError) -> QimError:
    """Why a stream ended.

    INTERNAL without a reason is none of the server's answers: grpc.aio makes it of a write that meets the stream's end,
    and of a reset stream. What was written has an unknown outcome then, as with UNAVAILABLE.
    """
    end = from_rpc_error(error)
    if end.code is grpc.StatusCode.INTERNAL and not end.reason:
        return RemoteError(code=grpc.StatusCode.UNAVAILABLE, message=f"the stream was cut off: {end.message}")
    return end
