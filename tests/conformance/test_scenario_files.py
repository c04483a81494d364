"""What is not in the format of scenario files is refused with file, scenario and key named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.runner.document import ScenarioFileError
from tests.conformance.runner.files import read_file, read_text
from tests.conformance.runner.scenario import Add, Expect, Operation, Retry, Send, Value, as_ranges

GOOD = """
- name: good
  why: to be changed in one place
  group: {owner: ana, members: [ben], settings: {newcomer_history: {LAST: 10}}, limit: 5}
  steps:
  - send: {by: ana, n: 3, seq: 1}
  - add: {users: [cara], seq: 4}
  - expect: {ana: {history: [[1, 3], 4], state: MEMBER, unread: 0, members: [cara, ana], owner: null}}
  - retry: {step: 1, seq: 4}
"""

FAULTS = {
    "no list": (GOOD, "just: a mapping", "must be a list of scenarios"),
    "nothing in it": (GOOD, "[]", "must be a list of scenarios"),
    "not YAML": (GOOD, "- [", "is not YAML"),
    "a scenario that is no mapping": (GOOD, "- 7", "scenario number 1: must be a mapping"),
    "no name": ("- name: good\n  why", "- why", "scenario number 1: lacks the key name"),
    "an empty name": ("name: good", "name: ''", "scenario number 1: name: must be a text"),
    "neither group nor direct": ("  group: {", "  grup: {", "'good': grup: is no key of this format"),
    "both": ("  steps:", "  direct: [a, b]\n  steps:", "'good': must have either the key group or the key direct"),
    "no owner": ("owner: ana, members", "members", "'good': group: lacks the key owner"),
    "members that are no list": ("members: [ben]", "members: ben", "'good': group.members: must be a list"),
    "a person who is no text": ("members: [ben]", "members: [yes]", "'good': group.members[0]: must be a text"),
    "a setting that there is not": ("newcomer_history", "newcomers", "'good': group.settings.newcomers: is no key"),
    "a policy that there is not": ("{LAST: 10}", "SOME", "newcomer_history: must be SINCE_JOIN, ALL or {LAST: n}"),
    "a LAST that is too small": ("LAST: 10", "LAST: 0", "newcomer_history.LAST: must be a whole number from 1"),
    "a LAST that is spelt otherwise": ("LAST: 10", "last: 10", "newcomer_history.last: is no key of this format"),
    "a LAST without n": ("{LAST: 10}", "{}", "newcomer_history: lacks the key LAST"),
    "a limit of nothing": ("limit: 5", "limit: 0", "'good': group.limit: must be a whole number from 1"),
    "a key twice": ("limit: 5", "limit: 5, limit: 6", "the key 'limit' comes twice"),
    "steps that are no list": (GOOD[GOOD.index("  steps:") :], "  steps: 3\n", "'good': steps: must be a list"),
    "a step that there is not": ("send:", "sent:", "'good': steps[0].sent: is no key of this format"),
    "two steps in one": (
        "- send: {by: ana, n: 3, seq: 1}",
        "- {send: {by: a}, leave: {by: a}}",
        "steps[0]: must have exactly",
    ),
    "nobody who does it": ("by: ana, n: 3", "n: 3", "'good': steps[0].send: lacks the key by"),
    "no messages": ("n: 3", "n: 0", "'good': steps[0].send.n: must be a whole number from 1"),
    "a number that is a truth": ("n: 3", "n: true", "'good': steps[0].send.n: must be a whole number from 1"),
    "a number with a fraction": ("n: 3", "n: 1.5", "'good': steps[0].send.n: must be a whole number from 1"),
    "a key of another step": ("n: 3", "users: [b]", "'good': steps[0].send.users: is no key of this format"),
    "nobody to add": ("users: [cara]", "users: []", "'good': steps[1].add.users: must name somebody"),
    "two outcomes": ("seq: 1}", "seq: 1, no_event: true}", "'good': steps[0].send: has more than one of seq, no_event"),
    "a reason that there is not": ("seq: 1}", "error: NO}", "'good': steps[0].send.error: must be one of"),
    "no truth": ("seq: 1}", "no_event: 1}", "'good': steps[0].send.no_event: must be true or false"),
    "a retry of what comes later": (
        "step: 1",
        "step: 2",
        "'good': steps[3].retry.step: must be the number of",
    ),
    "a key that is never expected": ("unread: 0", "unseen: 0", "'good': steps[2].expect.ana.unseen: is no key"),
    "a state that there is not": ("state: MEMBER", "state: OWNER", "'good': steps[2].expect.ana.state: must be one of"),
    "a range the wrong way round": ("[1, 3], 4", "[3, 1]", "'good': steps[2].expect.ana.history[0]: must be a seq or"),
    "a range of three": ("[1, 3], 4", "[1, 2, 3]", "'good': steps[2].expect.ana.history[0]: must be a whole number"),
    "a seq of zero": ("[1, 3], 4", "0", "'good': steps[2].expect.ana.history[0]: must be a whole number from 1"),
    "an expectation of nobody": ("{ana: {history", "{3: {history", "'good': steps[2].expect.3: a key must be a text"),
}


def test_a_good_file_is_read() -> None:
    (scenario,) = read_text(GOOD, "good.yaml")
    assert scenario.name == "good"
    assert scenario.steps[:2] == (Operation(0, Send("ana", 3), seq=1), Operation(1, Add(("cara",)), seq=4))
    expected: dict[str, Value] = {
        "history": ((1, 4),),
        "state": "MEMBER",
        "unread": 0,
        "members": ("ana", "cara"),
        "owner": None,
    }
    assert scenario.steps[2:] == (Expect({"ana": expected}), Operation(2, Retry(1), seq=4))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_place(name: str) -> None:
    before, after, message = FAULTS[name]
    assert GOOD.count(before) >= 1
    with pytest.raises(ScenarioFileError) as refused:
        read_text(GOOD.replace(before, after, 1), "some.yaml")
    assert str(refused.value).startswith("some.yaml: ")
    assert message in str(refused.value)


def test_a_name_twice_in_one_file_is_refused() -> None:
    with pytest.raises(ScenarioFileError, match="scenario 'good': name: comes twice"):
        read_text(GOOD + GOOD, "some.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFileError, match=r"missing.yaml: cannot be read"):
        read_file(tmp_path / "missing.yaml")


def test_anchors_and_merges_are_plain_yaml() -> None:
    text = GOOD.replace("group: {", "group: &g {") + GOOD.replace("name: good", "name: other").replace(
        "group: {owner: ana", "group: {<<: *g, owner: ben"
    )
    assert [scenario.name for scenario in read_text(text, "some.yaml")] == ["good", "other"]


def test_seqs_in_any_order_are_the_same_set() -> None:
    assert as_ranges([(9, 9), (1, 3), (4, 4), (2, 2)]) == ((1, 4), (9, 9))


def test_the_command_refuses_a_malformed_file_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(GOOD.replace("send:", "sent:"))
    run = subprocess.run(
        [sys.executable, "-m", "tests.conformance.runner", str(tmp_path / "bad.yaml")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    assert "bad.yaml: scenario 'good': steps[0].sent: is no key of this format" in run.stderr
    assert "passed" not in run.stdout
