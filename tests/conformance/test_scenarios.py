"""Every scenario of this directory, through the public API of a running suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.conformance.runner.files import read_files, read_text
from tests.conformance.runner.scenario import Scenario
from tests.conformance.runner.theatre import Mode, Theatre
from tests.support.service_metrics import counted
from tests.support.valkey import require_valkey

from qim_devkit.protos import repository_root
from qim_devkit.suite import Suite

SCENARIOS = read_files(sorted(Path(__file__).parent.glob("*.yaml")))
SHARED = repository_root().parent / "shared" / "scenarios"
SEED = 1
REBUILT = "qim_session_projection_user_rebuilt_total"

pytestmark = pytest.mark.server


def all_scenarios() -> list[Scenario]:
    """Those of this directory, and others beside the checkout where there are any."""
    theirs = read_files(sorted(SHARED.glob("*.yaml")))
    known = [(scenario.start, scenario.steps) for scenario in SCENARIOS]
    return [*SCENARIOS, *(scenario for scenario in theirs if (scenario.start, scenario.steps) not in known)]


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("conformance") / "suite", sessions=3) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def theatre(suite: Suite) -> AsyncIterator[Theatre]:
    async with Theatre(suite) as opened:
        yield opened


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{Path(scenario.file).stem}-{scenario.name}")
async def test_scenario(theatre: Theatre, scenario: Scenario) -> None:
    checks = await theatre.perform(scenario)
    assert checks
    assert [str(check) for check in checks if not check.passed] == []


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", [Mode.SUBSCRIBE, Mode.WIPED])
async def test_attached_devices_see_the_same_on_several_replicas_also_when_the_projection_is_lost(
    suite: Suite, mode: Mode
) -> None:
    # WIPED compares all that SUBSCRIBE does, so a third of the scenarios is enough for what a wipe might hide.
    scenarios = all_scenarios() if mode is Mode.WIPED else all_scenarios()[::3]
    failed: list[str] = []
    keys: Counter[str] = Counter()
    rebuilt = await counted(suite, REBUILT, *suite.session_names)
    async with Theatre(suite, mode, SEED) as opened:
        async for outcome in opened.perform_all(scenarios):
            assert outcome.error is None, outcome.scenario.name
            keys.update(check.key for check in outcome.checks)
            failed += [str(check) for check in outcome.checks if not check.passed]
    assert failed == []
    if mode is Mode.WIPED:
        assert await counted(suite, REBUILT, *suite.session_names) >= rebuilt + len(scenarios)
    assert keys["delivered (subscribed)"] == keys["delivered (attached late)"] == keys["delivered"] > 0
    assert all(keys[f"{key} (attached late)"] == keys[key] > 0 for key in ("unread", "head", "state"))


WRONG = """
- name: everything-here-is-wrong
  group: {owner: ana, members: [ben]}
  steps:
  - send: {by: ana, seq: 2}
  - leave: {by: ben, no_event: true}
  - read: {by: ana, seq: 1, error: GROUP_FROZEN}
  - add: {users: [ana], seq: 3}
  - send: {by: eve}
  - retry: {step: 0, seq: 9}
  - expect:
      ana: {history: [1], earliest: 2, unread: 1, head: 1, state: LEFT, delivered: [[1, 3]], members: DENIED,
            can_send: false, owner: ben}
      eve: {history: [1], unread: 0, state: MEMBER, members: [eve], can_send: true}
"""


async def test_whatever_differs_is_told_with_step_person_key_expected_and_got(theatre: Theatre) -> None:
    (scenario,) = read_text(WRONG, "wrong.yaml")
    checks = await theatre.perform(scenario)
    failed = [(c.step, c.person, c.key, c.expected, c.got) for c in checks if not c.passed]
    assert failed == [
        (0, "ana", "seq", "2", "1"),
        (1, "ben", "no_event", "true", "1 seqs taken"),
        (2, "ana", "error", "GROUP_FROZEN", "nothing"),
        (3, "-", "seq", "3", "nothing"),
        (4, "eve", "error", "nothing", "PERMISSION_DENIED"),
        (5, "-", "seq", "9", "1"),
        (6, "ana", "history", "[1]", "[[1, 2]]"),
        (6, "ana", "earliest", "2", "1"),
        (6, "ana", "unread", "1", "0"),
        (6, "ana", "head", "1", "2"),
        (6, "ana", "state", "LEFT", "MEMBER"),
        (6, "ana", "delivered", "[[1, 3]]", "[[1, 2]]"),
        (6, "ana", "members", "DENIED", "[ana]"),
        (6, "ana", "can_send", "false", "true"),
        (6, "ana", "owner", "ben", "ana"),
        (6, "eve", "history", "[1]", "DENIED"),
        (6, "eve", "unread", "0", "no entry"),
        (6, "eve", "state", "MEMBER", "ABSENT"),
        (6, "eve", "members", "[eve]", "DENIED"),
        (6, "eve", "can_send", "true", "false"),
    ]
