"""A Valkey whose clock a test moves while it runs: libfaketime, preloaded into the server.

Only the wall clock moves. The server's monotonic clock, by which it times its own work, goes on as it should.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import pytest

_PLACES = ("/usr/lib/*/faketime", "/usr/lib64/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
_LIBRARY = "libfaketimeMT.so.1"

HOUR = 3_600
DAY = 24 * HOUR


def require_libfaketime() -> Path:
    """The library's path. Skips the test where it is missing; fails it in CI, whose script installs it, unless that
    script says in QIM_NO_LIBFAKETIME why it could not."""
    for place in _PLACES:
        for found in sorted(Path("/").glob(f"{place.lstrip('/')}/{_LIBRARY}")):
            return found
    reason = os.environ.get("QIM_NO_LIBFAKETIME", "")
    missing = f"{_LIBRARY} is missing (Debian: apt-get install libfaketime) {reason}".strip()
    if os.environ.get("CI") and not reason and platform.system() == "Linux":
        pytest.fail(missing)
    pytest.skip(missing)


class ShiftedClock:
    """The offset of a server's clock, kept in a file that the server reads at every look at its clock.

    Args:
        directory: where the file lives.
        library: as `require_libfaketime` found it.
    """

    def __init__(self, directory: Path, library: Path) -> None:
        self._file = directory / "clock"
        self._library = library
        self.offset = 0
        self.set(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the server is to be started with."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
        }

    def set(self, seconds: int) -> None:
        """The clock is now this far before (or, below 0, behind) the true one."""
        self.offset = seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}.001\n")
        new.replace(self._file)

    def jump(self, seconds: int) -> None:
        """Moves the clock by so much."""
        self.set(self.offset + seconds)
