"""The chapter "Joining and leaving a group": what it says, and the play that puts its hiking group on the stage.

`Chapter` holds the numbers that the chapter and design.md promise; they are compared with what the services answer and
go nowhere else. `SCRIPT` says what is done: how many people, how many messages between the changes, who writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from qim_client import GroupSettings, NewcomerPolicy, RejoinHistory

ANA: Final = "Ana"
BEN: Final = "Ben"
CARA: Final = "Cara"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The chapter's numbers. Seqs unless it says otherwise.

    Attributes:
        members_at_last, members_at_first: people; 500 in the chapter, so 499 before Ben left and Cara and Ben came.
        ben_could_read: messages from while he was in, the first time.
        hidden_from_ben, hidden_from_cara: messages that the plain table shows, and that should be hidden.
        newcomers_see: messages before the join, where the product has that setting.
    """

    members_at_first: int = 499
    members_at_last: int = 500
    ben_leaves: int = 4_816
    cara_joins: int = 4_837
    ben_returns: int = 4_880
    head: int = 4_900
    ben_could_read: int = 4_815
    hidden_from_ben: int = 64
    hidden_from_cara: int = 4_836
    newcomers_see: int = 100
    first_for_cara_with_setting: int = 4_737


CHAPTER: Final = Chapter()


@dataclass(frozen=True, slots=True)
class Policy:
    """One of the products that the chapter discusses: what it is called, and the group's settings for it."""

    title: str
    rule: str
    settings: GroupSettings


SINCE_JOIN: Final = Policy(
    "Since the join",
    "You read what came while you were in, this time. The default.",
    GroupSettings(newcomer=NewcomerPolicy.SINCE_JOIN, rejoin=RejoinHistory.LATEST_STAY),
)
HUNDRED_BEFORE: Final = Policy(
    "100 before the join",
    "Who comes, or comes back, can scroll back 100 messages further.",
    GroupSettings(newcomer=NewcomerPolicy.LAST_N, last_n=100, rejoin=RejoinHistory.LATEST_STAY),
)
ALL_STAYS: Final = Policy(
    "All stays",
    "A row per stay, and all of them count. The chapter's own answer.",
    GroupSettings(newcomer=NewcomerPolicy.SINCE_JOIN, rejoin=RejoinHistory.ALL_STAYS),
)
POLICIES: Final = (SINCE_JOIN, HUNDRED_BEFORE, ALL_STAYS)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages between two changes: the first one by `opener`, the others by everybody in `speakers` in turn."""

    messages: int
    opener: str
    speakers: tuple[str, ...]

    def senders(self) -> Iterator[str]:
        """Who writes each message."""
        yield self.opener
        yield from islice(cycle(self.speakers), self.messages - 1)

    def unread_by(self, person: str) -> int:
        """How many of the messages are somebody else's than `person`'s."""
        return sum(sender != person for sender in self.senders())


@dataclass(frozen=True, slots=True)
class Script:
    """The play: `hikers` beside Ana and Ben, and the messages before, between and after the three changes."""

    hikers: tuple[str, ...]
    together: Stretch
    ben_gone: Stretch
    cara_there: Stretch
    ben_back: Stretch

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """All messages of one group, in order."""
        return (self.together, self.ben_gone, self.cara_there, self.ben_back)


def _script() -> Script:
    hikers = tuple(f"hiker {number}" for number in range(1, 498))
    return Script(
        hikers,
        together=Stretch(4_815, ANA, (*hikers, BEN, ANA)),
        ben_gone=Stretch(20, ANA, hikers),
        cara_there=Stretch(42, CARA, hikers),
        ben_back=Stretch(20, BEN, hikers),
    )


SCRIPT: Final = _script()
