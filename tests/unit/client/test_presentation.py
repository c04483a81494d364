"""JSON that tools can rely on, text that cannot steer a terminal, refusals that say what to do."""

from __future__ import annotations

import json

import grpc
import pytest

from qim_client.answers import MembershipResult
from qim_client.presentation import as_json, body_text, explain, hoist_options, json_text, listed, printable
from qim_client.values import Message
from qim_common.enums import MemberState
from qim_common.errors import BackendUnavailable, InvalidArgument, RemoteError
from qim_common.ids import ConversationId, DeviceId, UserId
from qim_common.records import Audience, RecordType

GROUP = ConversationId(b"\x02" + bytes(14) + b"\x07")
SHOWN = "02000000-0000-0000-0000-000000000007"
OPTIONS = frozenset({"--output", "-o", "--as"})


def test_ids_are_uuids_and_numbers_stay() -> None:
    result = MembershipResult(GROUP, 3, 0, 5, 1, 1_700_000_000_000)
    assert as_json(result) == {
        "group": SHOWN,
        "membership_version": 3,
        "seq": 0,
        "member_count": 5,
        "changed_count": 1,
        "time_ms": 1_700_000_000_000,
    }


@pytest.mark.parametrize(("body", "text", "encoded"), [(b"hi", "hi", "aGk="), (b"", "", ""), (b"\xff", None, "/w==")])
def test_a_body_is_given_whole_and_as_text_where_it_is_text(body: bytes, text: str | None, encoded: str) -> None:
    ana = UserId(b"a" * 16)
    message = Message(
        GROUP, 1, 0, 1, 5, RecordType.ORDINARY, ana, DeviceId(ana), ana, "", body, 0, Audience.BROADCAST, None
    )
    document = as_json(message)
    assert (document["text"], document["body_base64"], document["type"]) == (text, encoded, "ordinary")
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\x9b31mred\x9d0;title\x9c", id="C1 controls"),
        pytest.param("\x1b[31mred\x00\x7f", id="C0 controls and delete"),
        pytest.param("\u202egpj.exe\u2066\u200b\ufeff", id="bidirectional and format characters"),
        pytest.param("\u2028\u2029\x85", id="line separators"),
        pytest.param("\U000e0041\U0010ffff", id="beyond the first plane"),
        pytest.param("\ud800", id="half a surrogate pair"),
        pytest.param('na\u00efve "\\" \u6f22 \U0001f642', id="nothing of the kind"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_cannot_steer_the_terminal_and_says_the_same(text: str, indent: int | None) -> None:
    document = {"text": text, text: [text]}
    shown = json_text(document, indent=indent)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert json.loads(shown) == document


def test_json_keeps_text_that_can_be_read() -> None:
    assert json_text({"text": "na\u00efve \u6f22"}) == '{"text": "na\u00efve \u6f22"}'


def test_lists_and_enums_inside_a_mapping() -> None:
    assert as_json({"states": [MemberState.LEFT], "group": GROUP}) == {"states": ["left"], "group": SHOWN}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\nb", "a⏎b"), ("\x1b[31mred", "·[31mred"), ("a\tb", "a b"), ("\u202eabc", "·abc"), ("naïve", "naïve")],
)
def test_text_of_others_cannot_steer_the_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_a_body_that_is_no_text_is_shown_by_its_size() -> None:
    assert body_text(b"\xff\xfe") == "(2 bytes, no text)"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, ""), (1, "p0"), (2, "p0 and p1"), (5, "p0, p1, p2, p3 and p4"), (9, "p0, p1, p2, p3 and 5 others")],
)
def test_names_are_listed_in_words(count: int, expected: str) -> None:
    assert listed(f"p{at}" for at in range(count)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["show", "G", "--output", "json"], ["--output", "json", "show", "G"]),
        (["show", "-o", "json", "G"], ["-o", "json", "show", "G"]),
        (["show", "--output=json"], ["--output=json", "show"]),
        (["show", "--", "--output", "json"], ["show", "--", "--output", "json"]),
        (["show", "--limit", "3"], ["show", "--limit", "3"]),
        (["--as", "ana", "show", "--output"], ["--as", "ana", "--output", "show"]),
        ([], []),
    ],
)
def test_global_options_may_stand_anywhere(given: list[str], expected: list[str]) -> None:
    assert hoist_options(given, OPTIONS) == expected


def test_a_refusal_names_reason_fields_and_what_to_do() -> None:
    refusal = explain(InvalidArgument("user_ids[3]", "must be 16 bytes, has 2"))
    assert refusal.lines()[0] == "INVALID_ARGUMENT: user_ids[3]: must be 16 bytes, has 2"
    assert refusal.as_json()["error"]["fields"] == [{"field": "user_ids[3]", "description": "must be 16 bytes, has 2"}]
    assert "look before you repeat it" in explain(BackendUnavailable()).hint


def test_a_refusal_without_a_reason_is_named_by_its_status() -> None:
    refusal = explain(RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="connection refused"))
    assert refusal.reason == "UNAVAILABLE"
    assert "make up" in refusal.hint
