"""docs/configuration.md has a row for every setting, with those who read it; docs/metrics.md one for every metric."""

from __future__ import annotations

import re

from tests.support.registered_metrics import declared_metrics

from qim_common.bindings import BindingsDocument, OperatorRole
from qim_common.config import (
    PREFIX,
    AdminSettings,
    ArchiverSettings,
    ProcessSettings,
    PushSettings,
    PushWebhookSettings,
    SessionSettings,
    WriterSettings,
)
from qim_devkit.protos import repository_root

DOCS = repository_root() / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text("utf-8")
METRICS = (DOCS / "metrics.md").read_text("utf-8")
PROCESSES: dict[str, type[ProcessSettings]] = {
    settings.service: settings
    for settings in (
        WriterSettings,
        SessionSettings,
        AdminSettings,
        PushSettings,
        PushWebhookSettings,
        ArchiverSettings,
    )
}
GROUPS = {
    "all": set(PROCESSES),
    "services": {"writer", "session", "admin"},
    "push": {"push", "push-webhook"},
}
"""What the column "who" abbreviates."""


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its two head lines."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = next(part for part in section.strip().split("\n\n") if part.startswith("|")).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def readers(who: str) -> set[str]:
    """The processes that the column "who" names."""
    named = (GROUPS.get(name, {name}) for name in who.split(", "))
    return set().union(*named)


def test_every_setting_has_one_row_that_names_who_reads_it() -> None:
    told = [
        (name, readers(who))
        for names, who, *_ in rows(CONFIGURATION, "Settings")
        for name in re.findall(r"`(\w+)`", names)
    ]
    read: dict[str, set[str]] = {}
    for service, settings in PROCESSES.items():
        for field in settings.model_fields:
            read.setdefault(PREFIX + field.upper(), set()).add(service)
    assert dict(told) == read
    assert len(told) == len(read), "two rows are of one setting"


def test_the_settings_of_every_process_are_looked_at() -> None:
    below = set(ProcessSettings.__subclasses__())
    while more := {child for one in below for child in one.__subclasses__()} - below:
        below |= more
    assert {one for one in below if one.__module__ == ProcessSettings.__module__ and "service" in vars(one)} == set(
        PROCESSES.values()
    )


def test_every_metric_has_one_row() -> None:
    told = [
        name for names, *_ in rows(METRICS, "What to watch") for name in re.findall(r"`(\w+)(?:\{[^}]*\})?`", names)
    ]
    assert sorted(told) == sorted(declared_metrics())


def test_the_bindings_of_the_page_are_taken() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", CONFIGURATION, re.DOTALL)
    document = BindingsDocument.parse(example)
    assert document.gateways["chat-eu"].allows(7)
    assert document.operators["ana"].allows(2**64 - 1)
    assert document.operators["help-desk"].roles == {OperatorRole.VIEWER}
    assert not document.backends["shop"].allows(1)
