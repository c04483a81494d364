"""A Valkey whose clock a test moves while it runs: libfaketime, preloaded into the server.

Only the wall clock moves. The server's monotonic clock, by which it times its own work, goes on as it should.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.support.valkey import require_valkey

from qim_devkit.valkey import ValkeyServer

_PLACES = ("/usr/lib/*/faketime", "/usr/lib64/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
_LIBRARY = "libfaketimeMT.so.1"

_SLACK = 30

HOUR = 3_600
DAY = 24 * HOUR


def require_libfaketime() -> Path:
    """The library's path. Skips the test where it is missing; fails it in CI, whose script installs it, unless that
    script says in NO_LIBFAKETIME why it could not."""
    for place in _PLACES:
        for found in sorted(Path("/").glob(f"{place.lstrip('/')}/{_LIBRARY}")):
            return found
    reason = os.environ.get("NO_LIBFAKETIME", "")
    missing = f"{_LIBRARY} is missing (Debian: apt-get install libfaketime) {reason}".strip()
    if os.environ.get("CI") and not reason and platform.system() == "Linux":
        pytest.fail(missing)
    pytest.skip(missing)


class ShiftedClock:
    """The offset of a server's clock, kept in a file that the server reads at every look at its clock."""

    def __init__(self, directory: Path, library: Path) -> None:
        self._file = directory / "clock"
        self.offset = 0
        self._write()
        environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
        }
        self.server = ValkeyServer(environment=environment)

    def set(self, seconds: int) -> None:
        """The running server's clock is now this far before (or, below 0, behind) the true one."""
        self.offset = seconds
        self._write()
        with redis.Redis(host=self.server.host, port=self.server.port, protocol=2) as client:
            for _ in range(1000):
                if abs(client.time()[0] - time.time() - seconds) < _SLACK:
                    return
        raise AssertionError(f"the server's clock did not move to {seconds:+d} s")

    def jump(self, seconds: int) -> None:
        """Moves the clock by so much."""
        self.set(self.offset + seconds)

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        # A bare +0 would mean: stay as you are.
        new.write_text(f"{self.offset:+d}.001\n")
        new.replace(self._file)


@pytest.fixture
def shifted(tmp_path: Path) -> Iterator[ShiftedClock]:
    """A server of the test's own whose clock can be moved."""
    require_valkey()
    clock = ShiftedClock(tmp_path, require_libfaketime())
    with clock.server:
        yield clock
