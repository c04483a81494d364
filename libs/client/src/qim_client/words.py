"""How the command lines say things: membership events as sentences, settings as typed, counts, times. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Final

from qim_client.presentation import listed, shown
from qim_client.values import MembershipEvent, SeqRange, Stay
from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import InvalidArgument
from qim_common.ids import MembershipOp

NameOf = Callable[[bytes], str]
MAX_LAST_N: Final = 1_000_000_000
NEWCOMER_FORMS: Final = "since-join|last:N|all"


class Rejoin(StrEnum):
    """What somebody who comes back may read of earlier stays, as typed."""

    LATEST = "latest"
    ALL = "all"

    @property
    def history(self) -> RejoinHistory:
        """The setting."""
        return RejoinHistory.ALL_STAYS if self is Rejoin.ALL else RejoinHistory.LATEST_STAY


class Leaver(StrEnum):
    """What a leaver may read, as typed."""

    UNTIL_LEFT = "until-left"
    NONE = "none"

    @property
    def history(self) -> LeaverHistory:
        """The setting."""
        return LeaverHistory.NONE if self is Leaver.NONE else LeaverHistory.UNTIL_LEFT


def parse_newcomer(text: str, field: str) -> tuple[NewcomerPolicy, int]:
    """`since-join`, `last:N` or `all` as policy and N. Raises InvalidArgument naming `field`."""
    if text == "since-join":
        return NewcomerPolicy.SINCE_JOIN, 0
    if text == "all":
        return NewcomerPolicy.ALL, 0
    match = re.fullmatch(r"last:([0-9]{1,10})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= MAX_LAST_N:
        raise InvalidArgument(field, f"must be since-join, all, or last:N with N from 1 to {MAX_LAST_N:,}")
    return NewcomerPolicy.LAST_N, int(match[1])


def newcomer_words(policy: NewcomerPolicy, last_n: int) -> str:
    """What newcomers read, as it is typed."""
    if policy is NewcomerPolicy.LAST_N:
        return f"last:{last_n}"
    return "all" if policy is NewcomerPolicy.ALL else "since-join"


def event_words(event: MembershipEvent, name_of: NameOf) -> str:
    """A membership event as a sentence: "ben left", "cara was added by ana", "ben was removed by an operator"."""
    people = listed(shown(event.people, name_of))
    were = "was" if len(event.people) == 1 else "were"
    if event.op is MembershipOp.LEAVE:
        return f"{people} left"
    by = f"by {name_of(event.actor)}" if event.actor is not None else "by an operator"
    return f"{people} {were} {'added' if event.op is MembershipOp.JOIN else 'removed'} {by}"


def seqs(item: SeqRange) -> str:
    """One seq, or the first and the last."""
    return str(item.first) if item.first == item.last else f"{item.first} to {item.last}"


def stay_began(stay: Stay) -> str:
    """`joined with 4`, the seq of the join; `there from the start` of those with whom a conversation began."""
    return f"joined with {stay.joined_at + 1}" if stay.began_version > 1 else "there from the start"


def stay_history(stay: Stay) -> str:
    """What was fixed as the stay's own history, both ends included: `from 4 on`, `4 to 8`."""
    first = stay.history_from + 1
    if not stay.left_at:
        return f"from {first} on"
    return seqs(SeqRange(first, stay.left_at - 1)) if first < stay.left_at else "nothing"


def stay_ended(stay: Stay) -> str:
    """`left with 9`, `removed with 9`, the seq of the event; `still in`."""
    if not stay.left_at:
        return "still in"
    return f"{'removed' if stay.state is MemberState.REMOVED else 'left'} with {stay.left_at}"


def counted(count: int, one: str, many: str) -> str:
    """`1 seq`, `4,836 seqs`."""
    return f"{count:,} {one if count == 1 else many}"


def clock(time_ms: int) -> str:
    """A time of the server in the local time zone."""
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
