"""`qim import` and `make replay` from outside: progress, refusals, kills, and a real room's history."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.command_lines import Ended, run_program
from tests.support.valkey import require_valkey

from qim_devkit.protos import repository_root
from qim_devkit.suite import Suite

TRACES = repository_root().parent / "shared" / "traces"
POLICIES = {
    "room-a.default.csv": [],
    "room-a.last100-all.csv": ["--newcomer", "LAST_N:100", "--rejoin", "ALL_STAYS", "--leaver", "UNTIL_LEFT"],
}

pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("project") / ".qim") as running:
        yield running


async def run(suite: Suite, *arguments: str, who: str = "room-owner") -> Ended:
    return await run_program("qim", *arguments, environment={"QIM_AS": who}, directory=suite.paths.root.parent)


def write(suite: Suite, name: str, *rows: dict[str, object]) -> None:
    path = suite.paths.root.parent / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


async def test_a_history_is_imported_and_looked_at(suite: Suite) -> None:
    write(
        suite,
        "room.jsonl",
        {"t": 1, "op": "msg", "u": 0, "text": "before anybody came"},
        {"t": 2, "op": "join", "u": "ben"},
        {"t": 3, "op": "msg", "u": "ben", "n": 3},
        {"t": 4, "op": "leave", "u": 0},
        {"t": 5, "op": "msg", "u": 0, "n": 1},
    )
    done = await run(suite, "import", "room.jsonl", "--newcomer", "last:1")
    assert (done.code, done.err) == (0, "")
    assert done.out == "room: 5 lines, 4 carried out and 1 refused; head 4, version 3, 2 members\n"
    history = await run(suite, "history", "room")
    assert [line.split(" ", 3)[3] for line in history.lines[1:5]] == [
        "room-0 before anybody came",
        "· ben was added by an operator",
        "ben ...",
        "· room-0 left",
    ]
    assert "visible: 1 to 4 (4 seqs)" in (await run(suite, "visible", "room", who="ben")).out
    again = await run(suite, "import", "room.jsonl", "--newcomer", "last:1", "-o", "json")
    assert again.json["head_seq"] == 4
    other = await run(suite, "import", "room.jsonl")
    assert (other.code, other.out) == (1, "")
    assert "this import was begun with --newcomer last:1, not since-join" in other.err


async def test_what_cannot_be_imported_is_told(suite: Suite) -> None:
    write(suite, "bad.jsonl", {"op": "kick", "u": 1})
    bad = await run(suite, "import", "bad.jsonl")
    assert (bad.code, bad.out) == (1, "")
    assert "line 1: op: must be one of join, leave, msg" in bad.err
    missing = await run(suite, "import", "missing.jsonl")
    assert "missing.jsonl: cannot be read" in missing.err
    for wrong in (["--group", "x" * 41], ["--newcomer", "some"], ["--owner", " "]):
        assert (await run(suite, "import", "bad.jsonl", *wrong)).code == 2


async def test_an_import_that_is_killed_again_and_again_ends_as_if_it_had_not_been(suite: Suite) -> None:
    rows: list[dict[str, object]] = []
    for person in range(40):
        rows += [{"op": "join", "u": person}, {"op": "msg", "u": person, "n": 1}, {"op": "msg", "u": 99, "n": 1}]
        rows += [{"op": "leave", "u": person}, {"op": "join", "u": person}]
    # Person 99 is outside, but for one moment at the end: a refused message that is tried again would succeed then.
    rows.insert(0, {"op": "join", "u": 99})
    rows.insert(1, {"op": "leave", "u": 99})
    write(suite, "killed.jsonl", *rows)
    cursor = suite.paths.root / "imports" / "killed.json"
    stands = 0
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "qim_devkit.cli", "import", "killed.jsonl", cwd=suite.paths.root.parent
        )
        stands = await _moved_on(cursor, stands)
        process.kill()
        await process.wait()
    done = await run(suite, "import", "killed.jsonl", "-o", "json")
    assert (done.json["lines"], done.json["refused"]) == (202, 40)
    assert (done.json["head_seq"], done.json["membership_version"], done.json["member_count"]) == (162, 123, 41)


async def _moved_on(cursor: Path, stands: int) -> int:
    """Where the import stands once it is at least 20 lines further."""
    async with asyncio.timeout(60):
        while True:
            if cursor.exists() and (now := int(json.loads(cursor.read_text())["line"])) >= stands + 20:
                return now
            await asyncio.sleep(0.005)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("answers", POLICIES)
async def test_a_real_rooms_history_gives_exactly_the_right_rows(answers: str) -> None:
    require_valkey()
    if not (TRACES / answers).is_file():
        pytest.skip(f"the trace is not there: {TRACES / answers}")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qim_devkit.replay",
        *POLICIES[answers],
        str(TRACES / "room-a.jsonl"),
        str(TRACES / answers),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, out.decode()) == (0, "1848 passed, 0 failed\n"), err.decode()
