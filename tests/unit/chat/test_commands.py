"""What a typed line means."""

from __future__ import annotations

import pytest

from qim_devkit.chat.commands import HELP, Command, Text, Unknown, parse


@pytest.mark.parametrize(
    ("typed", "meaning"),
    [
        ("", None),
        ("   ", None),
        ("hello there ", Text("hello there")),
        ("/leave", Command.LEAVE),
        (" /CLEAR ", Command.CLEAR),
        ("//leave", Text("/leave")),
        ("/", Unknown("")),
        ("/leave now", Unknown("leave now")),
        ("/dance", Unknown("dance")),
        ("and/or", Text("and/or")),
    ],
)
def test_a_slash_begins_a_command_and_two_a_message(typed: str, meaning: object) -> None:
    assert parse(typed) == meaning


def test_help_tells_of_every_command() -> None:
    assert set(HELP) == set(Command)
