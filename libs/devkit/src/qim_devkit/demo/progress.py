"""Shows that the demo is at work: live bars on a terminal, a line a step elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from qim_devkit.demo.chapter import POLICIES, SCRIPT, Policy

CHANGES: Final = 3
"""Of the members, each with a seq of its own."""


class _Count(MofNCompleteColumn):
    """The count of what has one."""

    def render(self, task: Task) -> Text:
        """Nothing for a step whose length nobody knows."""
        return super().render(task) if task.total is not None else Text()


class Loading:
    """Use it as a context manager around the work; nothing of the bars stays on the screen afterwards."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal and not console.is_dumb_terminal
        plain = console.options.ascii_only
        self._bars = Progress(
            SpinnerColumn("line" if plain else "dots", style="cyan"),
            TextColumn("{task.description}"),
            BarColumn(20),
            _Count(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._tasks: dict[str, TaskID] = {}
        self._heads: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def step(self, text: str) -> None:
        """What is being done now; takes the place of the step before and of the bars."""
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks = {text: self._bars.add_task(f"{text} ...", total=None)}
        if not self._live:
            self._console.print(f"{text} ...")

    def playing(self, text: str) -> None:
        """The groups fill: a bar for each."""
        self.step(text)
        total = CHANGES + sum(stretch.messages for stretch in SCRIPT.stretches)
        for policy in POLICIES:
            head = self._heads.get(policy.title, 0)
            self._tasks[policy.title] = self._bars.add_task(f"  {policy.title}", total=total, completed=head)

    def reached(self, policy: Policy, seq: int) -> None:
        """A group's head is at `seq` or beyond."""
        self._heads[policy.title] = max(seq, self._heads.get(policy.title, 0))
        self._bars.update(self._tasks[policy.title], completed=self._heads[policy.title])
