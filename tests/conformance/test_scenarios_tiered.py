"""Every scenario through the public API of a suite of the backend `tiered`, each expectation read from the archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.runner.theatre import Theatre
from tests.conformance.test_scenarios import all_scenarios
from tests.support.cassandra import TieredPlace
from tests.support.service_metrics import counted
from tests.support.valkey import require_valkey

from qim_devkit.tiered import COLD, PROMPT

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


async def test_every_scenario_holds_when_messages_come_from_the_archive(
    module_cassandra: TieredPlace, tmp_path: Path
) -> None:
    require_valkey()
    scenarios = all_scenarios()
    failed: list[str] = []
    running = module_cassandra.suite(tmp_path / "suite", env_overrides=COLD | PROMPT)
    async with running as suite, Theatre(suite) as theatre:
        async for outcome in theatre.perform_all(scenarios):
            assert outcome.error is None, outcome.scenario.name
            assert outcome.checks
            failed += [str(check) for check in outcome.checks if not check.passed]
        evicted = await counted(suite, "qim_archiver_evicted_total", *suite.archiver_names)
    assert failed == []
    assert evicted > len(scenarios)
