"""Shows how far an import has come: a live bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from qim_devkit.importing.cursor import Cursor


class Bar:
    """Use it as a context manager around the import; nothing of the bar stays on the screen afterwards."""

    def __init__(self, console: Console, title: str, total: int, at: int) -> None:
        self._progress = Progress(
            SpinnerColumn("line" if console.options.ascii_only else "dots", style="cyan"),
            TextColumn("{task.description}", markup=False),
            BarColumn(30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[refused]:,} refused", style="yellow"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or console.is_dumb_terminal,
        )
        self._task = self._progress.add_task(title, total=total, completed=at, refused=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def answered(self, cursor: Cursor) -> None:
        """The import stands here."""
        self._progress.update(self._task, completed=cursor.done + cursor.refused, refused=cursor.refused)
