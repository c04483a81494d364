"""What the driver logs, in one line each and not again and again.

The driver logs a traceback for every node that it tries, with every try, and for whatever it raises as well.
"""

from __future__ import annotations

import logging
from typing import Final

from cassandra.connection import EndPoint
from cassandra.pool import Host

from qim_common.telemetry.standing import Standing

_DRIVER: Final = "cassandra"
_RAISED_TOO: Final = ("Control connection failed to connect", "Error preparing query")
"""What these say comes to the caller, who logs it."""
_IDLE: Final = "Server warning: `USE <keyspace>` with prepared statements"
"""A session of qim has one keyspace from its beginning to its end, which is what the warning asks for."""


class DriverLines(logging.Handler):
    """Passes on warnings and errors of the driver: each once, with its exception in the same line, and again after
    minutes. Those of two nodes are two."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__(logging.WARNING)
        self._standing = Standing(log)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler; called on the driver's threads, one at a time."""
        words = record.getMessage()
        if words.startswith((*_RAISED_TOO, _IDLE)):
            return
        about = f"the Cassandra driver ({record.funcName})"
        args = record.args if isinstance(record.args, tuple) else ()
        where = next((arg for arg in args if isinstance(arg, (Host, EndPoint))), None)
        if where is not None:
            about += f", {where}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            words = f"{words.rstrip(':')}: {type(error).__name__}: {error}"
        self._standing.holds(about, words)


def quiet_driver() -> None:
    """From now on the driver's loggers go through `DriverLines`; again: no effect."""
    driver = logging.getLogger(_DRIVER)
    if not any(isinstance(handler, DriverLines) for handler in driver.handlers):
        driver.addHandler(DriverLines(logging.getLogger(__name__)))
        driver.setLevel(logging.WARNING)
        driver.propagate = False
