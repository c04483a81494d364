"""`make replay BACKEND=tiered`: a real room's history, read from both sides of the border between Redis and archive."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.e2e.test_import import POLICIES, TRACES
from tests.support.cassandra import TieredPlace
from tests.support.valkey import require_valkey

from qim_devkit.tiered import Backend

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1200)]


EVERY = {"room-a.default.csv": 1, "room-a.last100-all.csv": 4}
"""Whose answers are compared: everybody's, and every fourth person's; on Redis they are everybody's both times."""


@pytest.mark.parametrize("answers", POLICIES)
async def test_a_real_rooms_history_gives_exactly_the_right_rows(
    module_cassandra: TieredPlace, tmp_path: Path, answers: str
) -> None:
    require_valkey()
    if not (TRACES / answers).is_file():
        pytest.skip(f"the trace is not there: {TRACES / answers}")
    head, *rows = (TRACES / answers).read_text().splitlines(keepends=True)
    expect = tmp_path / answers
    expect.write_text(head + "".join(rows[:: EVERY[answers]]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qim_devkit.replay",
        *POLICIES[answers],
        f"--backend={Backend.TIERED}",
        f"--cassandra={module_cassandra.cluster.directory}",
        str(TRACES / "room-a.jsonl"),
        str(expect),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, out.decode()) == (0, f"{1848 // EVERY[answers]} passed, 0 failed\n"), err.decode()
