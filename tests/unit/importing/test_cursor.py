"""The cursor file: replaced as a whole, held by one process, and read with care."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qim_client import GroupSettings, LeaverHistory
from qim_devkit.importing.cursor import Cursor, CursorError, CursorFile
from qim_devkit.importing.lines import survey
from qim_devkit.importing.plan import Plan, take_up

CURSOR = Cursor("00" * 15 + "01", 1, {"--group": "room"}, 10, "ff", created=True, line=7, offset=9, done=5, ahead=(9,))
PLAN = Plan(1, "room", "room-owner", GroupSettings())
HISTORY = b'{"op": "join", "u": 1}\n'


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "room.jsonl"
    path.write_bytes(HISTORY)
    return path


async def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    with CursorFile(tmp_path / "deep" / "cursor.json") as file:
        assert file.cursor is None
        await file.save(replace(CURSOR, line=3))
        await file.save(CURSOR)
    with CursorFile(tmp_path / "deep" / "cursor.json") as file:
        assert file.cursor == CURSOR
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["cursor.json", "cursor.json.lock"]


def test_one_process_at_a_time_holds_a_cursor(tmp_path: Path) -> None:
    with (
        CursorFile(tmp_path / "cursor.json"),
        pytest.raises(CursorError, match="another import is using it"),
        CursorFile(tmp_path / "cursor.json"),
    ):
        pass
    with CursorFile(tmp_path / "cursor.json"):
        pass


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"version": 1}',
        b'{"version": 1, "import_id": "00", "ids_ms": 1, "plan": {}, "size": 1, "digest": "", "ahead": []}',
        b'{"version": 1, "import_id": 7, "ids_ms": 1, "plan": {}, "size": 1, "digest": "", "ahead": []}',
        b'{"version": 1, "import_id": "%s", "ids_ms": -1, "plan": {}, "size": 1, "digest": "", "ahead": []}'
        % (b"0" * 32),
    ],
)
def test_a_file_that_is_no_cursor_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "cursor.json").write_bytes(data)
    with pytest.raises(CursorError, match=r"cursor.json: is no cursor"), CursorFile(tmp_path / "cursor.json"):
        pass


def test_a_cursor_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cursor.json").write_text('{"version": 2}')
    with pytest.raises(CursorError, match="another version"), CursorFile(tmp_path / "cursor.json"):
        pass


async def test_an_import_is_resumed_with_the_ids_that_it_began_with(tmp_path: Path, history: Path) -> None:
    with CursorFile(tmp_path / "cursor.json") as file:
        begun = take_up(file, PLAN, history, survey(history), renew_ids=False)
        await file.save(replace(begun, line=1, offset=len(HISTORY), ids_ms=5))
        resumed = take_up(file, PLAN, history, survey(history), renew_ids=False)
        assert (resumed.import_id, resumed.ids_ms, resumed.line) == (begun.import_id, 5, 1)
        renewed = take_up(file, PLAN, history, survey(history), renew_ids=True)
        assert renewed.ids_ms >= begun.ids_ms
        assert renewed == replace(resumed, ids_ms=renewed.ids_ms)


async def test_a_history_may_grow_and_nothing_else(tmp_path: Path, history: Path) -> None:
    with CursorFile(tmp_path / "cursor.json") as file:
        await file.save(take_up(file, PLAN, history, survey(history), renew_ids=False))
        history.write_bytes(HISTORY + HISTORY)
        grown = take_up(file, PLAN, history, survey(history), renew_ids=False)
        assert grown.size == 2 * len(HISTORY)
        await file.save(grown)
        for other in (HISTORY, HISTORY + HISTORY.replace(b"1", b"2"), HISTORY.replace(b"1", b"2") + HISTORY):
            history.write_bytes(other)
            with pytest.raises(CursorError, match="another history"):
                take_up(file, PLAN, history, survey(history), renew_ids=False)


@pytest.mark.parametrize(
    ("plan", "option"),
    [
        (replace(PLAN, group="other"), "--group"),
        (replace(PLAN, owner="ana"), "--owner"),
        (replace(PLAN, tenant=2), "--tenant"),
        (replace(PLAN, settings=GroupSettings(leaver=LeaverHistory.NONE)), "--leaver"),
    ],
)
async def test_other_options_are_another_import(tmp_path: Path, history: Path, plan: Plan, option: str) -> None:
    with CursorFile(tmp_path / "cursor.json") as file:
        await file.save(take_up(file, PLAN, history, survey(history), renew_ids=False))
        with pytest.raises(CursorError, match=f"begun with {option} "):
            take_up(file, plan, history, survey(history), renew_ids=False)
