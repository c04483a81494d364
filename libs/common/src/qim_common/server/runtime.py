"""How a service process starts: the checks that no configuration can replace, then one event loop."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from google.protobuf.internal import api_implementation

from qim_common.start import StartRefusedError


def require_upb() -> None:
    """Raises StartRefusedError unless protobuf runs on upb: pure Python costs twenty times as much a message."""
    kind = api_implementation.Type()
    if kind != "upb":
        raise StartRefusedError(
            f"protobuf runs on {kind!r} instead of 'upb'; unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION and install "
            "the protobuf wheel of requirements.lock for this platform"
        )


def run_service(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs `main` on uvloop in this process, one loop, no threads of its own.

    Exits with 1 and one line on stderr if the runtime is refused, here or by the harness's start.
    """
    try:
        require_upb()
        uvloop.run(main())
    except StartRefusedError as refusal:
        sys.exit(f"refusing to start: {refusal}")
