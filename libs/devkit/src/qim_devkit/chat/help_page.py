"""The page that lists commands and keys."""

from __future__ import annotations

from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from qim_devkit.chat import drawing
from qim_devkit.chat.commands import HELP

KEYS: Final = (
    ("↑ ↓", "the conversation above or below"),
    ("Page Up", "and Page Down: scroll; at the top older messages are read"),
    ("Enter", "send; a word with a slash is a command, //word sends /word"),
    ("F1", "this page"),
    ("Ctrl+Q", "end the chat"),
)


class HelpPage(ModalScreen[None]):
    """Commands and keys; arrows and Page Up and Down scroll it, any other key closes it."""

    def compose(self) -> ComposeResult:
        """See textual."""
        commands = [(f"/{command}", meaning) for command, meaning in HELP.items()]
        page = VerticalScroll(Static(drawing.help_table([*commands, ("", ""), *KEYS])), id="help", can_focus=False)
        page.border_title = "help"
        page.border_subtitle = "↑ ↓ scroll · any other key closes"
        yield page

    def on_key(self, event: events.Key) -> None:
        """Scroll, or close it."""
        event.stop()
        page = self.query_one("#help", VerticalScroll)
        match event.key:
            case "up":
                page.scroll_up(animate=False)
            case "down":
                page.scroll_down(animate=False)
            case "pageup" | "home":
                page.scroll_page_up(animate=False)
            case "pagedown" | "end":
                page.scroll_page_down(animate=False)
            case _:
                self._close()

    def on_click(self) -> None:
        """Close it."""
        self._close()

    def _close(self) -> None:
        # Keys that were typed together all come here, though the first of them has closed the page.
        if self.is_current:
            self.dismiss()
