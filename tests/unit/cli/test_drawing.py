"""What `qim` says: membership events in words, seqs as stretches, text of others made harmless."""

from __future__ import annotations

import pytest

from qim_client import MembershipEvent, SeqRange, Stay, VisibleRange
from qim_client.values import MemberState
from qim_common.ids import MembershipOp, UserId
from qim_devkit import cli_drawing

NAMES = {b"a" * 16: "ana", b"b" * 16: "ben", b"c" * 16: "cara"}
ANA, BEN, CARA = (UserId(user) for user in NAMES)


def name_of(user: bytes) -> str:
    return NAMES[user]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (MembershipEvent(MembershipOp.LEAVE, BEN, (BEN,)), "ben left"),
        (MembershipEvent(MembershipOp.JOIN, None, (CARA,)), "cara was added by an operator"),
        (MembershipEvent(MembershipOp.JOIN, ANA, (BEN, CARA)), "ben and cara were added by ana"),
        (MembershipEvent(MembershipOp.REMOVE, ANA, (BEN,)), "ben was removed by ana"),
        (MembershipEvent(MembershipOp.REMOVE, None, (BEN, CARA)), "ben and cara were removed by an operator"),
    ],
)
def test_events_in_words(event: MembershipEvent, words: str) -> None:
    assert cli_drawing.event_words(event, name_of) == words


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
