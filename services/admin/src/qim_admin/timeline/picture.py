"""A timeline as a picture for a ticket: one self-contained SVG without scripts, fonts or addresses. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as Xml

from rich.cells import cell_len, set_cell_size

from qim_admin.timeline.reading import PersonLine, Timeline
from qim_admin.timeline.spans import Kind, ends, spans, ticks
from qim_admin.words import Line
from qim_client import MemberState
from qim_client.words import NameOf

_WIDTH: Final = 1000
_MARGIN: Final = 20
_ROW: Final = 20
_BAR: Final = 12
_CHARACTER: Final = 7.3
"""The width of a character at the size of `_FONT`, with some room."""
_MAX_NAME: Final = 36
_THINNEST: Final = 1.5
_FONT: Final = "12px 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_STYLE: Final = f"""
text {{ font: {_FONT}; fill: #222; }}
.title {{ font-size: 16px; font-weight: bold; }}
.dim {{ fill: #666; }}
.tick {{ stroke: #ddd; }}
.floor {{ stroke: #b00020; stroke-width: 1.5; stroke-dasharray: 5 3; }}
.shown {{ fill: #2e7d32; }}
.hidden {{ fill: url(#hatch); stroke: #c62828; stroke-width: 0.7; }}
.backlog {{ fill: #90caf9; }}
.end {{ font-size: 10px; font-weight: bold; text-anchor: middle; fill: #fff; }}
.left {{ fill: #37474f; }}
.removed {{ fill: #c62828; }}
"""
_CLASSES: Final = {Kind.SHOWN: "shown", Kind.HIDDEN: "hidden", Kind.BACKLOG: "backlog"}


def picture(
    timeline: Timeline, lines: Sequence[Line], name_of: NameOf, *, title: str, subtitle: str, notes: Sequence[str]
) -> str:
    """The SVG document: title, bars, legend, notes, and `lines` below."""
    head, floor = timeline.group.head_seq, timeline.group.group_floor_seq
    names = [_cropped(name_of(person.user), _MAX_NAME) for person in timeline.people]
    left = _MARGIN + max((cell_len(name) for name in names), default=0) * _CHARACTER + 10
    canvas = _Canvas(left, _WIDTH - _MARGIN, max(head, 1))
    canvas.text(_MARGIN, 34, title, "title")
    canvas.text(_MARGIN, 54, _fitting(subtitle), "dim")
    top = 92
    bottom = top + len(names) * _ROW
    canvas.axis(head, top, bottom)
    for at, (name, person) in enumerate(zip(names, timeline.people, strict=True)):
        canvas.text(_MARGIN, top + at * _ROW + 14, name)
        canvas.person(person, head, top + at * _ROW + (_ROW - _BAR) / 2)
    if floor:
        canvas.line(canvas.x(floor), top - 6, canvas.x(floor), bottom, "floor")
    y = canvas.legend(bottom + 24, floor) + _ROW / 2
    for note in notes:
        y += _ROW
        canvas.text(_MARGIN, y, _fitting(note), "dim")
    if lines:
        y = canvas.table(y + _ROW, lines)
    return canvas.document(y + _MARGIN)


class _Canvas:
    """Draws on the line of seqs from 0 to `head` between two horizontal positions, in pixels."""

    def __init__(self, left: float, right: float, head: int) -> None:
        self._left = left
        self._right = right
        self._head = head
        self._root = Xml.Element("svg", {"xmlns": "http://www.w3.org/2000/svg"})
        Xml.SubElement(self._root, "style").text = _STYLE
        definitions = Xml.SubElement(self._root, "defs")
        size = {"width": "6", "height": "6", "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
        hatch = Xml.SubElement(definitions, "pattern", {"id": "hatch", **size})
        Xml.SubElement(hatch, "rect", {"width": "6", "height": "6", "fill": "#fdecea"})
        Xml.SubElement(hatch, "rect", {"width": "2", "height": "6", "fill": "#e57373"})
        Xml.SubElement(self._root, "rect", {"width": "100%", "height": "100%", "fill": "#fff"})

    def x(self, position: float) -> float:
        """Where a position of the line lies."""
        return self._left + (self._right - self._left) * position / self._head

    def text(self, x: float, y: float, words: str, style: str = "", **attributes: str) -> None:
        """One line of text."""
        element = Xml.SubElement(self._root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **attributes})
        if style:
            element.set("class", style)
        element.text = words

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        places = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        Xml.SubElement(self._root, "line", {"class": style, **{name: f"{at:.1f}" for name, at in places.items()}})

    def box(self, x: float, y: float, width: float, style: str, tip: str = "") -> None:
        """A bar; `tip` is shown where the pointer rests."""
        place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": str(_BAR)}
        element = Xml.SubElement(self._root, "rect", {"class": style, **place})
        if tip:
            Xml.SubElement(element, "title").text = tip

    def axis(self, head: int, top: float, bottom: float) -> None:
        """Labelled seqs above the rows."""
        free = 0.0
        for seq in ticks(head, 10):
            x, words = self.x(seq - 0.5), f"{seq:,}"
            half = len(words) * _CHARACTER / 2
            if x - half >= free and x + half <= _WIDTH - 2:
                self.text(x, top - 10, words, "dim", **{"text-anchor": "middle"})
                free = x + half + _CHARACTER
            self.line(x, top - 6, x, bottom, "tick")

    def person(self, person: PersonLine, head: int, y: float) -> None:
        """One person's bars and ends."""
        for span in spans(person, head):
            x = self.x(span.start)
            width = max(self.x(span.end) - x, _THINNEST)
            seqs = f"seq {span.start + 1}" if span.end == span.start + 1 else f"seq {span.start + 1} to {span.end}"
            self.box(x, y, width, _CLASSES[span.kind], f"{seqs}: {span.kind.value}")
        for end in ends(person):
            removed = end.state is MemberState.REMOVED
            self.end(self.x(end.seq - 0.5), y, removed=removed, tip=f"seq {end.seq}")

    def end(self, x: float, y: float, *, removed: bool, tip: str = "") -> None:
        """The mark of a stay's end."""
        words = "removed" if removed else "left"
        self.box(x - 5, y, 10, words, f"{words} with {tip}" if tip else "")
        self.text(x, y + 9.5, words[0].upper(), "end")

    def legend(self, y: float, floor: int) -> float:
        """What the marks mean; where its last line stands."""
        x = float(_MARGIN)
        for kind in Kind:
            self.box(x, y - 10, 20, _CLASSES[kind])
            self.text(x + 26, y, kind.value, "dim")
            x += 26 + (len(kind.value) + 2) * _CHARACTER
        for removed, words in ((False, "left"), (True, "removed")):
            self.end(x + 5, y - 10, removed=removed)
            self.text(x + 16, y, words, "dim")
            x += 16 + (len(words) + 2) * _CHARACTER
        if floor:
            y += _ROW
            self.line(_MARGIN, y - 4, _MARGIN + 20, y - 4, "floor")
            self.text(_MARGIN + 26, y, f"floor: nobody reads up to seq {floor:,}", "dim")
        return y

    def table(self, y: float, lines: Sequence[Line]) -> float:
        """Events and changes, long ones on several lines; where the last line stands."""
        texts = [(line.place, line.number, line.time) for line in lines]
        starts = [_MARGIN, *(0.0, 0.0, 0.0)]
        for at in range(3):
            starts[at + 1] = starts[at] + (max(len(text[at]) for text in texts) + 2) * _CHARACTER
        room = int((_WIDTH - _MARGIN - starts[3]) / _CHARACTER)
        for line, text in zip(lines, texts, strict=True):
            for at, words in enumerate(text):
                self.text(starts[at], y + _ROW, words, "dim")
            for words in textwrap.wrap(line.words, room, break_on_hyphens=False):
                y += _ROW
                self.text(starts[3], y, words)
        return y

    def document(self, height: float) -> str:
        """The finished document."""
        size = {"width": str(_WIDTH), "height": f"{height:.0f}", "viewBox": f"0 0 {_WIDTH} {height:.0f}"}
        self._root.attrib.update(size)
        return Xml.tostring(self._root, encoding="unicode") + "\n"


def _fitting(words: str) -> str:
    return _cropped(words, int((_WIDTH - 2 * _MARGIN) / _CHARACTER))


def _cropped(words: str, width: int) -> str:
    return words if cell_len(words) <= width else set_cell_size(words, width - 1) + "…"
