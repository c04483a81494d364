"""The drawing of a timeline: bars and ends where they belong, in the terminal and in the picture."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

import pytest
from rich.text import Text

from qim_admin.timeline.picture import picture
from qim_admin.timeline.reading import PersonLine, Timeline, newest_first
from qim_admin.timeline.spans import End, Kind, Span, ends, spans, ticks
from qim_admin.timeline.terminal import bars, cells
from qim_admin.words import Line
from qim_client import GroupDetails, GroupSettings, MembershipChange, MemberState, SeqRange, Stay
from qim_common.ids import ConversationId, MembershipOp, UserId

GROUP = ConversationId(b"\x02" + b"g" * 15)
ANA, BEN, CARA = (UserId(letter * 16) for letter in (b"a", b"b", b"c"))
SHOWN, HIDDEN, BACKLOG = Kind.SHOWN, Kind.HIDDEN, Kind.BACKLOG


def stay(joined_at: int, left_at: int = 0, state: MemberState = MemberState.LEFT) -> Stay:
    state = state if left_at else MemberState.MEMBER
    return Stay(joined_at, joined_at, left_at, state, 1, 2 if left_at else 0, keeps_earlier=False, revoked=False)


def person(stays: Sequence[Stay], *visible: tuple[int, int], user: UserId = ANA) -> PersonLine:
    return PersonLine(user, tuple(stays), tuple(SeqRange(*item) for item in visible), 0)


def timeline(*people: PersonLine, head: int, floor: int = 0) -> Timeline:
    settings = GroupSettings()
    details = GroupDetails(GROUP, ANA, 1, 1, 0, len(people), settings, head, floor, frozen=False, created_at_ms=0)
    return Timeline(details, (), (), people)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (person([stay(0)], (1, 10)), [Span(SHOWN, 0, 10)]),
        (person([stay(4)], (5, 10)), [Span(SHOWN, 4, 10)]),
        (person([stay(4)], (3, 10)), [Span(BACKLOG, 2, 4), Span(SHOWN, 4, 10)]),
        (person([stay(0, 5)], (1, 4)), [Span(SHOWN, 0, 4)]),
        (person([stay(0, 5)]), [Span(HIDDEN, 0, 4)]),
        (person([stay(0)], (7, 10)), [Span(HIDDEN, 0, 6), Span(SHOWN, 6, 10)]),
        (person([stay(0, 3), stay(6)], (7, 10)), [Span(HIDDEN, 0, 2), Span(SHOWN, 6, 10)]),
        (person([stay(0, 3), stay(6)], (1, 2), (7, 10)), [Span(SHOWN, 0, 2), Span(SHOWN, 6, 10)]),
        (person([stay(0, 3), stay(6)], (1, 10)), [Span(SHOWN, 0, 2), Span(BACKLOG, 2, 6), Span(SHOWN, 6, 10)]),
        (person([stay(3, 5), stay(4)], (4, 10)), [Span(SHOWN, 3, 10)]),
        (person([stay(0, 1)]), []),
        (person([]), []),
    ],
    ids=[
        "from-the-start",
        "since-join",
        "last-n",
        "left",
        "revoked",
        "cleared",
        "latest-stay",
        "all-stays",
        "all",
        "back-at-once",
        "left-with-the-first-seq",
        "never",
    ],
)
def test_where_bars_begin_and_end(line: PersonLine, expected: list[Span]) -> None:
    assert spans(line, 10) == expected


def test_ends_say_how_a_stay_ended() -> None:
    line = person([stay(0, 3), stay(4, 8, MemberState.REMOVED), stay(9)])
    assert ends(line) == [End(3, MemberState.LEFT), End(8, MemberState.REMOVED)]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (person([stay(0)], (1, 10)), "██████████"),
        (person([stay(4)], (3, 10)), "  ▂▂██████"),
        (person([stay(0, 4)], (1, 3)), "███L      "),
        (person([stay(0, 4, MemberState.REMOVED)]), "░░░R      "),
        (person([stay(0, 1)]), "L         "),
        (person([stay(0, 10)], (1, 9)), "█████████L"),
        (person([]), "          "),
    ],
)
def test_a_row_with_a_column_for_each_seq(line: PersonLine, row: str) -> None:
    assert cells(line, 10, 10) == row


def test_a_row_is_stretched_where_there_is_room() -> None:
    assert cells(person([stay(1)], (2, 3)), 3, 12) == "    ████████"


def test_a_column_for_many_seqs_loses_no_stay_and_no_end() -> None:
    assert cells(person([stay(500)], (501, 501), user=BEN), 1000, 10) == "     ▓░░░░"
    short = person([stay(499, 502)], (500, 501))
    assert cells(short, 1000, 10) == "    █L    "
    twice = person([stay(10, 20), stay(30, 40)], (11, 19), (31, 39))
    assert cells(twice, 1000, 10)[0] == "#"


@pytest.mark.parametrize("head", [1, 2, 59, 60, 61, 1000, 2**53 - 1])
@pytest.mark.parametrize("room", [1, 40, 93])
def test_every_row_has_its_width_whatever_the_head(head: int, room: int) -> None:
    line = person([stay(0, head), stay(head - 1)], (1, head))
    assert len(cells(line, head, room)) == room


@pytest.mark.parametrize(
    ("head", "at_most", "expected"),
    [
        (0, 5, []),
        (1, 5, [1]),
        (4, 5, [1, 2, 3, 4]),
        (10, 5, [1, 2, 4, 6, 8, 10]),
        (2488, 8, [1, 500, 1000, 1500, 2000]),
    ],
)
def test_round_seqs_are_labelled(head: int, at_most: int, expected: list[int]) -> None:
    assert ticks(head, at_most) == expected


def test_the_terminal_shows_one_row_a_person_and_the_legend_of_what_occurs() -> None:
    names = {ANA: "ana", BEN: "\u5c71\u672c", CARA: "x" * 50}
    people = (
        person([stay(0)], (3, 40)),
        person([stay(0, 20, MemberState.REMOVED)], user=BEN),
        person([stay(9)], (10, 40), user=CARA),
    )
    drawn = bars(timeline(*people, head=40, floor=2), lambda user: names[UserId(user)], 60)
    assert max(line.cell_len for line in drawn) <= 60
    labels, ruler, ana, ben, cara, *legend = (line.plain for line in drawn)
    assert labels.split() == ["1", "20"]
    assert "F" in ruler
    assert (ana.startswith("ana "), ben.endswith("R"), cara.startswith("x" * 23 + "… ")) == (True, True, True)
    said = "\n".join(legend)
    assert "R removed" in said
    assert "L left" not in said
    assert "F floor" in said


def test_a_group_without_a_seq_says_so() -> None:
    (line,) = bars(timeline(person([stay(0)]), head=0), lambda _: "ana", 80)
    assert isinstance(line, Text)
    assert "no seq yet" in line.plain


def test_people_of_the_newest_event_come_first_and_once() -> None:
    def change(seq: int, *people: UserId) -> MembershipChange:
        return MembershipChange(seq, MembershipOp.JOIN, seq, 0, people, None)

    assert newest_first([change(1, ANA, BEN), change(2, CARA), change(3, BEN)]) == [BEN, CARA, ANA]


def drawn_picture(found: Timeline, lines: Sequence[Line] = (), name: str = "ana") -> Xml.Element:
    document = picture(found, lines, lambda _: name, title="t", subtitle="s", notes=["n"])
    return Xml.fromstring(document)  # noqa: S314 - made here


def classes(root: Xml.Element, name: str) -> list[str]:
    return [element.get("class", "") for element in root.iter(f"{{http://www.w3.org/2000/svg}}{name}")]


def test_the_picture_has_each_bar_each_end_and_the_floor() -> None:
    line = person([stay(0, 4, MemberState.REMOVED), stay(6)], (6, 10))
    root = drawn_picture(timeline(line, head=10, floor=3))
    legend = ["shown", "hidden", "backlog", "left", "removed"]
    expected = ["hidden", "backlog", "shown", "removed", *legend]
    assert [name for name in classes(root, "rect") if name] == expected
    assert classes(root, "line").count("floor") == 2
    tips = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert tips == [
        "seq 1 to 3: in the group then, hidden now",
        "seq 6: outside then, may read",
        "seq 7 to 10: in the group, may read",
        "removed with seq 4",
    ]


def test_the_picture_refers_to_nothing_outside_and_names_cannot_break_it() -> None:
    name = "</text><script>alert(1)</script> & co"
    found = timeline(person([stay(0)], (1, 1)), head=1)
    document = picture(found, (), lambda _: name, title=name, subtitle="", notes=[])
    assert "<script" not in document
    assert document.count("http") == 1
    root = drawn_picture(found, name=name)
    assert any(element.text == name[:35] + "…" for element in root.iter("{http://www.w3.org/2000/svg}text"))


def test_long_words_go_on_several_lines_of_the_picture() -> None:
    found = timeline(person([stay(0)], (1, 1)), head=1)
    lines = [Line("1", "v2", "2026-11-30 13:51:05", "cara was added by ana " * 20)]
    texts = [element.text or "" for element in drawn_picture(found, lines).iter("{http://www.w3.org/2000/svg}text")]
    assert sum("cara was added by ana" in text for text in texts) > 2
    assert max(len(text) for text in texts) < 130


def test_a_picture_of_nobody_is_a_picture_too() -> None:
    assert drawn_picture(timeline(head=0)).tag == "{http://www.w3.org/2000/svg}svg"
