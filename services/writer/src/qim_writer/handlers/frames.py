"""Frames of sends: the answers of one frame gathered in one object, whatever the number of messages."""

from __future__ import annotations

from collections.abc import Callable

from google.rpc import status_pb2

from qim.writer.v1 import writer_pb2
from qim_common.errors import BackendUnavailable, QimError, to_status


class Frame:
    """The outcomes of one frame; satisfies `qim_writer.storage.SendSink`.

    `done` is called once, when every message of the frame has its answer. `body_bytes` is the size of the frame on the
    wire, which is little more than its bodies.
    """

    __slots__ = ("_conversations", "_done", "_messages", "_missing", "_statuses", "body_bytes", "expired", "response")

    def __init__(self, request: writer_pb2.SendMessagesRequest, done: Callable[[Frame], None]) -> None:
        count = len(request.messages)
        self.response = writer_pb2.SendMessagesResponse(frame_number=request.frame_number)
        self.body_bytes = request.ByteSize()
        self.expired = False
        self._messages = request.messages
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
            client_message_id=self._messages[index].client_message_id,
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
            client_message_id=self._messages[index].client_message_id,
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


__all__ = ["Frame"]
