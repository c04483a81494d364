"""Any interleaving of operations, on the real service and on the reference model (design.md, "Invariants").

`--hypothesis-seed` repeats a run; QIM_MODEL_SEQUENCES sets how many sequences are played at least, QIM_MODEL_STEPS how
long an example is, and with QIM_MODEL_SHRINK=0 a failing example is neither shortened nor kept for the next run.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.model.machines import LANES, SHORTEST, Conversations, Directs, Groups, Played
from tests.model.world import World

SEQUENCES = int(os.environ.get("QIM_MODEL_SEQUENCES", "2000"))
STEPS = int(os.environ.get("QIM_MODEL_STEPS", "30"))
"""Steps of one example, spread over its lanes; a step makes one to five calls."""

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def chosen_seed(request: pytest.FixtureRequest) -> int:
    """The seed of --hypothesis-seed, else a new one."""
    given = request.config.getoption("--hypothesis-seed")
    return random.SystemRandom().randrange(2**32) if given is None else int(given)


def run(machine: type[Conversations], examples: int, chosen: int) -> None:
    """Play examples; raises the first failure."""
    as_found = os.environ.get("QIM_MODEL_SHRINK") == "0"
    phases = [Phase.generate] if as_found else [Phase.reuse, Phase.generate, Phase.shrink]
    options: dict[str, Any] = {"database": None} if as_found else {}
    run_state_machine_as_test(
        seed(chosen)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=False,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


@pytest.mark.parametrize(("rules", "share"), [(Groups, 1.0), (Directs, 0.1)], ids=["groups", "direct"])
async def test_the_service_does_what_the_model_foretells(
    world: World,
    chosen_seed: int,
    capsys: pytest.CaptureFixture[str],
    rules: type[Conversations],
    share: float,
) -> None:
    wanted = int(SEQUENCES * share)
    played = Played(world, asyncio.get_running_loop(), most_restarts=1 + wanted // 250)
    machine = type(rules.__name__, (rules,), {"played": played})
    try:
        while played.sequences < wanted:
            examples = (wanted - played.sequences) // LANES + 5
            await asyncio.to_thread(run, machine, examples, chosen_seed + played.sequences)
    finally:
        with capsys.disabled():
            sys.stdout.write(
                f"\nmodel, {rules.__name__.lower()}: {played.sequences} sequences of {SHORTEST} operations or more, "
                f"{played.operations} operations, {played.restarts} restarts of the writer; "
                f"--hypothesis-seed={chosen_seed}\n"
            )
