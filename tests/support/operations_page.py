"""The blocks of docs/operations.md: which of them a test runs, and which cannot be run on one machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from qim_devkit.protos import repository_root

STORIES: Final = (
    "dev",
    "cluster",
    "valkey password",
    "valkey backup",
    "valkey stop",
    "valkey restore",
    "valkey start",
)
"""What a block's remark may name behind `run:`; tests/deploy/test_operations_commands.py runs each of them."""

_BLOCK: Final = re.compile(r"^(?:<!-- (.*?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its content, and the remark right above it (empty: none)."""

    language: str
    content: str
    remark: str

    @property
    def story(self) -> str:
        """Which test runs it; empty if none does."""
        return self.remark.removeprefix("run: ") if self.remark.startswith("run: ") else ""

    @property
    def why_not(self) -> str:
        """Why no test can; empty if one does."""
        return self.remark.removeprefix("not run here: ") if self.remark.startswith("not run here: ") else ""


def page() -> str:
    """The page's text."""
    return (repository_root() / "docs" / "operations.md").read_text("utf-8")


def blocks() -> list[Block]:
    """All fenced blocks, in their order."""
    return [Block(language, content, remark) for remark, language, content in _BLOCK.findall(page())]


def commands(story: str) -> list[str]:
    """The blocks of one story, in their order."""
    return [block.content for block in blocks() if block.story == story]
