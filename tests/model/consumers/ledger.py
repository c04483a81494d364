"""What the stores executed, watched call by call, and what they hold, compared with what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.model.consumers.written import Writer
from tests.support.dispatch import TENANT

from qim_common.ids import ConversationId, UserId
from qim_common.keys import BucketKeys, PersonKeys, checkpoints, progress, projection_epoch, ucs_pending
from qim_common.positions import Position
from qim_common.redis import Argument, Instance
from qim_common.topology import Topology
from qim_session.domain.cursors import Cursor
from qim_session.domain.position import Checkpoint
from qim_session.storage.projection import CheckpointStep, Projected


@dataclass(frozen=True)
class Held:
    """What one session instance holds, all of it as of one moment."""

    checkpoints: dict[int, Checkpoint]
    progress: dict[int, int]
    epoch: int
    pending: int
    people: dict[UserId, HeldOfPerson]


@dataclass(frozen=True)
class HeldOfPerson:
    """What is stored of a person; `sets` is the authority, raw rows by conversation."""

    listed: dict[ConversationId, int]
    big: frozenset[ConversationId]
    mark: int | None
    sets: dict[ConversationId, bytes]
    read: dict[ConversationId, Cursor]


@dataclass
class Ledger:
    """Notes every breach in `faults`. `pushed`: how many conversations the script put on the list of new ones."""

    writer: Writer
    instances: Sequence[Instance]
    topology: Topology
    people: Sequence[UserId]
    faults: list[str] = field(default_factory=list)
    pushed: int = 0
    gaps: int = 0
    _moved_to: dict[tuple[int, int], Checkpoint] = field(default_factory=dict)
    _registered: set[tuple[UserId, ConversationId]] = field(default_factory=set)
    _rows: dict[tuple[UserId, ConversationId], bytes] = field(default_factory=dict)
    _read: dict[tuple[UserId, ConversationId], Cursor] = field(default_factory=dict)
    _listed: dict[tuple[UserId, ConversationId], int] = field(default_factory=dict)

    def observe(self, name: str, place: int, args: tuple[Any, ...], result: Any) -> None:
        """One executed call; the calls of one instance come in the order of their execution."""
        if name == "project" and isinstance(result, Projected):
            self.pushed += result.new
            step: CheckpointStep | None = args[1]
            if step is not None:
                self._move(place, step)
        elif name == "settle":
            for settled in args[0]:
                if settled.partition not in result and self._moved_to.get((place, settled.partition)) != (
                    settled.expected
                ):
                    self.faults.append(f"progress of partition {settled.partition} stored by one who lost it")
        elif name in ("register", "memlog.register"):
            self._registered.update((entry.user, entry.conversation) for entry in args[0])
        elif name == "memlog.trim":
            for partition, through in args[0].items():
                self._trimmed(partition, through)
        elif name == "epoch.raise":
            self.gaps += 1

    def wiped(self, place: int, *, lists: bool) -> None:
        """The checkpoints of one instance are gone, and its lists as well."""
        if lists:
            buckets = self.topology.buckets_of(place)
            self._listed = {one: ms for one, ms in self._listed.items() if self._bucket(one[0]) not in buckets}
        self._moved_to = {where: at for where, at in self._moved_to.items() if where[0] != place}

    async def look(self) -> list[Held]:
        """Read everything, and compare what must hold at any moment."""
        held = [await self._held(place) for place in range(len(self.instances))]
        for place, one in enumerate(held):
            self._promised(place, one)
            for user, person in one.people.items():
                self._only_grows(user, person)
        return held

    async def left(self, held: Sequence[Held]) -> list[str]:
        """What is still to be done: entries that no checkpoint has passed, registrations that wait."""
        found = [f"{one.pending} registrations" for one in held if one.pending]
        for partition in range(self.topology.buckets):
            instance = self.instances[self.topology.instance_of(partition)]
            keys = BucketKeys(partition)
            newest, waiting = await self._newest(instance, keys.dispatch), await instance.call("XLEN", keys.memlog)
            if waiting:
                found.append(f"{waiting} entries of membership log {partition}")
            for place, one in enumerate(held):
                at = one.checkpoints.get(partition)
                if newest is not None and (at is None or at.position != newest):
                    found.append(f"partition {partition} in instance {place}: {at} of {newest}")
        return found

    def compare(self, held: Sequence[Held]) -> None:
        """Lists and authority against the fold, when nothing is left to be done and every mark is new."""
        for one in held:
            for user, person in one.people.items():
                if person.mark != one.epoch:
                    self.faults.append(f"{user.hex()} has the mark {person.mark} in epoch {one.epoch}")
                expected = self.writer.newest(user)
                self._same(f"the authority of {user.hex()}", set(person.sets), set(expected))
                silent = {c for c in expected if not any(s.dispatched for s in self.writer.groups[c].delivered(user))}
                places = {c: ms for c, ms in person.listed.items() if c not in person.big | silent}
                foretold = {c: ms for c, ms in expected.items() if c not in person.big | silent}
                self._same(f"the list of {user.hex()}", places, foretold)
                self._same(f"the big ones of {user.hex()}", person.big - set(expected), frozenset())

    def everybody(self) -> int:
        """How many conversations all people have together, as far as the dispatch log tells of them."""
        return sum(
            user in group.told or any(commit.dispatched for commit in group.delivered(user))
            for group in self.writer.groups.values()
            for user in self.people
        )

    def _move(self, place: int, step: CheckpointStep) -> None:
        at = self._moved_to.get((place, step.partition))
        if at != step.expected:
            self.faults.append(f"partition {step.partition}: one who lost it wrote at {step.expected}, it is at {at}")
        if step.to is not None:
            if at is not None and step.to.position <= at.position:
                self.faults.append(f"partition {step.partition}: the checkpoint went from {at} back to {step.to}")
            self._moved_to[place, step.partition] = step.to

    def _trimmed(self, partition: int, through: Position) -> None:
        for entry_id, conversation, people in self.writer.memlog.get(partition, ()):
            if Position.parse(entry_id) <= through and any(
                (user, conversation) not in self._registered for user in people
            ):
                self.faults.append(f"entry {entry_id} of membership log {partition} is gone and nobody registered it")

    def _promised(self, place: int, held: Held) -> None:
        """Whatever was committed before a partition's progress is in the lists of those who were rebuilt."""
        for group in self.writer.groups.values():
            for commit in group.commits:
                if not commit.dispatched or commit.time_ms >= held.progress.get(commit.partition, 0):
                    continue
                for user in commit.reached & held.people.keys():
                    person = held.people[user]
                    there = person.listed.get(commit.conversation, -1)
                    if person.mark == held.epoch and commit.conversation not in person.big and there < commit.time_ms:
                        self.faults.append(
                            f"instance {place} is at {held.progress[commit.partition]} with partition "
                            f"{commit.partition}, but {user.hex()} lacks seq {commit.seq} of "
                            f"{commit.conversation.hex()} from {commit.time_ms}, listed is {there}"
                        )

    def _only_grows(self, user: UserId, person: HeldOfPerson) -> None:
        for (whose, conversation), time_ms in self._listed.items():
            if whose == user and person.listed.get(conversation, 0) < time_ms:
                self.faults.append(f"{conversation.hex()} moved down in the list of {user.hex()}, below {time_ms}")
        self._listed.update({(user, conversation): time_ms for conversation, time_ms in person.listed.items()})
        for (whose, conversation), row in self._rows.items():
            if whose == user and person.sets.get(conversation) != row:
                self.faults.append(f"what is registered of {user.hex()} for {conversation.hex()} has changed")
        self._rows.update({(user, conversation): row for conversation, row in person.sets.items()})
        for (whose, conversation), cursor in self._read.items():
            if whose == user and person.read[conversation] < cursor:
                self.faults.append(f"a read cursor of {user.hex()} moved back")
        self._read.update({(user, conversation): cursor for conversation, cursor in person.read.items()})

    def _same(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self.faults.append(f"{what}: {found} instead of {expected}")

    async def _held(self, place: int) -> Held:
        instance = self.instances[place]
        mine = [user for user in self.people if self._bucket(user) in self.topology.buckets_of(place)]
        commands: list[Sequence[Argument]] = [
            ("MULTI",),
            ("HGETALL", checkpoints(place)),
            ("HGETALL", progress(place)),
            ("GET", projection_epoch(place)),
            ("LLEN", ucs_pending(place)),
        ]
        for user in mine:
            keys = PersonKeys(TENANT, user, self._bucket(user))
            commands += [
                ("ZRANGE", keys.convs, 0, -1, "WITHSCORES"),
                ("SMEMBERS", keys.bigconvs),
                ("GET", keys.epoch),
                ("HGETALL", keys.authority),
                ("HGETALL", keys.read_cursors),
            ]
        commands.append(("EXEC",))
        stored, settled, epoch, pending, *rows = (await instance.pipeline(commands))[-1]
        people = {user: _of_person(rows[5 * n : 5 * n + 5]) for n, user in enumerate(mine)}
        return Held(
            {int(field): Checkpoint.parse(value) for field, value in _pairs(stored)},
            {int(field): int(value) for field, value in _pairs(settled)},
            int(epoch or 0),
            pending,
            people,
        )

    def _bucket(self, user: UserId) -> int:
        return self.topology.person_bucket(TENANT, user)

    async def _newest(self, instance: Instance, key: str) -> Position | None:
        if not await instance.call("EXISTS", key):
            return None
        facts: Mapping[bytes, Any] = dict(_pairs(await instance.call("XINFO", "STREAM", key)))
        return Position.parse(facts[b"last-generated-id"])


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _of_person(rows: Sequence[Any]) -> HeldOfPerson:
    listed, big, mark, sets, read = rows
    return HeldOfPerson(
        {ConversationId(member): int(float(score)) for member, score in _pairs(listed)},
        frozenset(map(ConversationId, big)),
        None if mark is None else int(mark),
        {ConversationId(field): row for field, row in _pairs(sets)},
        {ConversationId(field): Cursor.unpack(value) for field, value in _pairs(read)},
    )
