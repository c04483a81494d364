"""One sequence of operations on one conversation: predicted by the model at once, carried out on the service later.

The model foretells each answer when a move is drawn. The lane keeps move and prediction in a queue, so that several
lanes can be played at the same time, each in its own order; a look at everything that somebody is told is queued in the
same way, with what the model says at that moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.model.moves import Move, Moves, Told, wire_settings
from tests.model.reader import Reader, outcome
from tests.model.reference import Conversation, Refused
from tests.model.sights import Sight, expected_sight, told_entry
from tests.model.world import TENANT, World
from tests.support.subscribers import Subscriber

from qim_client import Attachment, actor
from qim_common.ids import ConversationId, DeviceId, UserId, direct_conversation_id


@dataclass
class Lane(Moves):
    """A conversation of its own people. `past` are the moves so far, for repeats."""

    past: list[Move] = field(default_factory=list)
    pending: list[tuple[Move, Told | str] | list[Sight] | Told] = field(default_factory=list)
    _first: dict[bytes, Any] = field(default_factory=dict)
    _turns: int = 0
    _devices: dict[UserId, tuple[Attachment | None, Subscriber]] = field(default_factory=dict)

    @classmethod
    def of_group(cls, people: list[UserId]) -> Lane:
        """A group that does not exist yet; the first of `people` will own it."""
        return cls(people, Conversation(), ConversationId(b"\x02" + uuid.uuid4().bytes[1:]))

    @classmethod
    def of_two(cls, *, notes: bool) -> Lane:
        """A direct conversation that nobody has written in, and a stranger; with `notes` one person's with itself."""
        one, other, stranger = new_people(3)
        pair = (one,) if notes else (one, other)
        group = direct_conversation_id(TENANT, pair[0], pair[-1])
        return cls([*pair, stranger], Conversation(pair=pair), group)

    def do(self, move: Move) -> Told | str:
        """Foretell a move and put it into the queue; the answer or the reason of the refusal."""
        try:
            foretold: Told | str = move.foretell(self.model)
        except Refused as refused:
            foretold = str(refused)
        self.past.append(move)
        self.pending.append((move, foretold))
        return foretold

    def look(self, people: Iterable[UserId]) -> None:
        """Compare everything that these people are told at this point of the sequence."""
        self.pending.append([expected_sight(self.model, who) for who in people])

    def look_at_all(self) -> None:
        """Compare what operators and the session service are told at this point of the sequence."""
        model = self.model
        if model.pair:
            self.pending.append({"versions": [sorted(members) for members in model.versions]})
            return
        self.pending.append(
            {
                "owner": model.owner,
                "membership_version": model.version,
                "revision": model.revision,
                "member_count": len(model.members),
                "settings": wire_settings(model.settings),
                "head_seq": model.head,
                "group_floor_seq": model.floor,
                "frozen": model.frozen,
                "versions": [sorted(members) for members in model.versions],
            }
        )

    def __len__(self) -> int:
        return len(self.past)

    async def play(self, world: World) -> None:
        """Carry the queue out, in order; raises AssertionError where the service says something else.

        Meanwhile everybody has a device that is attached to a live stream from before the conversation exists.
        """
        queue, self.pending = self.pending, []
        done: list[str] = []
        try:
            await self._attach(world)
            for item in queue:
                if isinstance(item, tuple):
                    done.append(item[0].name)
                    await self._carry_out(world, *item)
                elif isinstance(item, list):
                    done.append("look")
                    for sight in item:
                        self._turns += 1
                        await Reader(world, self.group, sight, self._turns).compare()
                else:
                    await self._compare_group(world, item)
            await self._compare_devices(world)
        except Exception as error:
            error.add_note(f"group {self.group.hex()}, after {len(done)} steps: {', '.join(done)}")
            raise

    async def _attach(self, world: World) -> None:
        for who in self.people:
            if who not in self._devices:
                subscriber = Subscriber(acknowledges=True)  # two lanes may share their people
                attachment = await world.live.attach(
                    0, actor(TENANT, who, DeviceId(uuid.uuid4().bytes)), subscriber, wait=False
                )
                self._devices[who] = attachment, subscriber

    async def _compare_devices(self, world: World) -> None:
        """Every attached device has got what its person was delivered, each once, and is detached."""
        for who, (attachment, subscriber) in self._devices.items():
            expected = expected_sight(self.model, who)
            await subscriber.until(partial(self._has_got, subscriber, expected))
            assert subscriber.fault == ""
            assert self._got(subscriber) == expected.delivered, f"attached device, expected {expected}"
            for entry in subscriber.entries:
                if entry.conversation == self.group and entry.message is not None:
                    assert told_entry(entry.message) == expected.line[entry.message.seq]
            if attachment is not None:
                await world.live.detach(attachment)
        self._devices.clear()

    def _has_got(self, subscriber: Subscriber, expected: Sight) -> bool:
        return self._got(subscriber) == expected.delivered

    def _got(self, subscriber: Subscriber) -> list[int]:
        return [seq for first, last in subscriber.ranges(self.group) for seq in range(first, last + 1)]

    async def _carry_out(self, world: World, move: Move, foretold: Told | str) -> None:
        answer = await outcome(move.carry_out(world))
        if isinstance(answer, str) or isinstance(foretold, str):
            assert answer == foretold, f"{move.name} answered {answer}, not {foretold}"
            return
        told = move.tell(answer)
        expected = {name: foretold[name] for name in told}
        assert told == expected, f"{move.name} answered {told}, not {expected}"
        if move.request is not None:
            assert self._first.setdefault(move.request, answer) == answer, f"{move.name}: not the first answer"

    async def _compare_group(self, world: World, expected: Told) -> None:
        versions = expected.pop("versions")
        if expected:
            details = await world.operators["operator"].get_group(self.group)
            told = {name: getattr(details, name) for name in expected}
            assert told == expected, f"GetGroup answered {told}, not {expected}"
        for version, members in enumerate(versions, 1):
            recipients = sorted(await world.members_at(self.group, version))
            assert recipients == members, f"the members at version {version}"


def new_people(size: int) -> list[UserId]:
    """People whom nobody has met yet."""
    return [UserId(uuid.uuid4().bytes) for _ in range(size)]
