"""Structured logs on stderr: one JSON object a line, with the request id of the call being served.

Extra fields go through `extra={...}`. Bodies of messages, keys, tokens and metadata of callers are never logged.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from qim_common.calls import CURRENT

LogFormat = Literal["json", "text"]
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Fields(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        call = CURRENT.get(None)
        if call is not None:
            fields["request_id"] = call.request_id
            fields["method"] = call.method
            fields["peer"] = str(call.peer)
        fields.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


class JsonFormatter(_Fields):
    """One JSON object a line; values that JSON does not know are written as their `str`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return json.dumps(self.fields(record), default=str, ensure_ascii=False)


class TextFormatter(_Fields):
    """For a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, an exception below it."""
        fields = self.fields(record)
        exception = fields.pop("exception", None)
        head = " ".join(str(fields.pop(key)) for key in ("time", "level", "service", "message"))
        fields.pop("logger")
        tail = "".join(f" {key}={value}" for key, value in fields.items())
        return head + tail + (f"\n{exception}" if exception else "")


def configure_logging(
    *, service: str, level: str = "INFO", log_format: LogFormat = "json", stream: TextIO | None = None
) -> None:
    """Sends all logs of the process to `stream` (stderr by default), replacing whatever was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service) if log_format == "json" else TextFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # grpc.aio reports with a traceback what the interceptor already answers and reports.
    logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)
