"""One SendMessages stream, protobuf in and out: for `SendStream` and for load generators.

Nothing is numbered, repeated or kept here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc

from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_common.errors import RemoteError, from_rpc_error

MAX_FRAME_ITEMS: Final = 256
"""Messages, and actors, of one frame (contracts.md, "Services")."""

MAX_TIMEOUT_MS: Final = 60_000


class FrameStream:
    """One stream on one channel. Writes come from one task at a time, reads too."""

    def __init__(self, stub: writer_pb2_grpc.WriterStub) -> None:
        self._call = stub.SendMessages()

    async def write(self, frame: writer_pb2.SendMessagesRequest) -> None:
        """Hand over one frame; waits while the other side is slower. Raises QimError when the stream has ended."""
        try:
            await self._call.write(frame)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the stream has ended") from error

    async def read(self) -> writer_pb2.SendMessagesResponse | None:
        """The next answer; None when the server ended the stream with OK. Raises QimError when it ended otherwise."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        if isinstance(answer, writer_pb2.SendMessagesResponse):
            return answer
        return None

    async def done_writing(self) -> None:
        """Tell the server that no more frames come; it answers what it has and ends the stream."""
        await self._call.done_writing()

    def cancel(self) -> None:
        """End the stream at once; frames in flight have an unknown outcome."""
        self._call.cancel()
