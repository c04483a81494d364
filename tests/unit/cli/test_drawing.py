"""What `qim` says: seqs as stretches."""

from __future__ import annotations

import pytest

from qim_client import HistoryPage, Message, SeqRange, Stay, VisibleRange
from qim_client.values import MemberState
from qim_common.ids import ConversationId, DeviceId, UserId
from qim_common.records import Audience, RecordType
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


def test_a_page_read_backwards_is_given_oldest_first() -> None:
    ana = UserId(b"a" * 16)
    group = ConversationId(b"\x02" + bytes(15))
    newest, before = (
        Message(
            group, seq, 0, 1, seq, RecordType.ORDINARY, ana, DeviceId(ana), ana, "", b"", 0, Audience.BROADCAST, None
        )
        for seq in (2, 1)
    )
    page = HistoryPage((newest, before), 0, 1, 2, 0)
    assert cli_drawing.oldest_first(page) == HistoryPage((before, newest), 0, 1, 2, 0)
