"""A conversation folded from the rows of its group log: what its keys in Redis held (storage.md, "Backends"). Pure.

The committing scripts are the one place where a change is decided; a row says how it turned out. Folding the rows in
the order of their revisions gives the same stays, ordinals and counters again. Rows of a line that was lost may still
stand in the log above where it was recovered; they are told by their generation and their commit time, neither of which
ever falls along a line, and a recovered line goes on later than whatever was lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from qim_common.ids import MembershipOp, UserId
from qim_common.records import Audience, StateChange
from qim_writer.domain.group_rows import GroupRow, RowFlags, RowKind
from qim_writer.domain.policy import Policy
from qim_writer.domain.stays import KEEPS_EARLIER, PRESENT, REMOVED, REVOKED
from qim_writer.domain.stored_values import CHANGE, CONTROL, LOGGED, RAISED

_STAY: Final = struct.Struct(">B6s6s6s6s6s")  # a stay as qim_writer.domain.stays reads it
_STAY_VERSION: Final = b"\x01"


def u48(number: int) -> bytes:
    """Six bytes, big-endian."""
    return number.to_bytes(6, "big")


@dataclass(slots=True)
class RefoldedPerson:
    """Everything stored of one person: `stays` packed as in `grpstays`, the newest last; `ordinal` from 1."""

    ordinal: int
    stays: list[bytes]
    present: bool = True
    clear: int = 0

    @property
    def current(self) -> bytes:
        """The value of `grpcur`."""
        newest = self.stays[-1]
        return _STAY_VERSION + newest[:1] + self.ordinal.to_bytes(3, "big") + newest[1:] + u48(self.clear)

    @property
    def older(self) -> bytes:
        """The value of `grpstays`; empty where there is none."""
        return b"".join(self.stays[:-1])


@dataclass(frozen=True, slots=True)
class RowEffects:
    """What one row adds to the conversation's logs; None where it adds nothing there.

    Attributes:
        change: version and value of the entry of `grpchg`.
        logged: revision and value of the entry of `grplog`.
        control: seq and member of `msgctl`.
        entry: field and value of the idempotency entry.
        time_ms: the commit time.
    """

    change: tuple[int, bytes] | None
    logged: tuple[int, bytes] | None
    control: tuple[int, bytes] | None
    entry: tuple[bytes, bytes] | None
    time_ms: int


@dataclass(slots=True)
class Refold:
    """A conversation as its rows so far make it; the fields are those of `grpmeta`.

    Attributes:
        concerned, before: the newest CONCERNED event, and the newest seq before it that is none (`cseq`, `prevb`).
        people: by user, everybody who ever was in it, in the order of their ordinals.
        controls: the seqs of membership events.
        raised: (generation, base head) of each generation that was raised, ascending.
        time_ms, floor_ms: the commit times of the newest row, and of the newest one that moved the floor.
    """

    version: int = 0
    revision: int = 0
    generation: int = 0
    policy: bytes = b""
    count: int = 0
    floor: int = 0
    big: bool = False
    created_ms: int = 0
    concerned: int = 0
    before: int = 0
    people: dict[UserId, RefoldedPerson] = field(default_factory=dict)
    controls: set[int] = field(default_factory=set)
    raised: list[tuple[int, int]] = field(default_factory=list)
    time_ms: int = 0
    floor_ms: int = 0

    def takes(self, row: GroupRow, head: int) -> bool:
        """Whether a row goes on with this line, which is archived up to `head`; after one that does not, none does."""
        return row.revision == self.revision + 1 and self.may_precede(row) and row.head <= head

    def may_precede(self, row: GroupRow) -> bool:
        """Whether a row may be a later one of this line: one of a line that was lost may not."""
        return row.generation >= self.generation and row.time_ms >= self.time_ms

    def take(self, row: GroupRow) -> RowEffects:
        """Fold one row. Raises ValueError for one that cannot be the next of any line."""
        if row.revision != self.revision + 1:
            raise ValueError(f"revision {row.revision} does not follow {self.revision}")
        change = logged = control = None
        if row.kind is RowKind.MEMBERSHIP:
            change, control = self._change(row)
        else:
            logged = self._state(row)
        self.version, self.revision, self.generation = row.version, row.revision, row.generation
        self.policy, self.count, self.floor = row.policy, row.count, row.floor
        self.big = RowFlags.BIG in row.flags
        self.time_ms = row.time_ms
        entry = None
        if row.request_field and row.operation is not StateChange.GENERATION:
            entry = (row.request_field, row.request_digest + row.answer)
        return RowEffects(change, logged, control, entry, row.time_ms)

    def _change(self, row: GroupRow) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
        if row.audience is None or row.version != self.version + 1:
            raise ValueError(f"revision {row.revision} is no membership change after version {self.version}")
        if row.operation is MembershipOp.JOIN:
            self._open_stays(row)
        else:
            self._close_stays(row)
        head = row.head - 1
        prev = self.before if self.concerned == head else head
        if row.audience is Audience.CONCERNED:
            self.concerned, self.before = row.head, prev
        self.controls.add(row.head)
        seq, time = u48(row.head), u48(row.time_ms)
        change = CHANGE.pack(row.operation, seq, time, row.actor) + b"".join(row.people)
        control = CONTROL.pack(seq, u48(row.version), row.audience, time)
        return (row.version, change), (row.head, control)

    def _open_stays(self, row: GroupRow) -> None:
        flags = PRESENT + (KEEPS_EARLIER if RowFlags.KEEPS_EARLIER in row.flags else 0)
        stay = _STAY.pack(flags, u48(row.head - 1), u48(row.history_from), u48(0), u48(row.version), u48(0))
        for user in row.people:
            person = self.people.get(user)
            if person is None:
                self.people[user] = RefoldedPerson(len(self.people) + 1, [stay])
            else:
                person.stays.append(stay)
                person.present = True

    def _close_stays(self, row: GroupRow) -> None:
        ended = (REVOKED if RowFlags.REVOKED in row.flags else 0) - PRESENT
        if row.operation is MembershipOp.REMOVE:
            ended += REMOVED
        for user in row.people:
            person = self._person(user, row)
            flags, joined, history_from, _, began, _ = _STAY.unpack(person.stays[-1])
            person.stays[-1] = _STAY.pack(flags + ended, joined, history_from, u48(row.head), began, u48(row.version))
            person.present = False

    def _state(self, row: GroupRow) -> tuple[int, bytes] | None:
        payload = row.policy
        if row.operation is StateChange.CREATED:
            self.created_ms = row.time_ms
            stay = _STAY.pack(PRESENT, u48(0), u48(0), u48(0), u48(1), u48(0))
            for ordinal, user in enumerate(row.people, 1):
                self.people[user] = RefoldedPerson(ordinal, [stay])
        elif row.operation is StateChange.OWN_CLEAR:
            self._person(row.people[0], row).clear = row.clear
        elif row.operation is StateChange.GENERATION:
            self.raised.append((row.generation, row.head))
        elif row.operation is StateChange.FLOOR:
            payload = u48(row.floor)
            self.floor_ms = row.time_ms
        # Own clears are their person's business, and a direct conversation is created by nobody in particular.
        if not row.maker or row.operation in (StateChange.OWN_CLEAR, StateChange.GENERATION):
            return None
        maker = row.maker.encode()
        packed = LOGGED.pack(row.operation, u48(row.time_ms), u48(row.version), u48(row.head), len(maker))
        return row.revision, packed + maker + payload

    def _person(self, user: UserId, row: GroupRow) -> RefoldedPerson:
        person = self.people.get(user)
        if person is None:
            raise ValueError(f"revision {row.revision} is of somebody who never was in it")
        return person

    def newest_broadcast(self, head: int) -> int:
        """The newest seq that is ordinary or BROADCAST, where `head` is the newest of all; 0: none."""
        return self.before if self.concerned == head else head

    @property
    def retained(self) -> bool:
        """Whether the group has a retention by age."""
        return any(self.policy) and Policy.unpack(self.policy).settings.retention_days > 0

    @property
    def generations(self) -> bytes:
        """The raised generations as `grpmeta` holds them."""
        return b"".join(RAISED.pack(generation, u48(base)) for generation, base in self.raised)

    def members(self) -> Iterator[UserId]:
        """Those who are in it now."""
        return (user for user, person in self.people.items() if person.present)
