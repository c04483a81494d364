"""Hidden and muted, as decisions and as bytes."""

from __future__ import annotations

import struct

import pytest

from qim_session.domain.flags import NO_FLAGS, Flags, still_hidden

HIDDEN_AT_5 = Flags(hidden=True, hidden_seq=5, generation=2)


@pytest.mark.parametrize(
    ("flags", "quiet", "generation", "joined_at", "expected"),
    [
        pytest.param(HIDDEN_AT_5, True, 2, 0, True, id="nothing came"),
        pytest.param(HIDDEN_AT_5, False, 2, 0, False, id="an ordinary message came"),
        pytest.param(HIDDEN_AT_5, True, 2, 4, True, id="the stay is the one it was hidden in"),
        pytest.param(HIDDEN_AT_5, True, 2, 5, False, id="came back with the next event"),
        pytest.param(HIDDEN_AT_5, True, 2, 9, False, id="came back later"),
        pytest.param(HIDDEN_AT_5, True, 3, 0, False, id="seqs were lost since"),
        pytest.param(Flags(hidden=True), True, 0, 0, True, id="hidden before any message"),
        pytest.param(Flags(hidden=True), False, 0, 0, False, id="hidden before any message, and one came"),
        pytest.param(Flags(hidden=True), True, 0, 1, False, id="hidden before any message, left and came back"),
        pytest.param(NO_FLAGS, True, 0, 0, False, id="nothing was set"),
        pytest.param(Flags(muted=True), True, 0, 0, False, id="only muted"),
    ],
)
def test_hidden_holds_until_the_next_message_or_return(
    flags: Flags, *, quiet: bool, generation: int, joined_at: int, expected: bool
) -> None:
    assert still_hidden(flags, quiet=quiet, generation=generation, joined_at=joined_at) is expected


@pytest.mark.parametrize(
    "flags", [NO_FLAGS, Flags(muted=True), Flags(hidden=True), Flags(True, True, 2**32 - 1, 2**53 - 1, 2**32 - 1)]
)
def test_flags_read_as_they_were_written(flags: Flags) -> None:
    packed = flags.pack()
    assert len(packed) == 17
    assert Flags.unpack(packed) == flags


@pytest.mark.parametrize("data", [b"", bytes(13), bytes(16), bytes(18)])
def test_another_length_is_no_flags(data: bytes) -> None:
    with pytest.raises(struct.error):
        Flags.unpack(data)
