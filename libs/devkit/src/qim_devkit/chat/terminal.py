"""A chat in this process's terminal, from its first drawing until the terminal is as it was."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from qim_devkit.chat.app import ChatApp

ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that end the chat in order; after each the process ends with 128 and its number."""

GRACE_SECONDS: Final = 3
"""After such a signal; then the process ends as it is: textual waits for ever to draw on a terminal that is gone."""


async def run_in_terminal(app: ChatApp) -> int:
    """Run it to its end; answers the exit status: 0 as the person wished, 1 after an error that nobody foresaw.

    Only from the main thread.
    """
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, _end, app, number)
    try:
        await app.run_async()
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
    return app.return_code or 0


def _end(app: ChatApp, number: signal.Signals) -> None:
    signal.alarm(GRACE_SECONDS)
    app.exit(return_code=128 + number)
