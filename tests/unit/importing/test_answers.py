"""The table of right answers: read with care, compared value by value."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_devkit.replay.__main__ import main
from qim_devkit.replay.answers import AnswersError, PersonAnswers, differences, read_answers

HEADER = "u,state,stays,visible,earliest,head,unread,delivered\n"
GOOD = HEADER + "owner,MEMBER,1,20,1,20,12,20\n0,LEFT,3,4,7,10,0,9\n"

FAULTS = {
    "nothing": ("", "line 1: must be u,state"),
    "another header": ("u,state\n", "line 1: must be u,state"),
    "no rows": (HEADER, "has no rows"),
    "a column too few": (HEADER + "0,LEFT,3\n", "line 2: must have 8 columns"),
    "a state that there is not": (GOOD.replace("LEFT", "GONE"), "line 3: state: must be one of"),
    "no number": (GOOD.replace("20\n0", "x\n0"), "line 2: delivered: must be a whole number"),
    "a number below zero": (GOOD.replace("LEFT,3", "LEFT,-3"), "line 3: stays: must be a whole number"),
    "digits of another script": (GOOD.replace("LEFT,3", "LEFT,٣"), "line 3: stays: must be a whole number"),
    "a person twice": (GOOD + "0,LEFT,3,4,7,10,0,9\n", "line 4: u: 0 comes twice"),
}


def test_answers_are_read_by_person(tmp_path: Path) -> None:
    (tmp_path / "room.csv").write_text(GOOD)
    assert read_answers(tmp_path / "room.csv") == {
        "owner": PersonAnswers("MEMBER", 1, 20, 1, 20, 12, 20),
        "0": PersonAnswers("LEFT", 3, 4, 7, 10, 0, 9),
    }


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_line_and_column(tmp_path: Path, name: str) -> None:
    text, message = FAULTS[name]
    (tmp_path / "room.csv").write_text(text, "utf-8")
    with pytest.raises(AnswersError) as refused:
        read_answers(tmp_path / "room.csv")
    assert message in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnswersError, match=r"missing.csv: cannot be read"):
        read_answers(tmp_path / "missing.csv")


def test_each_value_that_differs_is_told() -> None:
    right, found = PersonAnswers("LEFT", 3, 4, 7, 10, 0, 9), PersonAnswers("MEMBER", 3, 5, 7, 10, 0, 9)
    assert [str(line) for line in differences("0", right, found)] == [
        "FAILED person 0, state: expected LEFT, got MEMBER",
        "FAILED person 0, visible: expected 4, got 5",
    ]
    assert list(differences("0", right, right)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--newcomer", "LAST_N", "t", "e"], "--newcomer: must be SINCE_JOIN, ALL, or LAST_N:n"),
        (["--newcomer", "LAST_N:0", "t", "e"], "--newcomer: must be SINCE_JOIN, ALL, or LAST_N:n"),
        (["--newcomer", "LAST_N:1000000001", "t", "e"], "--newcomer: must be SINCE_JOIN, ALL, or LAST_N:n"),
        (["--rejoin", "SOME", "t", "e"], "--rejoin: invalid choice"),
        (["--leaver", "SOME", "t", "e"], "--leaver: invalid choice"),
        (["", "e"], "name both TRACE=... and EXPECT=..."),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.replace("REJOIN", "").replace("LEAVER", "").replace("\n", " ")


def test_files_that_cannot_be_taken_end_it_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "room.csv").write_text(GOOD)
    (tmp_path / "room.jsonl").write_text('{"op": "kick"}')
    assert main([str(tmp_path / "room.jsonl"), str(tmp_path / "missing.csv")]) == 2
    assert main([str(tmp_path / "room.jsonl"), str(tmp_path / "room.csv")]) == 2
    told = capsys.readouterr()
    assert "missing.csv: cannot be read" in told.err
    assert "room.jsonl: line 1: op: must be one of" in told.err
    assert told.out == ""
