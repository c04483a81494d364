"""What the benchmark and its load generator say to each other: one JSON document a line, over the child's pipes.

The first line is a `LoadPlan`; the load generator answers `{"ready": true}`. Then, as often as wanted, a `Stage`: the
load generator answers `{"answered": <messages sent>}` as soon as every message has its answer. `{"evaluate": true}` is
answered with the stage's `StageResult`, `{"verify": true}` with the seqs of every group so far, as a `Ledger`. The end
of the input ends the process.

A subscriber (bench/subscriber.py) takes a `SubscriberPlan` and is ready when every device is attached. `{"deliveries":
<number>}` is answered with a `Delivered` when it has so many messages times devices since the last such order, or when
nothing has come for a while; `{"verify": true}` with `Deliveries`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Whom the load generator acts for.

    Attributes:
        writer: `host:port`.
        cert, key, ca: the gateway's files.
        groups: for each group its id and its members', in hex.
        body_bytes: of every message.
        streams: SendMessages streams, from 1.
        tick_ms: messages that became due within this time travel in one frame.
        profile: a file for cProfile's figures; empty: none.
        trace: also tell of every message where it went and when (`StageResult.trace`).
    """

    writer: str
    cert: str
    key: str
    ca: str
    tenant: int
    groups: list[tuple[str, list[str]]]
    body_bytes: int
    streams: int
    tick_ms: float
    profile: str = ""
    trace: bool = False

    def to_line(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """From `to_line`."""
        document: dict[str, Any] = json.loads(line)
        document["groups"] = [(group, users) for group, users in document["groups"]]
        return cls(**document)


@dataclass(frozen=True, slots=True)
class Stage:
    """One measurement.

    Attributes:
        mode: `open`: `rate` messages a second whatever the answers do, each latency measured from the moment at which
            its message was due; `closed`: `frames` of `frame_messages` wait for their answers all the time.
        seconds: how long messages are sent.
    """

    mode: Literal["open", "closed"]
    seconds: float
    rate: float = 0.0
    frames: int = 0
    frame_messages: int = 0


@dataclass(frozen=True, slots=True)
class StageResult:
    """What came of a stage.

    Attributes:
        sent, committed: messages.
        seconds: from the first message's due time to the last answer.
        errors: refused and unanswered messages by reason.
        latencies: a file of native 32-bit floats, seconds per committed message.
        late: the share of messages written more than a tick and a half after they were due.
        trace: a file of `bench.trace.Sent`, the groups numbered as in the plan; empty: none was asked for.
    """

    sent: int
    committed: int
    seconds: float
    errors: dict[str, int]
    latencies: str
    late: float
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the load generator was told: for each group the number of acknowledgements, of distinct seqs, and the
    newest seq."""

    groups: dict[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class SubscriberPlan:
    """Whose devices a subscriber attaches: every member of every group, each on the stream `member number mod streams`.

    Attributes:
        session: `host:port`.
        cert, key, ca: the gateway's files.
        groups: as in `LoadPlan`. A member's attachment is `group number * 1000 + place in the group + 1`.
        streams: Subscribe streams, from 1.
        acknowledge_seconds: how often every device acknowledges what it has; 0: never.
        profile: a file for cProfile's figures of everything after the attach; empty: none.
    """

    session: str
    cert: str
    key: str
    ca: str
    tenant: int
    groups: list[tuple[str, list[str]]]
    streams: int
    acknowledge_seconds: float
    profile: str = ""

    def to_line(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """From `to_line`."""
        document: dict[str, Any] = json.loads(line)
        document["groups"] = [(group, users) for group, users in document["groups"]]
        return cls(**document)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a subscriber got since it was last asked.

    Attributes:
        deliveries: messages times devices.
        events: events of messages; one may be for several devices.
        frames: responses of the stream that held them.
        trace: a file of `bench.trace.Received`.
    """

    deliveries: int
    events: int
    frames: int
    trace: str


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Everything that a subscriber got.

    Attributes:
        devices: for each attachment and group number the number of deliveries, of distinct seqs, the newest seq, and
            whether the seqs ascended.
        unexpected: other events than messages and answers to attach, by name, and how a stream ended.
    """

    devices: list[tuple[int, int, int, int, int, bool]]
    unexpected: dict[str, int]
