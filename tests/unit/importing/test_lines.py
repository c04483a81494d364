"""The lines of a history are checked, and a fault is named with line and key (docs/import-format.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_devkit.importing.lines import ImportFileError, Op, digest, read, survey

GOOD = b"""{"t": 1, "op": "join", "u": 1}
{"t": 2.5, "op": "msg", "u": 1, "n": 3}

{"op": "msg", "u": "ana", "text": "h\\u00e9"}
{"op": "leave", "u": "018f2f6e-8f57-7cc3-8d4e-0b2a4c6e8f10"}
{"op": "leave", "u": 1}"""

FAULTS = {
    "no JSON": (b"{", "line 1: is not JSON"),
    "bytes that are no text": (b"\xff\xfe\x00", "line 1: is not JSON"),
    "no object": (b"[1]", "line 1: must be a JSON object"),
    "the second line": (b'{"op": "leave", "u": 1}\n7', "line 2: must be a JSON object"),
    "no op": (b'{"u": 1}', "line 1: op: must be one of join, leave, msg"),
    "another op": (b'{"op": "kick", "u": 1}', "line 1: op: must be one of join, leave, msg"),
    "an op that is no text": (b'{"op": ["join"], "u": 1}', "line 1: op: must be one of"),
    "nobody": (b'{"op": "join"}', "line 1: u: must be a whole number"),
    "a negative number": (b'{"op": "join", "u": -1}', "line 1: u: must be a whole number"),
    "a number too large": (b'{"op": "join", "u": 9007199254740992}', "line 1: u: must be a whole number"),
    "a truth": (b'{"op": "join", "u": true}', "line 1: u: must be a whole number"),
    "a fraction": (b'{"op": "join", "u": 1.0}', "line 1: u: must be a whole number"),
    "an empty name": (b'{"op": "join", "u": " "}', "line 1: u: a name must not be empty"),
    "a name that steers a terminal": (b'{"op": "join", "u": "a\\u001b"}', "line 1: u: a name has printable"),
    "a user id of zero": (b'{"op": "join", "u": "00000000-0000-0000-0000-000000000000"}', "line 1: u: "),
    "a key too many": (b'{"op": "join", "u": 1, "who": 2}', "line 1: who: is no key of a line with op join"),
    "a body of a join": (b'{"op": "join", "u": 1, "n": 2}', "line 1: n: is no key of a line with op join"),
    "a time before the beginning": (b'{"op": "join", "u": 1, "t": -1}', "line 1: t: must be a number of seconds"),
    "a time that is no number": (b'{"op": "join", "u": 1, "t": "1"}', "line 1: t: must be a number of seconds"),
    "no time at all": (b'{"op": "join", "u": 1, "t": NaN}', "line 1: t: must be a number of seconds"),
    "no body": (b'{"op": "msg", "u": 1}', "line 1: n, text: a message has exactly one"),
    "two bodies": (b'{"op": "msg", "u": 1, "n": 1, "text": "a"}', "line 1: n, text: a message has exactly one"),
    "a body of less than nothing": (b'{"op": "msg", "u": 1, "n": -1}', "line 1: n: must be a number of bytes"),
    "a body too large": (b'{"op": "msg", "u": 1, "n": 1048577}', "line 1: n: must be a number of bytes"),
    "a text too large": (b'{"op": "msg", "u": 1, "text": "%s"}' % (b"a" * 1_048_577), "line 1: text: has more than"),
    "a text that is none": (b'{"op": "msg", "u": 1, "text": 1}', "line 1: text: must be a text"),
    "half a character": (b'{"op": "msg", "u": 1, "text": "\\ud800"}', "line 1: text: is not Unicode"),
    "a line without an end": (b'{"op": "msg", "u": 1, "text": "' + b"a" * 9_000_000, "line 1: is longer than"),
}


def write(directory: Path, data: bytes) -> Path:
    path = directory / "room.jsonl"
    path.write_bytes(data)
    return path


def test_every_kind_of_line_is_read_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    lines = list(read(path))
    assert [(line.number, line.op, line.person, line.body) for line in lines] == [
        (1, Op.JOIN, 1, b""),
        (2, Op.MESSAGE, 1, b"..."),
        (4, Op.MESSAGE, "ana", "hé".encode()),
        (5, Op.LEAVE, "018f2f6e-8f57-7cc3-8d4e-0b2a4c6e8f10", b""),
        (6, Op.LEAVE, 1, b""),
    ]
    assert list(read(path, offset=lines[1].end, number=lines[1].number)) == lines[2:]


def test_people_whose_first_line_is_no_join_are_there_from_the_start(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    found = survey(path)
    assert (found.lines, found.initial) == (5, ("ana", "018f2f6e-8f57-7cc3-8d4e-0b2a4c6e8f10"))
    assert (found.size, found.digest) == (len(GOOD), digest(path, len(GOOD)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_line_and_key(tmp_path: Path, name: str) -> None:
    data, message = FAULTS[name]
    with pytest.raises(ImportFileError) as refused:
        survey(write(tmp_path, data))
    assert message in str(refused.value)
    assert "room.jsonl" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for use in (survey, lambda path: digest(path, 1)):
        with pytest.raises(ImportFileError, match=r"missing: cannot be read"):
            use(tmp_path / "missing")


def test_the_digest_is_of_the_bytes_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    before = digest(path, 40)
    write(tmp_path, GOOD + b"\n" + GOOD)
    assert digest(path, 40) == before
    write(tmp_path, GOOD.replace(b'"t": 1,', b'"t": 2,'))
    assert digest(path, 40) != before
    assert digest(path, 10_000) == ""
