"""Frames of sends: the answers of one frame gathered in one object, whatever the number of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from google.rpc import status_pb2

from qim.writer.v1 import writer_pb2
from qim_common.errors import BackendUnavailable, QimError, to_status

ANSWER_BYTES: Final = 512
"""What the answer to one message takes in memory, at most about; a refusal is the largest."""

BUDGET_BYTES: Final = 256 * 1024 * 1024
"""Of the frames of all streams of the process that are read and whose answers are not yet written."""


class FrameBudget:
    """What the frames of all streams may take together; the frame that passes `most` bytes is still taken.

    Parameters:
        most: bytes, above 0.
    """

    def __init__(self, most: int = BUDGET_BYTES) -> None:
        self._most = most
        self._taken = 0
        self._waiting: set[asyncio.Event] = set()

    @property
    def used_up(self) -> bool:
        """Whether a stream that has a frame in flight has to wait before it reads another."""
        return self._taken >= self._most

    def take(self, size: int) -> None:
        """Counts a frame of `size` bytes, room or not."""
        self._taken += size

    def give_back(self, size: int) -> None:
        """The frames of `size` bytes are gone."""
        self._taken -= size
        if self._waiting and not self.used_up:
            for room in self._waiting:
                room.set()
            self._waiting.clear()

    def tell(self, room: asyncio.Event) -> None:
        """Has `room` set once, when there is some again."""
        self._waiting.add(room)

    def forget(self, room: asyncio.Event) -> None:
        """Takes `tell` back."""
        self._waiting.discard(room)


class Frame:
    """The outcomes of one frame; satisfies `qim_writer.storage.SendSink`.

    `done` is called once, when every message of the frame has its answer. `size` is what the frame takes, in bytes: as
    it came over the wire, and its answer. Of the request only the ids stay: the bodies are the commit's.
    """

    __slots__ = ("_conversations", "_done", "_message_ids", "_missing", "_statuses", "expired", "response", "size")

    def __init__(self, request: writer_pb2.SendMessagesRequest, done: Callable[[Frame], None]) -> None:
        count = len(request.messages)
        self.response = writer_pb2.SendMessagesResponse(frame_number=request.frame_number)
        self.size = request.ByteSize() + count * ANSWER_BYTES
        self.expired = False
        self._message_ids = [message.client_message_id for message in request.messages]
        self._conversations: list[bytes] = [b""] * count
        self._statuses: dict[type[QimError], status_pb2.Status] = {}
        self._missing = set(range(count))
        self._done = done

    def goes_to(self, index: int, conversation: bytes) -> None:
        """The canonical conversation of a message, which its answer names."""
        self._conversations[index] = conversation

    def committed(self, index: int, seq: int, time_ms: int, version: int, generation: int) -> None:
        """See `SendSink`."""
        if self.expired:
            return
        self.response.results.add(
            index=index,
            client_message_id=self._message_ids[index],
            conversation_id=self._conversations[index],
            seq=seq,
            time_ms=time_ms,
            membership_version=version,
            generation=generation,
        )
        self._answered(index)

    def refused(self, index: int, error: QimError) -> None:
        """See `SendSink`."""
        if self.expired:
            return
        self.response.results.add(
            index=index,
            client_message_id=self._message_ids[index],
            conversation_id=self._conversations[index],
            status=to_status(error),
        )
        self._answered(index)

    def expire(self) -> None:
        """The frame's time is over: what has no answer yet gets BACKEND_UNAVAILABLE, outcome unknown."""
        if not self._missing or self.expired:
            return
        for index in sorted(self._missing):
            self.refused(index, BackendUnavailable())
        self.expired = True

    def _answered(self, index: int) -> None:
        self._missing.discard(index)
        if not self._missing:
            self._done(self)


__all__ = ["Frame", "FrameBudget"]
