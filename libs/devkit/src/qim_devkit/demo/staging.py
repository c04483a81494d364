"""Runs a play on a suite of its own: starts the suite, watches its processes, and ends everything, whatever happens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from qim_devkit.suite import Suite

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

EXPLANATION_SECONDS: Final = 1.0
"""How long a failed play waits for the news that a process has ended."""

Result = TypeVar("Result")


class InterruptedBySignal(Exception):  # noqa: N818  it is no error
    """Somebody asked to stop; everything has ended in order."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


async def on_suite(suite: Suite, play: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The result of `play`, which begins when all services serve. The suite is stopped at the end.

    Raises:
        InterruptedBySignal: after Ctrl-C, SIGTERM or a closed terminal.
        SuiteError, ValkeyStartError: a process did not start, or ended by itself; with the end of its log.
        Whatever else `play` raises.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    work: asyncio.Task[Result] = asyncio.create_task(_start_and_play(suite, play), name="demo")
    either: set[asyncio.Future[Any]] = {work, stopped}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise InterruptedBySignal(stopped.result())
        return work.result()
    finally:
        # A second Ctrl-C must not tear the orderly end: the signals stay handled until it is through.
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await suite.stop()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def _start_and_play(suite: Suite, play: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    await suite.start()
    acting: asyncio.Task[Result] = asyncio.create_task(play(), name="play")
    watching: asyncio.Task[None] = asyncio.create_task(suite.watch(), name="watch")
    both: set[asyncio.Task[Any]] = {acting, watching}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if acting.done() and acting.exception() is not None:
            # A process that has ended explains more than the call that failed because of it.
            await asyncio.wait({watching}, timeout=EXPLANATION_SECONDS)
        if watching.done():
            watching.result()
        return acting.result()
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
