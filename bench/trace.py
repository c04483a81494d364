"""When each message was due, acknowledged, and on its subscribers' streams: columns in files, and what they tell.

All moments are seconds of `time.perf_counter`, which on Linux is one clock for all processes of a machine.
"""

from __future__ import annotations

import array
import itertools
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bench.plan import Deliveries

PLACES = 1000
"""Attachment numbers set aside for each group."""


def attachment_of(group: int, place: int) -> int:
    """The attachment (from 1) of the member at `place` (from 0) of a group (from 0)."""
    return group * PLACES + place + 1


def temporary() -> Path:
    """A new file of the benchmark's; whoever reads it removes it."""
    with tempfile.NamedTemporaryFile(prefix="qim-bench-", suffix=".trace", delete=False) as file:
        return Path(file.name)


@dataclass(slots=True)
class Sent:
    """Messages that were committed: the group's number, the seq, when it was due, when its answer came."""

    groups: array.array[int] = field(default_factory=lambda: array.array("I"))
    seqs: array.array[int] = field(default_factory=lambda: array.array("I"))
    due: array.array[float] = field(default_factory=lambda: array.array("d"))
    acknowledged: array.array[float] = field(default_factory=lambda: array.array("d"))

    def add(self, group: int, seq: int, due: float, acknowledged: float) -> None:
        """One message more."""
        self.groups.append(group)
        self.seqs.append(seq)
        self.due.append(due)
        self.acknowledged.append(acknowledged)

    def write(self) -> Path:
        """Into a new file."""
        return _write(self.groups, self.seqs, self.due, self.acknowledged)

    @classmethod
    def take(cls, path: Path) -> Self:
        """Reads what `write` wrote, and removes it. Raises ValueError for a file of another shape."""
        taken = cls()
        _take(path, taken.groups, taken.seqs, taken.due, taken.acknowledged)
        return taken


@dataclass(slots=True)
class Received:
    """Messages at devices: the group's number, the seq, and when the stream brought it; one row a device."""

    groups: array.array[int] = field(default_factory=lambda: array.array("I"))
    seqs: array.array[int] = field(default_factory=lambda: array.array("I"))
    at: array.array[float] = field(default_factory=lambda: array.array("d"))

    def add(self, group: int, seq: int, at: float) -> None:
        """One message at one device more."""
        self.groups.append(group)
        self.seqs.append(seq)
        self.at.append(at)

    def write(self) -> Path:
        """Into a new file."""
        return _write(self.groups, self.seqs, self.at)

    @classmethod
    def take(cls, path: Path) -> Self:
        """Reads what `write` wrote, and removes it. Raises ValueError for a file of another shape."""
        taken = cls()
        _take(path, taken.groups, taken.seqs, taken.at)
        return taken


def latencies(sent: Sent, received: Received) -> tuple[array.array[float], array.array[float]]:
    """Seconds from the due moment, and from the acknowledgement, to each delivery of these messages.

    The second kind is negative where the event came before the answer. Deliveries of other messages are left out.
    """
    moments = {
        (group, seq): (due, acknowledged)
        for group, seq, due, acknowledged in zip(sent.groups, sent.seqs, sent.due, sent.acknowledged, strict=True)
    }
    from_due, from_acknowledged = array.array("d"), array.array("d")
    for group, seq, at in zip(received.groups, received.seqs, received.at, strict=True):
        if found := moments.get((group, seq)):
            from_due.append(at - found[0])
            from_acknowledged.append(at - found[1])
    return from_due, from_acknowledged


def count_by_device(rows: Iterable[tuple[int, int, array.array[int]]]) -> list[tuple[int, int, int, int, int, bool]]:
    """The `Deliveries.devices` of rows of (attachment, group, its seqs as they came)."""
    counted = []
    for attachment, group, seqs in rows:
        ascending = all(one < other for one, other in itertools.pairwise(seqs))
        counted.append((attachment, group, len(seqs), len(set(seqs)), max(seqs), ascending))
    return counted


def delivery_faults(heads: Mapping[int, int], members: int, deliveries: Deliveries) -> list[str]:
    """What is wrong with what the devices got (design.md invariant 4).

    Each member of each group must have got the seqs 1 to the head, ascending, each once, and nothing of another group.

    Args:
        heads: the newest seq of each group by its number; 0: nobody wrote in it.
        members: of every group.
        deliveries: as the subscriber counted them.
    """
    faults = [f"{count} times {what}" for what, count in sorted(deliveries.unexpected.items())]
    missing = {
        (attachment_of(group, place), group): head
        for group, head in heads.items()
        for place in range(members if head else 0)
    }
    for attachment, group, count, distinct, newest, ascending in deliveries.devices:
        head = missing.pop((attachment, group), None)
        if head is None:
            faults.append(f"attachment {attachment} got messages of group {group}, which are not its own")
        elif not count == distinct == newest == head or not ascending:
            order = "ascending" if ascending else "out of order"
            faults.append(
                f"attachment {attachment}, group {group}: {count} deliveries, {distinct} distinct seqs, "
                f"newest {newest}, head {head}, {order}"
            )
    faults += [f"attachment {attachment} got nothing of group {group}" for attachment, group in missing]
    return faults


def _write(*columns: array.array[int] | array.array[float]) -> Path:
    path = temporary()
    with path.open("wb") as file:
        for column in columns:
            column.tofile(file)
    return path


def _take(path: Path, *columns: array.array[int] | array.array[float]) -> None:
    data = path.read_bytes()
    path.unlink()
    count, rest = divmod(len(data), sum(column.itemsize for column in columns))
    if rest:
        raise ValueError(f"{path} does not hold whole rows")
    start = 0
    for column in columns:
        end = start + count * column.itemsize
        column.frombytes(data[start:end])
        start = end
