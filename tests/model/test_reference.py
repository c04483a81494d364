"""The reference model itself: independent, short, and right about the numbers that design.md names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.model.reference import DEFAULTS, Conversation, Refused

SOURCE = Path(__file__).with_name("reference.py").read_text()
OPERATOR = ("operator", "ops")


def room(*people: str, **settings: object) -> Conversation:
    conversation = Conversation({**DEFAULTS, **settings})
    conversation.create(people, owner=people[0])
    return conversation


def say(conversation: Conversation, who: str, times: int = 1) -> None:
    for _ in range(times):
        conversation.call(("send", who), object(), "send", b"")


def test_it_imports_nothing_of_the_project_and_has_at_most_200_lines() -> None:
    imported = {
        name
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [item.name for item in node.names])
    }
    assert imported == {"collections.abc", "dataclasses", "typing"}
    assert len(SOURCE.splitlines()) <= 200


@pytest.mark.parametrize(
    ("settings", "first"), [({}, 4837), ({"newcomer": "LAST_N", "last_n": 100}, 4737), ({"newcomer": "ALL"}, 1)]
)
def test_a_newcomer_sees_from_here_on(settings: dict[str, object], first: int) -> None:
    conversation = room("ana", **settings)
    say(conversation, "ana", 4836)
    assert conversation.call(OPERATOR, 1, "add", ("ben",))["seq"] == 4837
    assert conversation.visible("ben")[0] == conversation.earliest("ben") == first
    assert conversation.delivered("ben") == [4837]
    assert conversation.unread("ben") == 0


def test_a_leaver_receives_the_own_event_and_sees_up_to_it() -> None:
    conversation = room("ana", "ben")
    say(conversation, "ana", 3)
    assert conversation.call(("member", "ben"), 1, "leave")["left_at"] == 4
    say(conversation, "ana")
    assert conversation.visible("ben") == [1, 2, 3]
    assert conversation.delivered("ben") == [1, 2, 3, 4]
    assert conversation.unread("ben") == 3


def test_the_chain_of_stays_passes_through_a_revoked_one() -> None:
    conversation = room("ana", "ben", rejoin="ALL_STAYS")
    say(conversation, "ana")
    conversation.call(OPERATOR, 1, "remove", ("ben",))
    conversation.call(OPERATOR, 2, "add", ("ben",))
    say(conversation, "ana")
    conversation.call(OPERATOR, 3, "remove", ("ben",), "NONE")
    assert conversation.visible("ben") == [1]
    assert conversation.unread("ben") == 0
    conversation.call(OPERATOR, 4, "add", ("ben",))
    assert conversation.visible("ben") == [1, 6]


def test_a_large_groups_event_reaches_those_concerned_and_is_no_link_of_the_chain() -> None:
    conversation = room("ana", "ben", broadcast_max=2)
    say(conversation, "ana")
    conversation.call(OPERATOR, 1, "add", ("cara",))
    say(conversation, "ana")
    assert conversation.delivered("ben") == [1, 3]
    assert conversation.delivered("cara") == [2, 3]
    assert [entry.prev for entry in conversation.line] == [0, 1, 1]


def test_an_id_gets_its_first_answer_whatever_happened_since() -> None:
    conversation = room("ana", "ben")
    first = conversation.call(("send", "ben"), 1, "send", b"hi")
    conversation.call(("member", "ben"), 2, "leave")
    assert conversation.call(("send", "ben"), 1, "send", b"hi") == first
    with pytest.raises(Refused, match="IDEMPOTENCY_KEY_REUSED"):
        conversation.call(("send", "ben"), 1, "send", b"ho")
    with pytest.raises(Refused, match="PERMISSION_DENIED"):
        conversation.call(("send", "ben"), 3, "send", b"hi")
    assert conversation.head == 2
