"""Files that are read again when their content changes: certificates, bindings, keys. No restart, no signal."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_log = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


class WatchedFiles:
    """Some files that belong together, watched by stamp and compared by content. Safe to use from several threads.

    A change is reported once, whatever the caller makes of it: content that proves bad is not reported again, and the
    repaired file is. Files that cannot be read are reported in the log once and leave the caller with what it has.

    Parameters:
        paths: the files, read in this order.
        interval: seconds between two looks at the file system, 0 or more.
        clock: monotonic seconds.
    """

    def __init__(
        self, paths: Sequence[Path], *, interval: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.paths = tuple(paths)
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._stamps: tuple[_Stamp, ...] = ()
        self._content: tuple[bytes, ...] = ()
        self._unreadable = False

    def read(self) -> tuple[bytes, ...]:
        """The content now, which later polls compare with; raises OSError."""
        with self._lock:
            self._stamps = self._stat()
            self._content = tuple(path.read_bytes() for path in self.paths)
            self._next_look = self._clock() + self._interval
            return self._content

    def poll(self) -> tuple[bytes, ...] | None:
        """The new content if it changed since the last report, else None. Looks at most once an interval."""
        if self._clock() < self._next_look:
            return None
        with self._lock:
            self._next_look = self._clock() + self._interval
            try:
                stamps = self._stat()
                if stamps == self._stamps:
                    return None
                content = tuple(path.read_bytes() for path in self.paths)
            except OSError as error:
                if not self._unreadable:
                    _log.warning("cannot read a watched file, keeping what was loaded", extra={"error": str(error)})
                self._unreadable = True
                return None
            self._unreadable = False
            self._stamps = stamps
            if content == self._content:
                return None
            self._content = content
            return content

    def _stat(self) -> tuple[_Stamp, ...]:
        stats = [os.stat(path) for path in self.paths]  # noqa: PTH116 - one call per file, on the path of a handshake
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)
