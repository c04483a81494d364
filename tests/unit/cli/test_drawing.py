"""What `qim` says: seqs as stretches."""

from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from qim_client import HistoryPage, Member, MemberRole, Message, SeqRange, Stay, VisibleRange
from qim_common.enums import MemberState
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


def test_seqs_of_members_and_stays_are_those_that_a_history_shows() -> None:
    first = Stay(0, 0, 3, MemberState.REMOVED, 1, 2, keeps_earlier=False, revoked=False)
    second = Stay(4, 2, 0, MemberState.MEMBER, 3, 0, keeps_earlier=True, revoked=False)
    visible = VisibleRange((), 1, 9, MemberState.MEMBER, (first, second), 0, 0, 3, 0)
    assert drawn(cli_drawing.visible_lines(visible)[-1]) == [
        "stay began history ended keeps earlier revoked",
        "1 there from the start 1 to 2 removed with 3 no no",
        "2 joined with 5 from 3 on still in yes no",
    ]
    member = Member(UserId(b"a" * 16), MemberRole.OWNER, 4, MemberState.MEMBER, 0)
    assert drawn(cli_drawing.members_table([member], lambda _: "ana")) == ["member role since seq", "ana owner 5"]


def drawn(part: RenderableType) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(part)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


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
