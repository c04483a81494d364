"""What the ids of a server that is met again allow."""

from __future__ import annotations

import pytest

from qim_common.redis.fence import NO_ID, Fenced, FenceMark, ServerIds, Verdict, decide

RUN, REPL = "r" * 40, "a" * 40
OTHER_RUN, OTHER_REPL = "s" * 40, "b" * 40
KNOWN = FenceMark(RUN, REPL)


@pytest.mark.parametrize(
    ("mark", "ids", "archive", "ack_level", "verdict"),
    [
        (KNOWN, ServerIds(RUN, REPL), True, "log", Verdict.KNOWN),
        (KNOWN, ServerIds(RUN, REPL), False, "log", Verdict.KNOWN),
        # A restart, with its history or with a new one.
        (KNOWN, ServerIds(OTHER_RUN, REPL), True, "log", Verdict.COMPARE),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL), True, "log", Verdict.COMPARE),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL), False, "log", Verdict.ACCEPT),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL), True, "archived", Verdict.COMPARE),
        # The process is the same and its history another one: it was a replica meanwhile.
        (KNOWN, ServerIds(RUN, OTHER_REPL), True, "replicated", Verdict.COMPARE),
        # A promoted replica.
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, REPL), True, "log", None),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, REPL), False, "log", None),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, REPL), True, "replicated", Verdict.COMPARE),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, REPL), False, "replicated", Verdict.ACCEPT),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, REPL), True, "archived", Verdict.COMPARE),
        # Its primary had begun another history since, when its first replica came.
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, "c" * 40), True, "log", None),
        (KNOWN, ServerIds(OTHER_RUN, OTHER_REPL, "c" * 40), True, "archived", Verdict.COMPARE),
        # Found good after its promotion.
        (KNOWN, ServerIds(RUN, REPL, "c" * 40), True, "log", Verdict.KNOWN),
        # Nothing is stored yet.
        (FenceMark(), ServerIds(RUN, REPL), True, "log", Verdict.COMPARE),
        (FenceMark(), ServerIds(RUN, REPL), False, "log", Verdict.ACCEPT),
        (FenceMark(), ServerIds(RUN, REPL, NO_ID), False, "log", Verdict.ACCEPT),
        # Once fenced, no restart lifts it.
        (FenceMark(RUN, REPL, fenced="it went back"), ServerIds(RUN, REPL), True, "archived", None),
        (FenceMark(fenced="it went back"), ServerIds(OTHER_RUN, OTHER_REPL), False, "log", None),
    ],
)
def test_ids_decide(mark: FenceMark, ids: ServerIds, archive: bool, ack_level: str, verdict: Verdict | None) -> None:
    found = decide(mark, ids, archive=archive, ack_level=ack_level)

    if verdict is None:
        assert isinstance(found, Fenced)
        assert found.why
    else:
        assert found is verdict


def test_the_stored_reason_is_told_again() -> None:
    assert decide(FenceMark(fenced="it went back"), ServerIds(RUN, REPL), archive=True, ack_level="log") == Fenced(
        "it went back"
    )
