"""What `qim` says: seqs as stretches."""

from __future__ import annotations

import pytest

from qim_client import SeqRange, Stay, VisibleRange
from qim_client.values import MemberState
from qim_devkit import cli_drawing


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ((), "visible: nothing"),
        ((SeqRange(3, 3),), "visible: 3 (1 seq)"),
        ((SeqRange(1, 4815), SeqRange(4880, 4900)), "visible: 1 to 4815 and 4880 to 4900 (4,836 seqs)"),
    ],
)
def test_visible_seqs_in_words(ranges: tuple[SeqRange, ...], words: str) -> None:
    stay = Stay(0, 0, 0, MemberState.MEMBER, 1, 0, keeps_earlier=False, revoked=False)
    visible = VisibleRange(ranges, 1, 4900, MemberState.MEMBER, (stay,), 0, 0, 1, 0)
    assert str(cli_drawing.visible_lines(visible)[0]) == words
