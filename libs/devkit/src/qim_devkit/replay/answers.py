"""The right answers at the end of a history: a CSV file with one row per person."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

OWNER: Final = "owner"
"""Who stands in the first column for the group's owner, who is not in the history."""

STATES: Final = ("MEMBER", "LEFT", "REMOVED")


class AnswersError(Exception):
    """The file does not hold such answers; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class PersonAnswers:
    """What holds for one person at the end.

    Attributes:
        state: of the newest stay.
        stays: how many there were.
        visible: how many seqs the person may read; `earliest` and `head` are the first and the newest, `head` 0: none.
        unread: in the conversation list.
        delivered: how many seqs the mailbox received.
    """

    state: str
    stays: int
    visible: int
    earliest: int
    head: int
    unread: int
    delivered: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not as it should be."""

    person: str
    column: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"FAILED person {self.person}, {self.column}: expected {self.expected}, got {self.got}"


COLUMNS: Final = tuple(column.name for column in fields(PersonAnswers))


def differences(person: str, expected: PersonAnswers, got: PersonAnswers) -> Iterator[Difference]:
    """The columns in which two answers about one person differ."""
    for column, right, found in zip(COLUMNS, astuple(expected), astuple(got), strict=True):
        if right != found:
            yield Difference(person, column, str(right), str(found))


def read_answers(path: Path) -> dict[str, PersonAnswers]:
    """The answers by person, as the first column names them. Raises AnswersError."""
    answers: dict[str, PersonAnswers] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            if (header := next(rows, [])) != ["u", *COLUMNS]:
                raise AnswersError(f"{path}: line 1: must be {','.join(('u', *COLUMNS))}, not {','.join(header)}")
            for row in rows:
                where = f"{path}: line {rows.line_num}"
                if len(row) != len(COLUMNS) + 1:
                    raise AnswersError(f"{where}: must have {len(COLUMNS) + 1} columns")
                if row[0] in answers:
                    raise AnswersError(f"{where}: u: {row[0]} comes twice")
                answers[row[0]] = _answers(where, row[1:])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnswersError(f"{path}: cannot be read: {error}") from None
    if not answers:
        raise AnswersError(f"{path}: has no rows")
    return answers


def _answers(where: str, values: list[str]) -> PersonAnswers:
    state, *numbers = values
    if state not in STATES:
        raise AnswersError(f"{where}: state: must be one of {', '.join(STATES)}")
    for column, text in zip(COLUMNS[1:], numbers, strict=True):
        if not text.isascii() or not text.isdigit():
            raise AnswersError(f"{where}: {column}: must be a whole number")
    return PersonAnswers(state, *map(int, numbers))
