"""How a service process starts: the checks that no configuration can replace, then one event loop."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop
from google.protobuf.internal import api_implementation

from qim_common.start import StartRefusedError

GARBAGE_THRESHOLDS: Final = (20_000, 20, 50)
"""Container objects made and not freed, and collections of the younger generation, before a generation is searched for
cycles. Requests make almost none; Python's own thresholds search the young objects several times a request, and every
object that the process keeps (hundreds of thousands of cached keys and members) far too often: tens of milliseconds."""

ENDED_WHILE_STARTING: Final = 128 + signal.SIGTERM
"""The exit status of a process that was told to end before it served."""


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

    Exits with 1 and one line on stderr if the runtime is refused, here or by the harness's start; with 143 if SIGTERM
    or SIGINT ends it before the harness serves.
    """
    try:
        require_upb()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.freeze()  # what the imports made stays for good
        uvloop.run(_ended_by_signals(main))
    except StartRefusedError as refusal:
        sys.exit(f"refusing to start: {refusal}")
    except asyncio.CancelledError:
        sys.exit(ENDED_WHILE_STARTING)


async def _ended_by_signals(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Whatever comes before the harness and its own handlers can be ended too. The first process of a container ignores
    a signal that has no handler, and it is sent only once."""
    loop = asyncio.get_running_loop()
    running = loop.create_task(main())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    await running
