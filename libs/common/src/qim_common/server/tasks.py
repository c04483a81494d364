"""Work that must survive its caller: a client's cancel or deadline cancels the handler, never a commit.

A commit that was cut off half-way would still be applied by Redis while nobody notes its answer. So it runs in a task
of its own, which the keeper holds until it ends and which shutdown waits for.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from qim_common.telemetry.metrics import task_metrics

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class TaskKeeper:
    """Holds tasks so that they are neither collected nor cancelled with their caller."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def shield(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`, which runs to its end even if the caller is cancelled.

        Raises what `work` raises; if the caller is gone by then, the log and a metric have it.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(_report)
            raise

    async def drain(self, timeout: float) -> int:
        """Waits until all work, also work started meanwhile, has ended; at most `timeout` seconds, then cancels.

        Returns how many tasks had to be cancelled.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while self._tasks and (left := end - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        late = [task for task in self._tasks if not task.done()]
        for task in late:
            task.cancel()
        if late:
            _log.error("work did not end in time and was cancelled", extra={"tasks": len(late)})
            await asyncio.gather(*late, return_exceptions=True)
        return len(late)


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task_metrics().orphaned_failures.inc()
        _log.error("work failed after its caller had gone", exc_info=error)
