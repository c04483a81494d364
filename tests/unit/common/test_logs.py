"""Structured logs."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from qim_common.calls import CURRENT, CallContext
from qim_common.identity import Peer, Role
from qim_common.telemetry.logs import configure_logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_one_json_line_with_its_extra_fields(stream: io.StringIO) -> None:
    configure_logging(service="writer", stream=stream)

    logging.getLogger("qim.test").info("two\nlines", extra={"listen": "a:1", "raw": b"\xff"})

    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert (record["level"], record["service"], record["logger"]) == ("info", "writer", "qim.test")
    assert (record["message"], record["listen"], record["raw"]) == ("two\nlines", "a:1", "b'\\xff'")
    assert "request_id" not in record


def test_a_record_within_a_call_has_its_request_id(stream: io.StringIO) -> None:
    configure_logging(service="writer", stream=stream)
    call = CallContext("/a.B/C", Peer("d", Role.GATEWAY, "g"), None, None, "ab" * 16, None)

    token = CURRENT.set(call)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("qim.test").exception("failed")
    finally:
        CURRENT.reset(token)

    record = json.loads(stream.getvalue())
    assert (record["request_id"], record["method"]) == ("ab" * 16, "/a.B/C")
    assert record["peer"] == "spiffe://d/qim/gateway/g"
    assert "ValueError: why" in record["exception"]


def test_text_is_for_people(stream: io.StringIO) -> None:
    configure_logging(service="writer", log_format="text", level="WARNING", stream=stream)

    logging.getLogger("qim.test").info("quiet")
    logging.getLogger("qim.test").warning("loud", extra={"listen": "a:1"})

    (line,) = stream.getvalue().splitlines()
    assert line.endswith("warning writer loud listen=a:1")
