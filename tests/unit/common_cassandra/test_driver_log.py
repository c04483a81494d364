"""The driver's tracebacks become one line each, said once."""

from __future__ import annotations

import logging

import pytest
from cassandra.connection import DefaultEndPoint

from qim_common.cassandra.driver_log import DriverLines, quiet_driver

DRIVER = logging.getLogger("tests.driver")


LINES = logging.getLogger("tests.lines")


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """What is passed on."""
    passed: list[logging.LogRecord] = []
    monkeypatch.setattr(DRIVER, "handlers", [DriverLines(LINES)])
    monkeypatch.setattr(LINES, "handle", passed.append)
    caplog.set_level(logging.DEBUG)
    return passed


def tries(*addresses: str) -> None:
    for address in addresses:
        try:
            raise ConnectionRefusedError(111, "refused")
        except ConnectionRefusedError:
            DRIVER.warning("[control connection] Error connecting to %s:", DefaultEndPoint(address), exc_info=True)


def test_a_node_that_is_tried_again_and_again_is_one_line(lines: list[logging.LogRecord]) -> None:
    tries("127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2")
    first, second = lines
    assert first.getMessage() == (
        "the Cassandra driver (tries), 127.0.0.1:9042: [control connection] Error connecting to 127.0.0.1:9042: "
        "ConnectionRefusedError: [Errno 111] refused"
    )
    assert "127.0.0.2" in second.getMessage()
    assert first.exc_info is None


def test_what_is_raised_as_well_is_not_logged(lines: list[logging.LogRecord]) -> None:
    DRIVER.error("Control connection failed to connect, shutting down Cluster:")
    DRIVER.info("connected")
    assert lines == []


def test_what_the_nodes_say_of_a_keyspace_that_a_session_never_changes_is_not_logged(
    lines: list[logging.LogRecord],
) -> None:
    DRIVER.warning(
        "Server warning: %s", "`USE <keyspace>` with prepared statements is considered to be an anti-pattern"
    )
    assert lines == []
    DRIVER.warning("Server warning: %s", "Batch is too large")
    assert len(lines) == 1


def test_the_drivers_own_logger_is_quieted_once() -> None:
    quiet_driver()
    quiet_driver()
    assert sum(isinstance(handler, DriverLines) for handler in logging.getLogger("cassandra").handlers) == 1
