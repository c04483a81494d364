"""What of a history goes into one call: messages that follow one another in one frame, everything else alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from qim_client.frames import MAX_FRAME_ITEMS
from qim_devkit.importing.lines import Line, Op

FRAME_BYTES: Final = 2 * 1024 * 1024
"""Bodies of one frame, unless a single one is larger."""


def batches(lines: Iterable[Line]) -> Iterator[Sequence[Line]]:
    """The lines in their order: runs of messages, each of which fits into one frame, and single joins and leaves."""
    run: list[Line] = []
    size = 0
    for line in lines:
        message = line.op is Op.MESSAGE
        if run and (not message or len(run) == MAX_FRAME_ITEMS or size + len(line.body) > FRAME_BYTES):
            yield run
            run, size = [], 0
        if message:
            run.append(line)
            size += len(line.body)
        else:
            yield [line]
    if run:
        yield run
