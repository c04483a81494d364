"""The subscriber: gateways' Subscribe streams in a process of their own, `python -m bench.subscriber` (bench/plan.py).

It uses the client library's bare frames and looks into a frame only when it is asked, after the stage: what it costs
meanwhile is receiving, and acknowledging as devices do.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import cProfile
import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Final

import uvloop

from bench.child import orders, tell
from bench.plan import Delivered, Deliveries, SubscriberPlan
from bench.trace import Received, attachment_of, count_by_device
from qim.session.v1 import session_pb2
from qim_client.config import TlsFiles
from qim_client.frames import LiveFrames
from qim_client.gateway import GatewayClient
from qim_common.errors import QimError

_ATTACH_SECONDS: Final = 25.0
_QUIET_SECONDS: Final = 3.0
"""When nothing has come for so long, what is missing does not come any more."""
_REQUEST_ITEMS: Final = 1_000
_clock = time.perf_counter


class Subscriber:
    """All devices of one process, on its streams."""

    def __init__(self, plan: SubscriberPlan, client: GatewayClient) -> None:
        self._plan = plan
        self._group_of = {bytes.fromhex(group): number for number, (group, _) in enumerate(plan.groups)}
        self._streams = [client.open_live_frames() for _ in range(plan.streams)]
        self._frames: list[tuple[float, session_pb2.SubscribeResponse]] = []
        self._deliveries = 0
        self._attached = 0
        self._progress = asyncio.Event()
        self._newest: list[dict[int, tuple[int, int]]] = [{} for _ in self._streams]
        self._seqs: dict[tuple[int, int], array.array[int]] = {}
        self._unexpected: Counter[str] = Counter()
        self._tasks = [asyncio.create_task(self._read(*numbered)) for numbered in enumerate(self._streams)]

    async def attach(self) -> None:
        """Attach every device and wait until each is. Raises TimeoutError, QimError."""
        waiting: list[list[session_pb2.SubscribeRequest.Attach]] = [[] for _ in self._streams]
        for group, (_, users) in enumerate(self._plan.groups):
            for place, user in enumerate(map(bytes.fromhex, users)):
                attach = session_pb2.SubscribeRequest.Attach(attachment=attachment_of(group, place))
                attach.actor.tenant_id, attach.actor.user_id, attach.actor.device_id = self._plan.tenant, user, user
                waiting[place % len(waiting)].append(attach)
        total = sum(map(len, waiting))
        for stream, attaches in zip(self._streams, waiting, strict=True):
            for start in range(0, len(attaches), _REQUEST_ITEMS):
                await stream.write(session_pb2.SubscribeRequest(attach=attaches[start : start + _REQUEST_ITEMS]))
        async with asyncio.timeout(_ATTACH_SECONDS):
            while self._attached < total:
                if self._unexpected:
                    raise RuntimeError(f"attached {self._attached} of {total}, but got {dict(self._unexpected)}")
                self._progress.clear()
                await self._progress.wait()
        if self._plan.acknowledge_seconds:
            self._tasks += [asyncio.create_task(self._acknowledge(*numbered)) for numbered in enumerate(self._streams)]

    async def delivered(self, expected: int) -> int:
        """Wait until so many messages times devices came since the last time, or until it is quiet; how many came."""
        before = -1
        while before < self._deliveries < expected:
            before = self._deliveries
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_SECONDS):
                    while before == self._deliveries:
                        self._progress.clear()
                        await self._progress.wait()
        return self._deliveries

    def evaluate(self) -> Delivered:
        """What came since the last time; not part of the measured time."""
        received = Received()
        events = 0
        for at, frame in self._frames:
            for event in frame.events:
                if event.WhichOneof("event") != "delivered":
                    continue
                events += 1
                entry = event.delivered
                if not entry.HasField("message"):
                    self._unexpected["withheld"] += len(event.attachments)
                    continue
                group, seq = self._group_of[entry.conversation_id], entry.message.seq
                for attachment in event.attachments:
                    received.add(group, seq, at)
                    self._seqs.setdefault((attachment, group), array.array("I")).append(seq)
        answer = Delivered(self._deliveries, events, len(self._frames), str(received.write()))
        self._frames.clear()
        self._deliveries = 0
        return answer

    def everything(self) -> Deliveries:
        """What came since the start."""
        rows = ((attachment, group, seqs) for (attachment, group), seqs in self._seqs.items())
        return Deliveries(count_by_device(rows), dict(self._unexpected))

    async def close(self) -> None:
        """End the streams."""
        for stream in self._streams:
            stream.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, number: int, stream: LiveFrames) -> None:
        newest = self._newest[number]
        try:
            while (frame := await stream.read()) is not None:
                at = _clock()
                for event in frame.events:
                    kind = event.WhichOneof("event")
                    if kind == "delivered":
                        self._deliveries += len(event.attachments)
                        message = event.delivered.message
                        newest[self._group_of[message.conversation_id]] = (message.generation, message.seq)
                    elif kind == "attached":
                        self._attached += len(event.attachments)
                    elif kind not in ("resume", "state", "states_changed"):
                        self._unexpected[kind or "an unknown event"] += 1
                self._frames.append((at, frame))
                self._progress.set()
            self._unexpected["end of a stream"] += 1
        except QimError as error:
            self._unexpected[f"end of a stream: {error.reason or error}"] += 1
        self._progress.set()

    async def _acknowledge(self, number: int, stream: LiveFrames) -> None:
        """Every device on the stream, as often as the plan says; the members of a group have the same messages."""
        count, newest = len(self._streams), self._newest[number]
        while True:
            await asyncio.sleep(self._plan.acknowledge_seconds)
            arrived = newest.copy()
            newest.clear()
            waiting = []
            for group, (generation, seq) in arrived.items():
                name, users = self._plan.groups[group]
                for place in range(number, len(users), count):
                    one = session_pb2.SubscribeRequest.Acknowledge(attachment=attachment_of(group, place))
                    one.cursors.add(conversation_id=bytes.fromhex(name), generation=generation, seq=seq)
                    waiting.append(one)
            for start in range(0, len(waiting), _REQUEST_ITEMS):
                await stream.write(session_pb2.SubscribeRequest(acknowledge=waiting[start : start + _REQUEST_ITEMS]))


async def main() -> None:
    """Follow the orders on standard input."""
    lines = await orders()
    plan = SubscriberPlan.from_line((await lines.readline()).decode())
    files = TlsFiles(Path(plan.cert), Path(plan.key), Path(plan.ca))
    async with GatewayClient(plan.session, plan.session, files) as client:
        subscriber = Subscriber(plan, client)
        await subscriber.attach()
        tell({"ready": True})
        profiler = cProfile.Profile() if plan.profile else None
        if profiler:
            profiler.enable()
        while line := await lines.readline():
            order = json.loads(line)
            if order.get("verify"):
                tell(asdict(subscriber.everything()))
            elif order.get("evaluate"):
                tell(asdict(subscriber.evaluate()))
            else:
                tell({"delivered": await subscriber.delivered(order["deliveries"])})
        if profiler:
            profiler.disable()
            profiler.dump_stats(plan.profile)
        await subscriber.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
