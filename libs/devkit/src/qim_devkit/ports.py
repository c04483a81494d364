"""Loopback ports of a suite: remembered from the last start where they are still free, so clients find it again."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable, Mapping
from typing import Final

# Below the range from which Linux takes the ports of outgoing connections: none of those can take a port between
# its choice here and its use.
CHOICE: Final = range(20_000, 32_000)

RANGE_VARIABLE: Final = "QIM_DEV_PORTS"
"""`FIRST-LAST` narrows the choice: suites that start at the same moment and have ranges of their own never collide."""


def choice() -> range:
    """The ports to choose from. Raises ValueError for a range that is not `FIRST-LAST` within 1024 to 65535."""
    text = os.environ.get(RANGE_VARIABLE)
    if not text:
        return CHOICE
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) <= int(last) <= 65_535):
        raise ValueError(f"{RANGE_VARIABLE}: write FIRST-LAST, for example 20000-31999")
    return range(int(first), int(last) + 1)


def is_free(port: int) -> bool:
    """Whether nothing listens on this port of 127.0.0.1; connections that are still closing do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def allocate(names: Iterable[str], remembered: Mapping[str, int]) -> dict[str, int]:
    """A different free port for each name: the remembered one if nothing took it, else one chosen at random."""
    chosen: dict[str, int] = {}
    among = choice()
    for name in names:
        port = remembered.get(name)
        while port is None or port in chosen.values() or not is_free(port):
            port = random.choice(among)  # noqa: S311 - no secret
        chosen[name] = port
    return chosen
