"""Many messages over one SendMessages stream: frames in flight, repeated with the same ids when the stream ends.

One task reads, one writes; a frame in flight costs one future, a message none. When the stream ends (its maximum age, a
restart of the writer, a cut connection), a new one is opened and every frame without an answer is written again, oldest
first. The ids make that harmless (design.md invariant 8). While nobody waits for an answer nothing reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import grpc

from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_client import convert
from qim_client.answers import SendOutcome
from qim_client.connection import Connection, check_timeout, deadline_exceeded
from qim_client.frames import MAX_FRAME_ITEMS, MAX_TIMEOUT_MS, FrameStream
from qim_client.values import Outgoing
from qim_common.errors import InvalidArgument, MessageTooLarge, QimError, RemoteError, TooManyItems
from qim_common.identity import Actor

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Of the bodies in one frame: 256 times 64 KiB, well below the 20 MiB that a server receives at once."""


@dataclass(slots=True)
class _Pending:
    frame: writer_pb2.SendMessagesRequest
    answer: asyncio.Future[writer_pb2.SendMessagesResponse]
    deadline: float


class SendStream:
    """A stream of batches. Use it from one event loop, by as many tasks as you like; close it at the end.

    Parameters:
        connection: to the writer.
        max_frames: how many frames wait for their answers at once, 1 or more; further `send` calls wait.
    """

    def __init__(self, connection: Connection[writer_pb2_grpc.WriterStub], *, max_frames: int = 32) -> None:
        if max_frames < 1:
            raise InvalidArgument("max_frames", "must be 1 or more")
        self._connection = connection
        self._slots = asyncio.Semaphore(max_frames)
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._unsent: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._broken: QimError | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, items: Sequence[Outgoing], *, timeout: float | None = None) -> list[SendOutcome]:
        """What became of each item, in their order.

        Items for one conversation keep their order, except that an item which the service could not take at the moment
        (OVERLOADED, BACKEND_UNAVAILABLE) is repeated, and may then follow items after it.

        Args:
            items: 1 to 256, with at most 16 MiB of bodies.
            timeout: seconds, at most 60; None: the connection's. What is not answered by then has the outcome
                DEADLINE_EXCEEDED: unknown, so send the same objects again.

        Raises:
            InvalidArgument, TooManyItems, MessageTooLarge: nothing was sent.
        """
        _check(items)
        limit = self._connection.timeout if timeout is None else check_timeout(timeout)
        deadline = time.monotonic() + limit
        unanswered = RemoteError(code=grpc.StatusCode.UNKNOWN, message="the writer's answer left this message out")
        outcomes = [SendOutcome(item.client_message_id, None, unanswered) for item in items]
        left = list(range(len(items)))
        for attempt in itertools.count(1):
            try:
                answer = await self._exchange(_frame([items[at] for at in left]), deadline, limit)
            except QimError as error:
                for at in left:
                    outcomes[at] = SendOutcome(items[at].client_message_id, None, error)
                break
            for result in answer.results:
                outcomes[left[result.index]] = convert.send_outcome(result)
            delays = {at: self._delay(items[at], outcomes[at], attempt, deadline) for at in left}
            left = [at for at in left if delays[at] is not None]
            if not left:
                break
            await asyncio.sleep(max(delay for delay in delays.values() if delay is not None))
        return outcomes

    def _delay(self, item: Outgoing, outcome: SendOutcome, attempt: int, deadline: float) -> float | None:
        """Seconds until the item is sent again; None: its outcome stands."""
        error = outcome.error
        if error is None or (error.code is grpc.StatusCode.ABORTED and item.expected_version):
            return None
        remaining = deadline - time.monotonic()
        return self._connection.policy.delay(error, attempt=attempt, remaining=remaining, jitter=_jitter())

    async def close(self) -> None:
        """End the stream. Frames in flight answer CANCELLED: their outcome is unknown."""
        self._closed = True
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await runner
        self._fail(RemoteError(code=grpc.StatusCode.CANCELLED, message="the stream was closed before the answer came"))

    async def _exchange(
        self, frame: writer_pb2.SendMessagesRequest, deadline: float, limit: float
    ) -> writer_pb2.SendMessagesResponse:
        loop = asyncio.get_running_loop()
        number = 0
        try:
            async with asyncio.timeout(deadline - time.monotonic()), self._slots:
                if self._closed:
                    raise RemoteError(code=grpc.StatusCode.CANCELLED, message="the stream is closed")
                number = frame.frame_number = next(self._numbers)
                pending = self._pending[number] = _Pending(frame, loop.create_future(), deadline)
                self._unsent.append(pending)
                self._wake.set()
                if self._runner is None or self._runner.done():
                    self._runner = asyncio.create_task(self._run(), name="qim-send-stream")
                return await pending.answer
        except TimeoutError:
            raise (self._broken or deadline_exceeded(limit)) from None
        finally:
            self._pending.pop(number, None)

    async def _run(self) -> None:
        attempt = 0
        while self._pending:
            stream = FrameStream(self._connection.stub())
            self._unsent = deque(self._pending.values())
            writer = asyncio.create_task(self._write(stream), name="qim-send-stream-writer")
            ended: QimError | None = None
            try:
                while (answer := await stream.read()) is not None:
                    attempt, self._broken = 0, None
                    waiting = self._pending.get(answer.frame_number)
                    if waiting is not None and not waiting.answer.done():
                        waiting.answer.set_result(answer)
            except QimError as error:
                ended = error
            finally:
                stream.cancel()
                writer.cancel()
                await asyncio.wait([writer])
            attempt += 1
            if ended is None and attempt == 1:
                continue  # the stream's maximum age: it has answered what it read, and a new one may begin at once
            self._broken = ended or RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the stream ends at once")
            if not self._connection.policy.is_retryable(self._broken):
                self._fail(self._broken)
                return
            await asyncio.sleep(self._connection.policy.backoff(self._broken, attempt=attempt, jitter=_jitter()))

    async def _write(self, stream: FrameStream) -> None:
        with contextlib.suppress(QimError):  # the reader learns why the stream ended
            while True:
                while self._unsent:
                    pending = self._unsent.popleft()
                    if not pending.answer.done():
                        left = int((pending.deadline - time.monotonic()) * 1000)
                        pending.frame.timeout_ms = min(max(left, 1), MAX_TIMEOUT_MS)
                        await stream.write(pending.frame)
                self._wake.clear()
                await self._wake.wait()

    def _fail(self, error: QimError) -> None:
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(error)


def _check(items: Sequence[Outgoing]) -> None:
    if not items:
        raise InvalidArgument("items", "must not be empty")
    if len(items) > MAX_FRAME_ITEMS:
        raise TooManyItems(message=f"a frame has at most {MAX_FRAME_ITEMS} messages; split them over several")
    if sum(len(item.body) for item in items) > MAX_FRAME_BYTES:
        raise MessageTooLarge(message="the bodies of one frame have at most 16 MiB; split them over several frames")


def _frame(items: Sequence[Outgoing]) -> writer_pb2.SendMessagesRequest:
    actors: dict[Actor, int] = {}
    messages = [convert.outgoing_to_wire(item, actors.setdefault(item.actor, len(actors))) for item in items]
    return writer_pb2.SendMessagesRequest(actors=[actor.to_message() for actor in actors], messages=messages)


def _jitter() -> float:
    return random.random()  # noqa: S311 - spreads retries, no secret
