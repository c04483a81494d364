"""The load generator: one gateway in a process of its own, `python -m bench.load`, spoken to as bench/plan.py says.

It uses the client library's bare frames: what a gateway has to send is a frame as soon as a tick is over. In an open
stage the schedule never waits for answers, and a message's latency counts from the moment at which it was due, so a
stall of the service is seen by all messages that were due in it (no coordinated omission).
"""

from __future__ import annotations

import array
import asyncio
import cProfile
import json
import os
import random
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Final

import uvloop

from bench.child import orders, tell
from bench.plan import Ledger, LoadPlan, Stage, StageResult
from bench.trace import Sent, temporary
from qim.common.v1 import identity_pb2
from qim.writer.v1 import writer_pb2
from qim_client.config import TlsFiles
from qim_client.frames import MAX_FRAME_ITEMS, FrameStream
from qim_client.gateway import GatewayClient
from qim_common.errors import QimError

_ANSWER_SECONDS: Final = 30.0
"""How long the answers of a stage may take after its last message."""
_FRAME_TIMEOUT_MS: Final = 30_000
_SEED: Final = 7
_clock = time.perf_counter


class Traffic:
    """Frames of messages from random members to random groups."""

    def __init__(self, plan: LoadPlan) -> None:
        self._random = random.Random(_SEED)  # noqa: S311  no secret
        self._body = self._random.randbytes(plan.body_bytes)
        self._places: list[tuple[bytes, identity_pb2.AuthenticatedActor]] = []
        for group, users in plan.groups:
            conversation = bytes.fromhex(group)
            for user in map(bytes.fromhex, users):
                actor = identity_pb2.AuthenticatedActor(tenant_id=plan.tenant, user_id=user, device_id=user)
                self._places.append((conversation, actor))
        self._ids = int.from_bytes(os.urandom(4), "big") << 24

    def frame(self, number: int, count: int) -> writer_pb2.SendMessagesRequest:
        """The next `count` messages, 1 to 256; every group is as likely as any other, and so is every member."""
        frame = writer_pb2.SendMessagesRequest(frame_number=number, timeout_ms=_FRAME_TIMEOUT_MS)
        add, body = frame.messages.add, self._body
        # UUIDv7: the time, then a counter that starts at random in place of random bits.
        head = int(time.time() * 1000).to_bytes(6, "big") + b"\x70\x00"
        first = self._ids
        self._ids = first + count
        actors = []
        for index, (conversation, actor) in enumerate(self._random.choices(self._places, k=count)):
            actors.append(actor)
            message_id = head + (0x8000_0000_0000_0000 | first + index).to_bytes(8, "big")
            add(conversation_id=conversation, client_message_id=message_id, body=body, actor_index=index)
        frame.actors.extend(actors)
        return frame


class _Sent:
    """A frame in flight: when its messages were due, and when it was written."""

    __slots__ = ("count", "due", "step", "written")

    def __init__(self, due: float, step: float, count: int, written: float) -> None:
        self.due = due
        self.step = step
        self.count = count
        self.written = written


class LoadGenerator:
    """All stages of one process."""

    def __init__(self, plan: LoadPlan, client: GatewayClient) -> None:
        self._plan = plan
        self._number_of = {bytes.fromhex(group): number for number, (group, _) in enumerate(plan.groups)}
        self._traffic = Traffic(plan)
        self._streams = [client.open_frames() for _ in range(plan.streams)]
        self._frames: dict[int, _Sent] = {}
        self._number = 0
        self._answers: list[tuple[float, _Sent, writer_pb2.SendMessagesResponse]] = []
        self._progress = asyncio.Event()
        self._broken: str = ""
        self._seqs: dict[bytes, array.array[int]] = {}
        self._readers = [asyncio.create_task(self._read(stream)) for stream in self._streams]

    async def run(self, stage: Stage) -> tuple[float, float, int]:
        """Sends and waits for the answers; returns the first due time, the last answer's, and the messages sent."""
        start = _clock() + 0.01
        sent = await (self._open(stage, start) if stage.mode == "open" else self._closed(stage, start))
        end = _clock() + _ANSWER_SECONDS
        while self._frames and not self._broken and _clock() < end:
            await self._wait(0.1)
        return start, max((received for received, _, _ in self._answers), default=_clock()), sent

    async def _open(self, stage: Stage, start: float) -> int:
        total, rate, step = int(stage.rate * stage.seconds), stage.rate, 1 / stage.rate
        tick = self._plan.tick_ms / 1e3
        sent = turn = 0
        while sent < total and not self._broken:
            turn += 1
            await asyncio.sleep(start + turn * tick - _clock())
            due = min(total, int((_clock() - start) * rate) + 1)
            stream = self._streams[turn % len(self._streams)]
            while sent < due:
                count = min(MAX_FRAME_ITEMS, due - sent)
                await self._write(stream, count, start + sent * step, step)
                sent += count
        return sent

    async def _closed(self, stage: Stage, start: float) -> int:
        sent = 0
        while _clock() < start + stage.seconds and not self._broken:
            while len(self._frames) < stage.frames:
                stream = self._streams[self._number % len(self._streams)]
                await self._write(stream, stage.frame_messages, _clock(), 0.0)
                sent += stage.frame_messages
            await self._wait(0.1)
        return sent

    async def _write(self, stream: FrameStream, count: int, due: float, step: float) -> None:
        self._number += 1
        frame = self._traffic.frame(self._number, count)
        self._frames[self._number] = _Sent(due, step, count, _clock())
        try:
            await stream.write(frame)
        except QimError as error:
            self._broken = f"STREAM: {error}"

    async def _wait(self, seconds: float) -> None:
        self._progress.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._progress.wait()
        except TimeoutError:
            return

    async def _read(self, stream: FrameStream) -> None:
        try:
            while (answer := await stream.read()) is not None:
                received = _clock()
                self._answers.append((received, self._frames.pop(answer.frame_number), answer))
                self._progress.set()
            self._broken = "STREAM: ended by the server"
        except QimError as error:
            self._broken = f"STREAM: {error.reason or error}"
        self._progress.set()

    def evaluate(self, start: float, end: float, sent: int) -> StageResult:
        """The figures of the stage that has just run; not part of the measured time."""
        latencies = array.array("f")
        trace = Sent()
        errors: Counter[str] = Counter()
        late = 0
        slack = 1.5 * self._plan.tick_ms / 1e3
        for received, frame, answer in self._answers:
            if frame.written - (frame.due + frame.step * frame.count) > slack:
                late += frame.count
            for result in answer.results:
                if result.HasField("status") and result.status.code:
                    errors[_reason(result)] += 1
                    continue
                due = frame.due + frame.step * result.index
                latencies.append(received - due)
                if self._plan.trace:
                    trace.add(self._number_of[result.conversation_id], result.seq, due, received)
                self._seqs.setdefault(result.conversation_id, array.array("q")).append(result.seq)
        if missing := sum(frame.count for frame in self._frames.values()):
            errors[self._broken or "NO_ANSWER"] += missing
        self._answers.clear()
        self._frames.clear()
        file = temporary()
        file.write_bytes(latencies.tobytes())
        traced = str(trace.write()) if self._plan.trace else ""
        seconds = max(end - start, 1e-9)
        return StageResult(sent, len(latencies), seconds, dict(errors), str(file), late / max(sent, 1), traced)

    def ledger(self) -> Ledger:
        """What was acknowledged so far."""
        return Ledger({group.hex(): (len(seqs), len(set(seqs)), max(seqs)) for group, seqs in self._seqs.items()})

    async def close(self) -> None:
        """End the streams."""
        for stream in self._streams:
            stream.cancel()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)


def _reason(result: writer_pb2.SendResult) -> str:
    from google.rpc import error_details_pb2

    info = error_details_pb2.ErrorInfo()
    for detail in result.status.details:
        if detail.Unpack(info):
            return info.reason
    return f"CODE_{result.status.code}"


async def main() -> None:
    """Follow the orders on standard input."""
    lines = await orders()
    plan = LoadPlan.from_line((await lines.readline()).decode())
    files = TlsFiles(Path(plan.cert), Path(plan.key), Path(plan.ca))
    async with GatewayClient(plan.writer, plan.writer, files) as client:
        generator = LoadGenerator(plan, client)
        tell({"ready": True})
        ran = (0.0, 0.0, 0)
        while line := await lines.readline():
            order = json.loads(line)
            if order.get("verify"):
                tell(asdict(generator.ledger()))
                continue
            if order.get("evaluate"):
                tell(asdict(generator.evaluate(*ran)))
                continue
            profiler = cProfile.Profile() if plan.profile else None
            if profiler:
                profiler.enable()
            ran = await generator.run(Stage(**order))
            if profiler:
                profiler.disable()
                profiler.dump_stats(plan.profile)
            tell({"answered": ran[2]})
        await generator.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
