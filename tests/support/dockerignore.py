"""Which files of the build context a .dockerignore leaves out, as the container engines read it."""

from __future__ import annotations

import re


class Ignored:
    """The rules of one file: the last one that fits a path or a directory above it decides; `!` brings back.

    Args:
        text: of the .dockerignore.
    """

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        rules = [line for line in lines if line and not line.startswith("#")]
        self._rules = [(not rule.startswith("!"), _pattern(rule.removeprefix("!").strip("/"))) for rule in rules]

    def ignores(self, path: str) -> bool:
        """Whether a path below the context, with `/` and none before it, is left out."""
        parts = path.split("/")
        candidates = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
        left_out = False
        for leaves_out, pattern in self._rules:
            if any(pattern.fullmatch(candidate) for candidate in candidates):
                left_out = leaves_out
        return left_out


def _pattern(rule: str) -> re.Pattern[str]:
    made = ""
    for part in re.findall(r"\*\*/?|\*|\?|\[[^\]]*\]|[^*?\[]+", rule):
        match part:
            case "**/":
                made += "(?:.*/)?"
            case "**":
                made += ".*"
            case "*":
                made += "[^/]*"
            case "?":
                made += "[^/]"
            case _:
                made += part if part.startswith("[") else re.escape(part)
    return re.compile(made)
