"""Any interleaving of operations, on the real service and on the reference model (design.md, "Invariants").

Each example plays several lanes at once: conversations with people of their own, whose operations run one after another.
`--hypothesis-seed` repeats a run; QIM_MODEL_SEQUENCES sets how many sequences are played at least.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.model.lanes import Lane, draw_id, settings_of
from tests.model.world import World

SEQUENCES = int(os.environ.get("QIM_MODEL_SEQUENCES", "2000"))
SHORTEST = 5
"""Operations of a sequence that counts."""

LANES, STEPS = 5, 80
RESTARTS = 8
PEOPLE = 6
BODIES = st.sampled_from([b"", b"one", b"two", b"three"])
SEQS = st.integers(0, 25)
WHO = st.integers(0, PEOPLE - 1)
SOME = st.lists(WHO, min_size=1, max_size=3, unique=True)
SETTINGS = st.builds(
    lambda newcomer, rejoin, leaver, broadcast, limit: settings_of(
        newcomer=newcomer[0],
        last_n=newcomer[1],
        rejoin=rejoin,
        leaver=leaver,
        broadcast_max=broadcast,
        limit=limit,
    ),
    st.sampled_from([("SINCE_JOIN", 0), ("ALL", 0), ("LAST_N", 1), ("LAST_N", 2), ("LAST_N", 4)]),
    st.sampled_from(["LATEST_STAY", "ALL_STAYS"]),
    st.sampled_from(["UNTIL_LEFT", "NONE"]),
    st.sampled_from([500, 1, 2, 3, 4]),
    st.sampled_from([100_000, 4, 5, 6]),
)
LEAVERS = st.sampled_from(["", "", "UNTIL_LEFT", "NONE"])


@dataclass
class Tally:
    """What a run played."""

    sequences: int = 0
    operations: int = 0
    restarts: int = 0


def machines(world: World, loop: asyncio.AbstractEventLoop, tally: Tally) -> Callable[[], RuleBasedStateMachine]:
    """The machine of groups, on this suite."""

    class Groups(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.lanes: list[Lane] = []

        @initialize(
            starts=st.lists(
                st.tuples(SETTINGS, st.lists(st.integers(1, PEOPLE - 1), max_size=3)), min_size=LANES, max_size=LANES
            )
        )
        def start(self, starts: list[tuple[dict[str, Any], list[int]]]) -> None:
            for chosen, invited in starts:
                lane = Lane.of_group(PEOPLE)
                people = [lane.people[i] for i in invited]
                lane.do(lane.create({**chosen, "limit": 100_000}, people, by=lane.people[0], request=draw_id()))
                self.lanes.append(lane)

        @rule(at=st.integers(0, LANES - 1), who=WHO, bodies=st.lists(BODIES, min_size=1, max_size=3))
        def send(self, at: int, who: int, bodies: list[bytes]) -> None:
            lane = self.lanes[at]
            for body in bodies:
                lane.do(lane.send(lane.people[who], body, request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), who=WHO, behind=st.integers(0, 1))
        def send_at_a_version(self, at: int, who: int, behind: int) -> None:
            lane = self.lanes[at]
            version = max(lane.model.version - behind, 1)
            lane.do(lane.send(lane.people[who], b"at a version", request=draw_id(), expected=version))

        @rule(at=st.integers(0, LANES - 1), people=SOME, owned=st.booleans(), back_end=st.booleans())
        def add(self, at: int, people: list[int], owned: bool, back_end: bool) -> None:
            lane = self.lanes[at]
            chosen = [lane.people[i] for i in people]
            lane.do(
                lane.add(
                    chosen,
                    request=draw_id(),
                    by="backend" if back_end else "operator",
                    owner=chosen[-1] if owned and not lane.model.members else None,
                    initiator=lane.people[0] if back_end else None,
                )
            )

        @rule(at=st.integers(0, LANES - 1), people=SOME, leaver=LEAVERS, back_end=st.booleans())
        def remove(self, at: int, people: list[int], leaver: str, back_end: bool) -> None:
            lane = self.lanes[at]
            lane.do(
                lane.remove(
                    [lane.people[i] for i in people],
                    request=draw_id(),
                    by="backend" if back_end else "operator",
                    leaver=leaver,
                    initiator=lane.people[1] if back_end else None,
                )
            )

        @rule(at=st.integers(0, LANES - 1), who=WHO)
        def leave(self, at: int, who: int) -> None:
            lane = self.lanes[at]
            lane.do(lane.leave(lane.people[who], request=draw_id()))

        @rule(at=st.integers(0, LANES - 1))
        def everybody_goes_and_the_owner_last(self, at: int) -> None:
            lane = self.lanes[at]
            for who in sorted(lane.model.members, key=lambda member: member == lane.model.owner):
                lane.do(lane.leave(who, request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), who=WHO, up_to=SEQS)
        def clear(self, at: int, who: int, up_to: int) -> None:
            lane = self.lanes[at]
            lane.do(lane.clear(lane.people[who], up_to, request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), who=WHO, seq=st.integers(1, 30))
        def read(self, at: int, who: int, seq: int) -> None:
            lane = self.lanes[at]
            lane.do(lane.read(lane.people[who], seq))

        @rule(at=st.integers(0, LANES - 1), who=st.none() | WHO, up_to=SEQS)
        def clear_group(self, at: int, who: int | None, up_to: int) -> None:
            lane = self.lanes[at]
            by = None if who is None else lane.people[who]
            lane.do(lane.clear_group(by, up_to, request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), who=st.none() | WHO, to=WHO)
        def transfer(self, at: int, who: int | None, to: int) -> None:
            lane = self.lanes[at]
            by = None if who is None else lane.people[who]
            lane.do(lane.transfer(by, lane.people[to], request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), to=WHO)
        def transfer_by_the_owner(self, at: int, to: int) -> None:
            lane = self.lanes[at]
            lane.do(lane.transfer(lane.model.owner, lane.people[to], request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), chosen=SETTINGS)
        def set(self, at: int, chosen: dict[str, Any]) -> None:
            lane = self.lanes[at]
            lane.do(lane.set(chosen, request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), repeats=st.integers(0, 3))
        def freeze_and_thaw(self, at: int, repeats: int) -> None:
            """Frozen for one send and perhaps for what follows."""
            lane = self.lanes[at]
            lane.do(lane.freeze(not lane.model.frozen, request=draw_id()))
            if repeats:
                lane.do(lane.send(lane.people[0], b"frozen?", request=draw_id()))
                lane.do(lane.freeze(False, request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), back=st.integers(1, 10))
        def retry(self, at: int, back: int) -> None:
            lane = self.lanes[at]
            lane.do(lane.past[-1 - back % len(lane)])

        @rule(at=st.integers(0, LANES - 1), who=WHO)
        def create_again(self, at: int, who: int) -> None:
            lane = self.lanes[at]
            lane.do(lane.create(settings_of(), [], by=lane.people[who], request=draw_id()))

        @rule(at=st.integers(0, LANES - 1), who=WHO, body=BODIES)
        def reuse_an_id(self, at: int, who: int, body: bytes) -> None:
            lane, request = self.lanes[at], draw_id()
            person = lane.people[who]
            lane.do(lane.send(person, body, request=request))
            lane.do(lane.send(person, body + b"!", request=request))
            lane.do(lane.clear(person, 1, request=request))
            lane.do(lane.clear(person, 2, request=request))
            lane.do(lane.leave(person, request=request))

        @rule(at=st.integers(0, LANES - 1), who=WHO)
        def look(self, at: int, who: int) -> None:
            lane = self.lanes[at]
            lane.look([lane.people[who]])

        @precondition(lambda _: tally.restarts >= 0)
        @rule(at=st.integers(0, LANES - 1), really=st.integers(0, 19))
        def restart(self, at: int, really: int) -> None:
            """The writer crashes; the model does not notice, and so it may be left out when there were enough."""
            if really == 19 and tally.restarts < RESTARTS:
                tally.restarts += 1
                self.lanes[at].do(self.lanes[at].restart())

        def teardown(self) -> None:
            for lane in self.lanes:
                lane.look(lane.people)
                lane.look_at_group()
                tally.sequences += len(lane) >= SHORTEST
                tally.operations += len(lane)
            play(self.lanes, world, loop)

    return Groups


def play(lanes: list[Lane], world: World, loop: asyncio.AbstractEventLoop) -> None:
    """Play all lanes at once on the loop that the suite's clients live on; raises the first failure."""

    async def all_lanes() -> None:
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(lane.play(world))

    try:
        asyncio.run_coroutine_threadsafe(all_lanes(), loop).result()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def run(machine: Callable[[], RuleBasedStateMachine], examples: int, steps: int, chosen: int) -> None:
    """Run a machine; without its shrinking when QIM_MODEL_SHRINK is 0."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.target]
    if os.environ.get("QIM_MODEL_SHRINK") != "0":
        phases.append(Phase.shrink)
    run_state_machine_as_test(
        seed(chosen)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=False,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def chosen_seed(request: pytest.FixtureRequest) -> int:
    """The seed of --hypothesis-seed, else a new one."""
    given = request.config.getoption("--hypothesis-seed")
    return random.SystemRandom().randrange(2**32) if given is None else int(given)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_groups_behave_as_the_model_says(
    world: World, chosen_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    machine = machines(world, asyncio.get_running_loop(), tally)
    try:
        while tally.sequences < SEQUENCES:
            left = SEQUENCES - tally.sequences
            await asyncio.to_thread(run, machine, -(-left // LANES), STEPS, chosen_seed + tally.sequences)
    finally:
        with capsys.disabled():
            sys.stdout.write(
                f"\nmodel: {tally.sequences} sequences of at least {SHORTEST} operations, {tally.operations} operations, "
                f"{tally.restarts} restarts of the writer; --hypothesis-seed={chosen_seed}\n"
            )
