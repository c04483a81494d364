"""Wrong manifests are noticed: each story spoils the production overlay in one way, and a fault names the place."""

from __future__ import annotations

import pytest
from tests.deploy.wrong import (
    addresses,
    availability,
    certificates,
    contents,
    environment,
    network,
    probes,
    security,
    stores,
)
from tests.support.manifests import PRODUCTION, Draft, first_faults, rendered
from tests.support.spoiling import SERVICES, Story

from qim_devkit.kubernetes.checks import Suite, faults

SUBJECTS = (addresses, availability, certificates, contents, environment, network, probes, security, stores)


def test_what_is_not_spoilt_has_no_fault() -> None:
    assert faults(Draft().manifests) == []


@pytest.mark.parametrize(("spoil", "words"), [story for subject in SUBJECTS for story in subject.STORIES])
def test_a_wrong_manifest_is_noticed(spoil: Story, words: str) -> None:
    draft = Draft()
    spoil(draft)
    found = [str(fault) for fault in faults(draft.manifests)]
    assert any(words in fault for fault in found), "\n".join(found) or "no fault"


def set_environment(draft: Draft, process: str, environment: dict[str, str]) -> None:
    for document in draft.documents:
        if document["kind"] in ("Deployment", "Job") and document["metadata"]["name"] == process:
            container = document["spec"]["template"]["spec"]["containers"][0]
            container["envFrom"] = []
            container["env"] = [{"name": name, "value": value} for name, value in environment.items()]


PROCESSES = (*SERVICES, "qim-schema", "qim-maintenance")


@pytest.mark.parametrize("process", PROCESSES)
def test_every_variable_that_is_removed_or_renamed_is_noticed(process: str) -> None:
    (one,) = (one for one in Suite.of(rendered(PRODUCTION)).processes if one.name == process)
    whole = dict(one.container.environment)
    assert len(whole) > 3
    unnoticed = []
    draft = Draft()
    for name in whole:
        less = {key: value for key, value in whole.items() if key != name}
        for changed, change in ((less, "removed"), ({**less, f"{name}_X": whole[name]}, "renamed")):
            set_environment(draft, process, changed)
            if not any(process in fault.where for fault in first_faults(draft.manifests)):
                unnoticed.append(f"{name} {change}")
    assert unnoticed == []
