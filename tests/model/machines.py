"""The rules of the state machines: what may be asked of a group, and of a direct conversation.

Each example plays several lanes at once: conversations with people of their own, whose operations run in order. While
rules are drawn only the model is asked; the service gets everything when the example ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.model.lanes import Lane, new_people
from tests.model.moves import draw_id, settings_of
from tests.model.reader import compare_list
from tests.model.sights import expected_sight
from tests.model.world import SECONDS, World

LANES = 5
SHORTEST = 5
"""Operations of a sequence that counts."""

PEOPLE = 5
AT = st.integers(0, LANES - 1)
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
    st.sampled_from([100_000, 3, 4]),
)
LEAVERS = st.sampled_from(["", "", "UNTIL_LEFT", "NONE"])


@dataclass
class Played:
    """Where a run plays, and what it has played so far. A restart of the writer takes seconds, so they are bounded."""

    world: World
    loop: asyncio.AbstractEventLoop
    most_restarts: int
    sequences: int = 0
    operations: int = 0
    restarts: int = 0

    def play(self, lanes: list[Lane]) -> None:
        """Play all lanes at once, on the loop that the suite's clients live on; raises the first failure."""

        async def all_lanes() -> None:
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(lane.play(self.world))
            async with asyncio.TaskGroup() as group:
                for who in {person for lane in lanes for person in lane.people}:
                    sights = {lane.group: expected_sight(lane.model, who) for lane in lanes if who in lane.people}
                    group.create_task(compare_list(self.world, who, sights))

        self.sequences += sum(len(lane) >= SHORTEST for lane in lanes)
        self.operations += sum(len(lane) for lane in lanes)
        try:
            asyncio.run_coroutine_threadsafe(all_lanes(), self.loop).result(timeout=SECONDS * 10)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None


class Conversations(RuleBasedStateMachine):
    """What groups and direct conversations have in common."""

    played: ClassVar[Played]

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[Lane] = []

    def whom(self, at: int, who: int) -> tuple[Lane, Any]:
        """A lane and one of its people."""
        return self.lanes[at], self.lanes[at].people[who % len(self.lanes[at].people)]

    @rule(at=AT, who=WHO, bodies=st.lists(BODIES, min_size=1, max_size=3))
    def send(self, at: int, who: int, bodies: list[bytes]) -> None:
        lane, person = self.whom(at, who)
        for body in bodies:
            lane.do(lane.send(person, body, request=draw_id()))

    @rule(at=AT, who=WHO, behind=st.integers(0, 1))
    def send_at_a_version(self, at: int, who: int, behind: int) -> None:
        lane, person = self.whom(at, who)
        version = max(lane.model.version - behind, 1)
        lane.do(lane.send(person, b"at a version", request=draw_id(), expected=version))

    @rule(at=AT, who=WHO, up_to=SEQS)
    def clear(self, at: int, who: int, up_to: int) -> None:
        lane, person = self.whom(at, who)
        lane.do(lane.clear(person, up_to, request=draw_id()))

    @rule(at=AT, who=WHO, seq=st.integers(1, 30))
    def read(self, at: int, who: int, seq: int) -> None:
        lane, person = self.whom(at, who)
        lane.do(lane.read(person, seq))

    @rule(at=AT, back=st.integers(1, 10))
    def retry(self, at: int, back: int) -> None:
        lane = self.lanes[at]
        if lane.past:
            lane.do(lane.past[-1 - back % len(lane)])

    @rule(at=AT, who=WHO, body=BODIES)
    def reuse_an_id(self, at: int, who: int, body: bytes) -> None:
        """An id means one content only, but is another one for another class of requests."""
        request = draw_id()
        lane, person = self.whom(at, who)
        lane.do(lane.send(person, body, request=request))
        lane.do(lane.send(person, body + b"!", request=request))
        lane.do(lane.clear(person, 1, request=request))
        lane.do(lane.clear(person, 2, request=request))

    @rule(at=AT, who=WHO)
    def look(self, at: int, who: int) -> None:
        lane, person = self.whom(at, who)
        lane.look([person])

    @rule(at=AT, really=st.integers(0, 19))
    def restart(self, at: int, really: int) -> None:
        """The writer crashes; the model does not notice, so it may be left out when there were enough."""
        if really == 19 and self.played.restarts < self.played.most_restarts:
            self.played.restarts += 1
            self.lanes[at].do(self.lanes[at].restart())

    def teardown(self) -> None:
        for number, lane in enumerate(self.lanes):
            # Looks are most of an example's time, so half of a group look: two lanes share their people, and the other
            # half looks at the other one.
            lane.look(lane.people[number % 2 :: 2] if len(lane.people) > 2 else lane.people)
            lane.look_at_all()
        self.played.play(self.lanes)


class Directs(Conversations):
    """Two people, or one person's notes; group methods are refused."""

    @initialize(notes=st.lists(st.booleans(), min_size=LANES, max_size=LANES))
    def start(self, notes: list[bool]) -> None:
        self.lanes = [Lane.of_two(notes=alone) for alone in notes]

    @rule(at=AT, who=WHO)
    def call_it_a_group(self, at: int, who: int) -> None:
        lane, person = self.whom(at, who)
        lane.do(lane.not_a_group(lane.leave(person, request=draw_id())))
        lane.do(lane.not_a_group(lane.add([person], request=draw_id())))
        lane.do(lane.not_a_group(lane.clear_group(person, 0, request=draw_id())))


class Groups(Conversations):
    """Everything that a group knows."""

    @initialize(
        starts=st.lists(
            st.tuples(SETTINGS, st.lists(st.integers(1, PEOPLE - 1), max_size=3)), min_size=LANES, max_size=LANES
        )
    )
    def start(self, starts: list[tuple[dict[str, Any], list[int]]]) -> None:
        for number, (chosen, invited) in enumerate(starts):
            # Two lanes each share their people, who so have two conversations.
            lane = Lane.of_group(self.lanes[-1].people if number % 2 else new_people(PEOPLE))
            people = [lane.people[i] for i in invited]
            lane.do(lane.create({**chosen, "limit": 100_000}, people, by=lane.people[0], request=draw_id()))
            self.lanes.append(lane)

    @rule(at=AT, people=SOME, owned=st.booleans(), back_end=st.booleans())
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

    @rule(at=AT, people=SOME, leaver=LEAVERS, back_end=st.booleans())
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

    @rule(at=AT, who=WHO)
    def leave(self, at: int, who: int) -> None:
        lane, person = self.whom(at, who)
        lane.do(lane.leave(person, request=draw_id()))

    @rule(at=AT)
    def everybody_goes_and_the_owner_last(self, at: int) -> None:
        lane = self.lanes[at]
        for who in sorted(lane.model.members, key=lambda member: member == lane.model.owner):
            lane.do(lane.leave(who, request=draw_id()))

    @rule(at=AT, who=st.none() | WHO, up_to=SEQS)
    def clear_group(self, at: int, who: int | None, up_to: int) -> None:
        lane = self.lanes[at]
        by = None if who is None else lane.people[who]
        lane.do(lane.clear_group(by, up_to, request=draw_id()))

    @rule(at=AT, who=st.none() | WHO, to=WHO)
    def transfer(self, at: int, who: int | None, to: int) -> None:
        lane = self.lanes[at]
        by = None if who is None else lane.people[who]
        lane.do(lane.transfer(by, lane.people[to], request=draw_id()))

    @rule(at=AT, to=WHO)
    def transfer_by_the_owner(self, at: int, to: int) -> None:
        lane = self.lanes[at]
        lane.do(lane.transfer(lane.model.owner, lane.people[to], request=draw_id()))

    @rule(at=AT, chosen=SETTINGS)
    def set(self, at: int, chosen: dict[str, Any]) -> None:
        lane = self.lanes[at]
        lane.do(lane.set(chosen, request=draw_id()))

    @rule(at=AT, repeats=st.integers(0, 3))
    def freeze_and_thaw(self, at: int, repeats: int) -> None:
        """Frozen for one send and perhaps for what follows."""
        lane = self.lanes[at]
        lane.do(lane.freeze(not lane.model.frozen, request=draw_id()))
        if repeats:
            lane.do(lane.send(lane.people[0], b"frozen?", request=draw_id()))
            lane.do(lane.freeze(False, request=draw_id()))

    @rule(at=AT, who=WHO)
    def create_again(self, at: int, who: int) -> None:
        lane, person = self.whom(at, who)
        lane.do(lane.create(settings_of(), [], by=person, request=draw_id()))

    @rule(at=AT, who=WHO)
    def reuse_the_id_of_a_clear(self, at: int, who: int) -> None:
        request = draw_id()
        lane, person = self.whom(at, who)
        lane.do(lane.clear(person, 1, request=request))
        lane.do(lane.leave(person, request=request))
