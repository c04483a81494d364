"""Signals to a person's other devices, as bytes."""

from __future__ import annotations

import struct

import pytest
from tests.support.dispatch import TENANT, group, user

from qim_common.ids import DeviceId
from qim_session.domain.signals import Signal, SignalKind

DEVICE = DeviceId(b"d" * 16)


@pytest.mark.parametrize(
    "signal",
    [
        Signal(SignalKind.READ_MARK, TENANT, user(1), DEVICE, group(2), generation=3, seq=2**53 - 1),
        Signal(SignalKind.FLAGS, TENANT, user(1), DEVICE, group(2), generation=0, hidden=True),
        Signal(SignalKind.FLAGS, TENANT, user(1), DEVICE, group(2), generation=2**32 - 1, muted=True),
        Signal(SignalKind.FLAGS, TENANT, user(1), DEVICE, group(2), generation=1, hidden=True, muted=True),
    ],
)
def test_a_signal_reads_as_it_was_written(signal: Signal) -> None:
    packed = signal.pack()
    assert len(packed) == 70
    assert Signal.unpack(packed) == signal


def test_the_last_byte_is_the_flags_which_a_script_may_fill_in() -> None:
    unset = Signal(SignalKind.FLAGS, TENANT, user(1), DEVICE, group(2), generation=1).pack()
    told = Signal.unpack(unset[:-1] + b"\x03")
    assert (told.hidden, told.muted) == (True, True)


@pytest.mark.parametrize("data", [b"", bytes(69), bytes(71)])
def test_another_length_is_no_signal(data: bytes) -> None:
    with pytest.raises(struct.error):
        Signal.unpack(data)


def test_another_kind_is_no_signal() -> None:
    with pytest.raises(ValueError, match="SignalKind"):
        Signal.unpack(b"\x09" + bytes(69))
