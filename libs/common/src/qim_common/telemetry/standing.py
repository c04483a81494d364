"""A state that lasts is said once when it begins, every few minutes while it lasts, and once when it ends.

Loops that look again and again (twice a second, once a bucket) would otherwise say the same thing with every look, and
bury the line that says why.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from typing import Final

SAID_AGAIN_SECONDS: Final = 300.0


class Standing:
    """States of one kind, each `about` something, such as an instance.

    Args:
        log: where they are said.
        ended: what is said at the end, behind the `about` of the state; empty: nothing.
        level: of the beginning and of what is said again; the end is `INFO`.
        again_seconds: how long the same state is not said again.
        by_words: other words are another state, which is said at once.
        clock: seconds, of a clock that nobody sets.
    """

    def __init__(
        self,
        log: logging.Logger,
        ended: str = "",
        *,
        level: int = logging.WARNING,
        again_seconds: float = SAID_AGAIN_SECONDS,
        by_words: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._ended = ended
        self._level = level
        self._again_seconds = again_seconds
        self._by_words = by_words
        self._clock = clock
        self._said: dict[str, tuple[float, str]] = {}

    def holds(self, about: str, words: str, error: BaseException | None = None) -> None:
        """The state is there. Said now unless it was lately; with the traceback of `error`."""
        now = self._clock()
        at, said = self._said.get(about, (-math.inf, ""))
        if now >= at + self._again_seconds or (self._by_words and words != said):
            self._said[about] = now, words
            self._log.log(self._level, "%s: %s", about, words, exc_info=error)

    def over(self, about: str) -> bool:
        """The state is not there; said where it was, and whether it was."""
        was = self._said.pop(about, None) is not None
        if was and self._ended:
            self._log.info("%s: %s", about, self._ended)
        return was

    def only(self, abouts: Collection[str]) -> None:
        """The state is there for none but these."""
        for about in [one for one in self._said if one not in abouts]:
            self.over(about)
