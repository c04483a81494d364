"""One conversation of a ledger (tests/support/ledger.py): what may be done in it next, and what was."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.model.lanes import Lane
from tests.model.moves import Move, draw_id, settings_of
from tests.model.reference import Conversation, Refused

from qim_common.ids import UserId

POLICIES: Final = [
    settings_of(newcomer=newcomer, last_n=back, rejoin=rejoin, leaver=leaver, broadcast_max=broadcast)
    for newcomer, back, rejoin, leaver, broadcast in (
        ("SINCE_JOIN", 0, "LATEST_STAY", "UNTIL_LEFT", 500),
        ("LAST_N", 3, "ALL_STAYS", "UNTIL_LEFT", 500),
        ("ALL", 0, "LATEST_STAY", "NONE", 500),
        ("ALL", 0, "ALL_STAYS", "UNTIL_LEFT", 2),
    )
]


@dataclass
class Account:
    """One conversation, what was done in it, and how far its people's phones have acknowledged.

    Attributes:
        lasting: the moves that changed something; a repeat of them must get the first answer for ever.
        first: the first answer under each id.
        acknowledged: by person the newest seq that the phone acknowledged.
    """

    lane: Lane
    dice: random.Random
    lasting: list[Move] = field(default_factory=list)
    first: dict[bytes, Any] = field(default_factory=dict)
    acknowledged: dict[UserId, int] = field(default_factory=dict)

    @property
    def model(self) -> Conversation:
        """What was acknowledged, folded."""
        return self.lane.model

    def draw(self, *, marking: bool = True) -> Move:
        """The next call, at random. Some of them will be refused, and the model says so."""
        lane, dice = self.lane, self.dice
        who, request, model = dice.choice(lane.people), draw_id(), self.lane.model
        if model.frozen:
            return lane.freeze(False, request=request)
        kind = dice.random()
        if kind < 0.5:
            size = 5_000 if kind < 0.01 else dice.randrange(80)  # the dispatch log has no bodies above 4 KiB
            return lane.send(who, dice.randbytes(size), request=request)
        if kind < 0.6 and marking:
            return lane.read(who, dice.randrange(1, model.head + 2))
        if kind < 0.65:
            return lane.clear(who, dice.randrange(model.head + 2), request=request)
        if kind < 0.72 and self.lasting:
            return dice.choice(self.lasting[-30:])
        if model.pair:
            return lane.send(who, b"to the peer", request=request)
        some = dice.sample(lane.people, dice.randrange(1, 3))
        if kind < 0.82:
            return lane.add(some, request=request, owner=some[-1] if not model.members else None)
        if kind < 0.87:
            return lane.remove(some, request=request, leaver=dice.choice(["", "", "NONE"]), initiator=None)
        if kind < 0.92:
            return lane.leave(who, request=request)
        if kind < 0.95:
            return lane.set(dice.choice(POLICIES), request=request)
        if kind < 0.97:
            return lane.transfer(model.owner if dice.random() < 0.7 else None, who, request=request)
        if kind < 0.985:
            return lane.send(who, b"at a version", request=request, expected=max(model.version - dice.randrange(2), 1))
        if kind < 0.99:
            return lane.clear_group(None, dice.randrange(1, model.head // 4 + 2), request=request)
        return lane.freeze(True, request=request)

    def saying(self, body: bytes) -> Move:
        """A message of somebody who may send."""
        return self.lane.send(min(self.model.members), body, request=draw_id())

    def leaving(self) -> Move:
        """Somebody leaves who may; where nobody may, nothing happens."""
        ordinary = sorted(self.model.members - {self.model.owner})
        return self.lane.leave(ordinary[0] if ordinary else self.lane.people[0], request=draw_id())

    def fold_again(self, head: int, revision: int) -> None:
        """The operator accepted a loss: what is left is what had been done up to this head and revision, and one
        revision more, which raised the generation.

        Raises AssertionError where no moment of the account had them.
        """
        left = Conversation(pair=self.model.pair)
        left.read = dict(self.model.read)
        kept: list[Move] = []
        for move in self.lane.past:
            if (left.head, left.revision) == (head, revision):
                break
            before = (left.head, left.revision)
            try:
                if move.request is not None:
                    move.foretell(left)
            except Refused:
                continue
            if before != (left.head, left.revision):
                kept.append(move)
        assert (left.head, left.revision) == (head, revision), "a state that never was"
        left.revision += 1
        self.lane.model, self.lasting, self.lane.past = left, kept, list(kept)
        left.read = {who: min(seq, left.head) for who, seq in left.read.items()}
        self.first = {move.request: self.first[move.request] for move in kept if move.request is not None}
        self.acknowledged = {who: min(seq, left.head) for who, seq in self.acknowledged.items()}
