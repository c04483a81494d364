"""docs/operations.md: each block of commands is run by a test or says why not, and every alert has its row."""

from __future__ import annotations

import re

from tests.support.alerts import ALERTS, alert_rules, metrics_of
from tests.support.operations_page import STORIES, blocks, page

from qim_devkit.protos import repository_root

DOCS = repository_root() / "docs"
LANGUAGES = {"sh", "yaml", "text"}


def test_each_block_of_commands_is_run_by_a_test_or_says_why_not() -> None:
    commands = [block for block in blocks() if block.language == "sh"]
    assert {block.language for block in blocks()} <= LANGUAGES, "another language would hide commands"
    assert page().count("\n```") == 2 * len(blocks()), "a block that is not at the margin"
    assert [block.content for block in commands if bool(block.story) == bool(block.why_not)] == []
    assert {block.story for block in commands if block.story} == set(STORIES)


def test_every_alert_has_one_row_with_its_severity_and_what_to_do() -> None:
    section = page().split("\n## Alerts\n", 1)[1].split("\n## ", 1)[0]
    told = re.findall(r"^\| `(Qim\w+)` \((\w+)\) \|(?:[^|\n]+\|){2} [^|\n]+ \|$", section, re.MULTILINE)
    assert sorted(told) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in alert_rules())


def test_each_metric_names_the_alerts_that_look_at_it() -> None:
    text = (DOCS / "metrics.md").read_text("utf-8")
    rows = re.findall(r"^\| (`qim_.*?) \| .* \| ?(.*?) ?\|$", text, re.MULTILINE)
    told = {
        (name, alert)
        for names, alerts in rows
        for alert in re.findall(r"`(\w+)`", alerts)
        for name in re.findall(r"`(qim_\w+)", names)
    }
    used = {(name, rule["alert"]) for rule in alert_rules() for name in metrics_of(rule)}
    assert used <= told
    # A row of several metrics names an alert of one of them.
    assert {alert for _, alert in told} == {alert for _, alert in used}
    for names, alerts in rows:
        here = set(re.findall(r"`(qim_\w+)", names))
        for alert in re.findall(r"`(\w+)`", alerts):
            assert any((name, alert) in used for name in here), f"{alert} does not look at {here}"


def test_alerts_point_to_sections_that_exist() -> None:
    for rule in alert_rules():
        for name, section in re.findall(r"docs/([\w-]+\.md), ([^.]+)\.", rule["annotations"]["description"]):
            headings = re.findall(r"^#+ (.*)$", (DOCS / name).read_text("utf-8"), re.MULTILINE)
            assert section in headings, f"{ALERTS.name}: {rule['alert']} points to {section} of {name}"
