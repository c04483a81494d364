"""What the delivery benchmark makes of its traces: latencies, and whether every device got what it must get."""

from __future__ import annotations

import array
from pathlib import Path

import pytest
from bench.plan import Deliveries
from bench.trace import Received, Sent, attachment_of, count_by_device, delivery_faults, latencies

MEMBERS = 2
FIRST, SECOND = attachment_of(0, 0), attachment_of(0, 1)
COMPLETE = [(FIRST, 0, 3, 3, 3, True), (SECOND, 0, 3, 3, 3, True)]


def test_traces_come_back_from_their_files_which_are_then_gone() -> None:
    sent, received = Sent(), Received()
    sent.add(group=3, seq=7, due=1.5, acknowledged=1.75)
    sent.add(group=4, seq=1, due=2.5, acknowledged=2.75)
    received.add(group=3, seq=7, at=1.625)
    paths = sent.write(), received.write()
    assert Sent.take(paths[0]) == sent
    assert Received.take(paths[1]) == received
    assert not any(path.exists() for path in paths)


def test_a_file_with_half_a_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(bytes(17))
    with pytest.raises(ValueError, match="whole rows"):
        Received.take(path)


def test_each_delivery_of_a_message_has_its_latencies_and_others_have_none() -> None:
    sent, received = Sent(), Received()
    sent.add(group=0, seq=1, due=10.0, acknowledged=10.5)
    received.add(group=0, seq=1, at=10.25)
    received.add(group=0, seq=1, at=11.0)
    received.add(group=0, seq=2, at=11.0)
    from_due, from_acknowledged = latencies(sent, received)
    assert list(from_due) == [0.25, 1.0]
    assert list(from_acknowledged) == [-0.25, 0.5]


def test_devices_are_counted_with_their_order() -> None:
    rows = [(FIRST, 0, array.array("I", [1, 2, 4])), (SECOND, 0, array.array("I", [2, 1, 2]))]
    assert count_by_device(rows) == [(FIRST, 0, 3, 3, 4, True), (SECOND, 0, 3, 2, 2, False)]


@pytest.mark.parametrize(
    ("devices", "unexpected", "told"),
    [
        (COMPLETE, {}, None),
        ([COMPLETE[0]], {}, "got nothing"),
        ([COMPLETE[0], (SECOND, 0, 2, 2, 3, True)], {}, "2 deliveries"),
        ([COMPLETE[0], (SECOND, 0, 4, 3, 3, False)], {}, "4 deliveries, 3 distinct"),
        ([COMPLETE[0], (SECOND, 0, 3, 3, 3, False)], {}, "out of order"),
        ([COMPLETE[0], (SECOND, 0, 2, 2, 2, True)], {}, "head 3"),
        ([*COMPLETE, (SECOND, 1, 1, 1, 1, True)], {}, "not its own"),
        ([*COMPLETE, (attachment_of(1, 0), 1, 1, 1, 1, True)], {}, "not its own"),
        (COMPLETE, {"detached": 2}, "2 times detached"),
    ],
)
def test_a_device_must_get_every_seq_of_its_groups_once_and_in_order(
    devices: list[tuple[int, int, int, int, int, bool]], unexpected: dict[str, int], told: str | None
) -> None:
    faults = delivery_faults({0: 3, 1: 0}, MEMBERS, Deliveries(devices, unexpected))
    assert faults == [] if told is None else len(faults) == 1 and told in faults[0]
