"""What the services said: one person's view of one group at one moment, and how one group's play went. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qim_client import MemberState, Stay
from qim_devkit.demo.chapter import Policy
from qim_devkit.demo.seqs import NO_SEQS, Seqs


@dataclass(frozen=True, slots=True)
class Delivered:
    """A mailbox's seqs of one conversation, and those of them that come without their bodies now."""

    seqs: Seqs = NO_SEQS
    withheld: Seqs = NO_SEQS


@dataclass(frozen=True, slots=True)
class Sight:
    """One person's view of one group.

    Attributes:
        label: of the row, such as "Ben, away".
        head: the group's newest seq at that moment (GetGroup).
        visible, earliest, stays, state: from GetVisibleRange.
        history: what paging through PullHistory returned.
        unread: of the entry in the conversation list (ListConversations).
        delivered: from PullMailbox, on a device that had received nothing before.
    """

    name: str
    label: str
    owner: bool
    head: int
    visible: Seqs
    earliest: int
    state: MemberState
    stays: tuple[Stay, ...]
    history: Seqs
    unread: int
    delivered: Delivered

    @property
    def newest(self) -> Stay:
        """The newest stay."""
        return self.stays[-1]

    @property
    def present(self) -> bool:
        """Whether the person is a member at that moment."""
        return self.state is MemberState.MEMBER

    @property
    def away(self) -> Seqs:
        """The seqs between stays, and after the last one if it has ended: while the person was not in the group."""
        begins = (*(stay.joined_at for stay in self.stays[1:]), self.head)
        gaps = (Seqs.between(s.left_at, end) for s, end in zip(self.stays, begins, strict=True) if s.left_at)
        return Seqs.of(item for gap in gaps for item in gap.ranges)


@dataclass(frozen=True, slots=True)
class Played:
    """How the play went in one group.

    Attributes:
        members: at first, and after Ben left, Cara came, and Ben came back (CreateGroup and GetGroup).
        left, joined, returned: the seqs that the three changes took.
        refusal: the reason with which Ben's message was refused after he had left; "" if it was taken.
        after_refusal: the seq of the next message.
    """

    policy: Policy
    members: tuple[int, int, int, int]
    left: int
    joined: int
    returned: int
    head: int
    refusal: str
    after_refusal: int
    ana: Sight
    ben_away: Sight
    ben: Sight
    cara: Sight

    @property
    def sights(self) -> tuple[Sight, ...]:
        """The rows of the picture, from the top."""
        return (self.ana, self.ben_away, self.ben, self.cara)

    @property
    def events(self) -> Mapping[int, tuple[str, str]]:
        """What happened at which seq, in words and in short."""
        return {
            self.left: ("Ben leaves", "-Ben"),
            self.joined: ("Cara joins", "+Cara"),
            self.returned: ("Ben returns", "+Ben"),
        }


@dataclass(frozen=True, slots=True)
class TableSight:
    """What a member table that only says "in or out" returns to one person, and what it should return."""

    sight: Sight
    returned: Seqs

    @property
    def wrong(self) -> Seqs:
        """Returned, but should be hidden."""
        return self.returned - self.sight.visible

    @property
    def missing(self) -> Seqs:
        """Not returned, but should be."""
        return self.sight.visible - self.returned


def in_or_out(sight: Sight) -> TableSight:
    """The chapter's section 1: a history read returns everything to members and nothing to anyone else.

    No part of qim: it is worked out here from whether the person is in the group and where the group stands.
    """
    return TableSight(sight, Seqs.between(1, sight.head) if sight.present else Seqs())
