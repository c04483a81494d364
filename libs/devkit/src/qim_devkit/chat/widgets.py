"""The parts of the chat's window: the list, the open conversation, the input line, the status line, the help page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from qim_client import Conversation
from qim_common.ids import ConversationId
from qim_devkit.chat import drawing
from qim_devkit.chat.commands import HELP
from qim_devkit.chat.lines import Line
from qim_devkit.chat.names import Names

ENTRY_ROWS: Final = 3
"""Of one conversation in the list: its name, its newest message, an empty one."""

KEYS: Final = (
    ("↑ ↓", "the conversation above or below"),
    ("Page Up", "and Page Down: scroll; at the top older messages are read"),
    ("Enter", "send; a word with a slash is a command, //word sends /word"),
    ("Ctrl+Q", "end the chat"),
)


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
        moved = chosen != self.chosen
        self.entries, self.chosen = entries, chosen
        self.virtual_size = Size(self.scrollable_content_region.width, len(entries) * ENTRY_ROWS)
        if moved:
            self._bring_into_sight()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """See textual's line API."""
        number, row = divmod(y + self.scroll_offset.y, ENTRY_ROWS)
        width = self.scrollable_content_region.width
        if number >= len(self.entries) or row == ENTRY_ROWS - 1 or width < 4:
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

    def _bring_into_sight(self) -> None:
        for number, entry in enumerate(self.entries):
            if entry.conversation == self.chosen:
                top, height = number * ENTRY_ROWS, self.scrollable_content_region.height
                if not self.scroll_offset.y <= top <= self.scroll_offset.y + height - ENTRY_ROWS:
                    self.scroll_to(y=max(top - height // 2, 0), animate=False)


class Transcript(ScrollView, can_focus=False):
    """The open conversation. Each line is wrapped once for a width; the newest stays in sight unless one scrolls up."""

    class TopReached(Message):
        """Somebody scrolled beyond the first line."""

    def __init__(self, *, times: bool, id: str) -> None:  # noqa: A002  textual's word
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._times = times
        self._drawn: dict[Line, list[Text]] = {}
        self._rows: list[Text] = []
        self._width = 0

    def show(self, lines: Sequence[Line], *, follow: bool = False) -> None:
        """Draw these; `follow`: go to the newest whatever was in sight."""
        at_end = follow or self.scroll_offset.y >= self.max_scroll_y
        from_end = self.max_scroll_y - self.scroll_offset.y
        self.lines = lines
        self._lay_out()
        if at_end:
            self.scroll_end(animate=False, immediate=True)
        else:
            self.scroll_to(y=max(self.max_scroll_y - from_end, 0), animate=False, immediate=True)
        self.refresh()

    def text(self) -> str:
        """Everything in it, for tests and for those who read pictures."""
        return "\n".join(row.plain.rstrip() for row in self._rows)

    def page(self, direction: int) -> None:
        """Scroll by a page, up with -1; at the top ask for what is older."""
        if direction < 0 and self.scroll_offset.y == 0:
            self.post_message(self.TopReached())
        step = max(self.scrollable_content_region.height - 2, 1)
        self.scroll_to(y=self.scroll_offset.y + direction * step, animate=False)

    def on_resize(self, event: events.Resize) -> None:
        """Wrap anew."""
        self.show(self.lines)

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
        self._rows = [row for line in self.lines for row in self._drawn[line]]
        self.virtual_size = Size(width, len(self._rows))


class Prompt(Input):
    """The input line. Where no message can be sent it takes commands only, and says why."""

    def close(self, why: str) -> None:
        """Say `why` no message can be sent; empty: one can."""
        self.restrict = r"(/.*)?" if why else None
        if why and not self.value.startswith("/"):
            self.value = ""
        self.placeholder = why or "a message, or /help"
        self.set_class(bool(why), "-closed")


class HelpPage(ModalScreen[None]):
    """Commands and keys; any key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """See textual."""
        commands = [(f"/{command}", meaning) for command, meaning in HELP.items()]
        page = Static(drawing.help_text([*commands, ("", ""), *KEYS]), id="help")
        page.border_title = "help"
        yield page

    def on_key(self, event: events.Key) -> None:
        """Close it."""
        event.stop()
        self.dismiss()

    def on_click(self) -> None:
        """Close it."""
        self.dismiss()


def _strip(widget: ScrollView, text: Text, width: int) -> Strip:
    # A text renders its own style only as part of another.
    strip = Strip(Text().append_text(text).render(widget.app.console)).adjust_cell_length(width)
    return strip.apply_style(widget.rich_style)
