"""The parts of the chat's window: the list, the open conversation, the input line."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from qim_client import Conversation
from qim_common.ids import ConversationId
from qim_devkit.chat import drawing
from qim_devkit.chat.lines import Line, LineKind
from qim_devkit.chat.names import Names

ENTRY_ROWS: Final = 3
"""Of one conversation in the list: its name, its newest message, an empty one."""

TEXT_ROWS: Final = ENTRY_ROWS - 1
"""Those of them that say something."""


class ConversationList(ScrollView, can_focus=False):
    """Conversations in the order given; only what is in sight is drawn."""

    class Chosen(Message):
        """Somebody clicked on a conversation."""

        def __init__(self, conversation: ConversationId) -> None:
            super().__init__()
            self.conversation = conversation

    def __init__(self, names: Names, *, id: str) -> None:  # noqa: A002  textual's word
        super().__init__(id=id)
        self._names = names
        self.entries: Sequence[Conversation] = ()
        self.chosen: ConversationId | None = None

    def show(self, entries: Sequence[Conversation], chosen: ConversationId | None) -> None:
        """Draw these, with `chosen` marked and in sight."""
        before = (self.chosen, self._place())
        self.entries, self.chosen = entries, chosen
        self._lay_out()
        if before != (chosen, self._place()):
            self._bring_into_sight()
        self.refresh()

    def on_resize(self, _: events.Resize) -> None:
        """Keep the chosen one in sight."""
        self._lay_out()
        self._bring_into_sight()

    def render_line(self, y: int) -> Strip:
        """See textual's line API."""
        number, row = divmod(y + self.scroll_offset.y, ENTRY_ROWS)
        width = self.scrollable_content_region.width
        if number >= len(self.entries) or row == TEXT_ROWS or width < 4:
            return Strip.blank(width, self.rich_style)
        entry = self.entries[number]
        chosen = entry.conversation == self.chosen
        text = Text().append("▌ " if chosen else "  ", style=drawing.CHOSEN)
        text.append_text(drawing.draw_entry(entry, self._names, width - 3)[row])
        return _strip(self, text, width)

    def text(self) -> str:
        """Everything in the list, for tests and for those who read pictures."""
        return "\n".join(
            row.plain.rstrip() for entry in self.entries for row in drawing.draw_entry(entry, self._names, 60)
        )

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked."""
        number = (event.y + self.scroll_offset.y) // ENTRY_ROWS
        if 0 <= number < len(self.entries):
            self.post_message(self.Chosen(self.entries[number].conversation))

    def _lay_out(self) -> None:
        rows = max(len(self.entries) * ENTRY_ROWS - 1, 0)  # without the empty one at the end
        self.virtual_size = Size(self.scrollable_content_region.width, rows)

    def _place(self) -> int | None:
        return next((place for place, entry in enumerate(self.entries) if entry.conversation == self.chosen), None)

    def _bring_into_sight(self) -> None:
        place = self._place()
        if place is None:
            return
        top, beyond = place * ENTRY_ROWS, self.scrollable_content_region.height - TEXT_ROWS
        if not self.scroll_offset.y <= top <= self.scroll_offset.y + beyond:
            self.scroll_to(y=top - max(beyond, 0) // 2, animate=False, force=True)


class Transcript(ScrollView, can_focus=False):
    """The open conversation. Each line is wrapped once for a width.

    While `following`, the newest line stays in sight, whatever comes and however the window's size changes. Only a
    person's scroll ends that, and another one to the end begins it again; in between the same lines stay in sight.
    """

    class TopReached(Message):
        """Somebody scrolled beyond the first line."""

    class Looked(Message):
        """What is in sight may be something else now."""

        def __init__(self, transcript: Transcript) -> None:
            super().__init__()
            self.transcript = transcript

    def __init__(self, *, times: bool, id: str) -> None:  # noqa: A002  textual's word
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self.following = True
        self._times = times
        self._drawn: dict[Line, list[Text]] = {}
        self._rows: list[Text] = []
        self._starts: list[int] = []
        self._width = 0
        self._placing = False

    def show(self, lines: Sequence[Line], *, follow: bool = False) -> None:
        """Draw these; `follow`: go to the newest whatever was in sight."""
        self.following = self.following or follow
        in_sight = self._in_sight()
        self.lines = lines
        self._placing = True
        try:
            self._lay_out()
            place = self.max_scroll_y if self.following else self._place_of(in_sight)
            # By force: without it textual scrolls nothing before the first layout.
            self.scroll_to(y=place, animate=False, force=True)
        finally:
            self._placing = False
        self.following = self.following or self.scroll_offset.y >= self.max_scroll_y
        self.refresh()
        self.post_message(self.Looked(self))

    def text(self) -> str:
        """Everything in it, for tests and for those who read pictures."""
        return "\n".join(row.plain.rstrip() for row in self._rows)

    def visible_text(self) -> str:
        """What is in sight, row by row."""
        height = self.scrollable_content_region.height
        return "\n".join(self.render_line(row).text.rstrip() for row in range(height))

    def seen_to(self) -> int | None:
        """The seq of the last message or event that is whole in sight, 0 for none; None: the newest, always."""
        height = self.scrollable_content_region.height
        if height <= 0:
            return 0
        if self.following:
            return None
        whole = bisect_right(self._starts, self.scroll_offset.y + height) - 1
        told = (line.seq for line in reversed(self.lines[:whole]) if line.kind in (LineKind.MESSAGE, LineKind.EVENT))
        return next(told, 0)

    def page(self, direction: int) -> None:
        """Scroll by a page, up with -1; at the top ask for what is older."""
        if direction < 0 and self.scroll_offset.y == 0:
            self.post_message(self.TopReached())
        step = max(self.scrollable_content_region.height - 2, 1)
        self.scroll_to(y=self.scroll_offset.y + direction * step, animate=False, force=True)

    def on_resize(self, _: events.Resize) -> None:
        """Wrap anew."""
        self.show(self.lines)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """See textual: a person scrolled, unless it is `show` that does."""
        super().watch_scroll_y(old_value, new_value)
        if not self._placing:
            self.following = round(new_value) >= self.max_scroll_y
            self.post_message(self.Looked(self))

    def render_line(self, y: int) -> Strip:
        """See textual's line API."""
        width = self.scrollable_content_region.width
        row = y + self.scroll_offset.y - max(self.scrollable_content_region.height - len(self._rows), 0)
        if not 0 <= row < len(self._rows):
            return Strip.blank(width, self.rich_style)
        return _strip(self, self._rows[row], width)

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width != self._width:
            self._width, self._drawn = width, {}
        self._drawn = {
            line: self._drawn.get(line) or drawing.draw_line(line, max(width, 1), times=self._times)
            for line in self.lines
        }
        self._rows, self._starts = [], [0]
        for line in self.lines:
            self._rows += self._drawn[line]
            self._starts.append(len(self._rows))
        self.virtual_size = Size(width, len(self._rows))

    def _in_sight(self) -> list[tuple[Line, int]]:
        """The lines in sight, and how many rows below the upper edge each begins."""
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        first, end = bisect_right(self._starts, top) - 1, bisect_right(self._starts, top + height)
        return [
            (line, start - top)
            for line, start in zip(self.lines[max(first, 0) : end], self._starts[max(first, 0) : end], strict=False)
        ]

    def _place_of(self, in_sight: list[tuple[Line, int]]) -> int:
        """Where to scroll so that the first of these lines that is still there stands where it stood."""
        starts = dict(zip(self.lines, self._starts, strict=False))
        places = (starts[line] - below for line, below in in_sight if line in starts)
        return max(next(places, self.scroll_offset.y), 0)


class Prompt(Input):
    """The input line. Where no message can be sent it takes commands only, and says why."""

    def close(self, why: str) -> None:
        """Say `why` no message can be sent; empty: one can."""
        self.restrict = r"(/.*)?" if why else None
        if why and not self.value.startswith("/"):
            self.value = ""
        self.placeholder = why or "a message, or /help"
        self.set_class(bool(why), "-closed")

    async def on_key(self, event: events.Key) -> None:
        """Submit here and now: as the binding that it is, Enter would be overtaken by letters typed right after it."""
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            await self.action_submit()
            self.value = ""

    def validate_value(self, value: str) -> str:
        """See textual: without what would steer the terminal, which a paste may bring."""
        return "".join(character for character in value if not _steers(character))


def _steers(character: str) -> bool:
    """Whether this is a control character, a line end or one that turns the direction of text."""
    if unicodedata.category(character) in ("Cc", "Zl", "Zp"):
        return True
    return unicodedata.category(character) == "Cf" and unicodedata.bidirectional(character) != "BN"


def _strip(widget: ScrollView, text: Text, width: int) -> Strip:
    # A text renders its own style only as part of another.
    strip = Strip(Text().append_text(text).render(widget.app.console)).adjust_cell_length(width)
    return strip.apply_style(widget.rich_style)
