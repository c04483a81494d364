"""The lines of a history to import (docs/import-format.md). Everything is checked before anything is carried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from blake3 import blake3

from qim_client.names import user_id
from qim_common.errors import InvalidArgument

PERSON_MAX: Final = 2**53 - 1
BODY_MAX: Final = 1024 * 1024
"""No installation takes larger bodies (`QIM_MESSAGE_MAX_BYTES`)."""

LINE_MAX: Final = 8 * BODY_MAX

Person = int | str
"""A number stands for a person of this history only, a text is a user id or a name."""


class ImportFileError(Exception):
    """The file cannot be imported as it is; the message names file, line and key."""


class Op(StrEnum):
    """What a line says."""

    JOIN = "join"
    LEAVE = "leave"
    MESSAGE = "msg"


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        number: from 1.
        body: of a message.
        end: the offset behind it in the file, bytes.
    """

    number: int
    op: Op
    person: Person
    body: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What a whole file holds.

    Attributes:
        lines: how many say something.
        initial: who is in the group from the start, in order of appearance.
        size, digest: of its bytes.
    """

    lines: int
    initial: tuple[Person, ...]
    size: int
    digest: str


def survey(path: Path) -> Survey:
    """Read and check the whole file. People whose first line is no join are there from the start.

    Raises ImportFileError.
    """
    first: dict[Person, Op] = {}
    count = size = 0
    for line in read(path):
        first.setdefault(line.person, line.op)
        count += 1
        size = line.end
    initial = tuple(person for person, op in first.items() if op is not Op.JOIN)
    return Survey(count, initial, size, digest(path, size))


def read(path: Path, *, offset: int = 0, number: int = 0) -> Iterator[Line]:
    """The lines behind `offset` (bytes), of which `number` come before; empty ones are left out but counted.

    Raises ImportFileError for the first line that is not in the format.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while data := file.readline(LINE_MAX + 1):
                number += 1
                offset += len(data)
                if len(data) > LINE_MAX:
                    raise ImportFileError(f"{path}: line {number}: is longer than {LINE_MAX:,} bytes")
                if data.strip():
                    yield _line(f"{path}: line {number}", number, data, offset)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read: {error.strerror}") from None


def digest(path: Path, length: int) -> str:
    """What the first `length` bytes are, as hex; of a shorter file something else. Raises ImportFileError."""
    hasher = blake3()
    left = length
    try:
        with path.open("rb") as file:
            while left and (part := file.read(min(left, BODY_MAX))):
                hasher.update(part)
                left -= len(part)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read: {error.strerror}") from None
    return hasher.hexdigest() if not left else ""


def _line(where: str, number: int, data: bytes, end: int) -> Line:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ImportFileError(f"{where}: is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ImportFileError(f"{where}: must be a JSON object")
    if document.get("op") not in list(Op):
        raise ImportFileError(f"{where}: op: must be one of {', '.join(Op)}")
    op = Op(document["op"])
    known = {"t", "op", "u", *(("n", "text") if op is Op.MESSAGE else ())}
    if unknown := sorted(set(document) - known):
        raise ImportFileError(f"{where}: {unknown[0]}: is no key of a line with op {op}")
    time = document.get("t", 0)
    if isinstance(time, bool) or not isinstance(time, int | float) or not time >= 0:
        raise ImportFileError(f"{where}: t: must be a number of seconds, from 0")
    return Line(number, op, _person(where, document.get("u")), _body(where, op, document), end)


def _person(where: str, value: Any) -> Person:
    if isinstance(value, str):
        try:
            user_id(value)
        except InvalidArgument as error:
            raise ImportFileError(f"{where}: u: {error.violations[0].description}") from None
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PERSON_MAX:
        return value
    raise ImportFileError(f"{where}: u: must be a whole number from 0 to {PERSON_MAX}, or a user id or name as text")


def _body(where: str, op: Op, document: dict[str, Any]) -> bytes:
    if op is not Op.MESSAGE:
        return b""
    if ("n" in document) == ("text" in document):
        raise ImportFileError(f"{where}: n, text: a message has exactly one of them")
    if "text" in document:
        text = document["text"]
        if not isinstance(text, str):
            raise ImportFileError(f"{where}: text: must be a text")
        try:
            body = text.encode()
        except UnicodeEncodeError:
            raise ImportFileError(f"{where}: text: is not Unicode") from None
        if len(body) > BODY_MAX:
            raise ImportFileError(f"{where}: text: has more than {BODY_MAX:,} bytes")
        return body
    size = document["n"]
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= BODY_MAX:
        raise ImportFileError(f"{where}: n: must be a number of bytes from 0 to {BODY_MAX:,}")
    return b"." * size
