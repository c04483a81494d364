"""What was typed: a message, or a command with a slash. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Command(StrEnum):
    """What can be typed after a slash."""

    LEAVE = "leave"
    CLEAR = "clear"
    READ = "read"
    HIDE = "hide"
    MUTE = "mute"
    HIDDEN = "hidden"
    HELP = "help"
    QUIT = "quit"


HELP: Final = {
    Command.LEAVE: "leave the group; you keep what its settings let leavers read",
    Command.CLEAR: "clear what you see, on all your devices; others keep theirs",
    Command.READ: "mark everything read; what is shown is marked by itself",
    Command.HIDE: "leave it out of the list until somebody writes; once more: show it again",
    Command.MUTE: "nothing is pushed for it; once more: unmute",
    Command.HIDDEN: "show hidden conversations in the list, or not",
    Command.HELP: "this page",
    Command.QUIT: "end the chat",
}


@dataclass(frozen=True, slots=True)
class Text:
    """A message to send."""

    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A word after a slash that is no command."""

    word: str


def parse(typed: str) -> Text | Command | Unknown | None:
    """What a line means; None for an empty one. `//text` sends `/text`."""
    line = typed.strip()
    if not line:
        return None
    if not line.startswith("/"):
        return Text(line)
    if line.startswith("//"):
        return Text(line[1:])
    word = line[1:].strip()
    try:
        return Command(word.casefold())
    except ValueError:
        return Unknown(word)
