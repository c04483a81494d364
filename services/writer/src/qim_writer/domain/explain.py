"""Why a person may or may not read a seq, in one sentence and as fields. The decision itself is `visible_range`, the
very function that the read paths use; this module only names what led to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from qim_common.enums import MemberState
from qim_common.records import Audience
from qim_writer.domain.stays import Person, Stay
from qim_writer.domain.visible import Line, counting_stays, delivered_spans, visible_range


class Cause(Enum):
    """What decided."""

    IN_STAY = "in_stay"
    BEFORE_JOIN = "before_join"
    BACKLOG = "backlog"
    BETWEEN_STAYS = "between_stays"
    AFTER_LEAVE = "after_leave"
    LEAVE_EVENT = "leave_event"
    EARLIER_STAY = "earlier_stay"
    REVOKED = "revoked"
    OWN_CLEAR = "own_clear"
    FLOOR = "floor"
    NEVER_MEMBER = "never_member"
    NOT_YET = "not_yet"


@dataclass(frozen=True, slots=True)
class Event:
    """What is stored of a control message: the version that it made, and whom it reached."""

    version: int
    audience: Audience
    time_ms: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision on one seq. `stay` is the one that decided, None where there is none."""

    visible: bool
    delivered: bool
    cause: Cause
    stay: Stay | None
    sentence: str


def explain(person: Person | None, line: Line, seq: int, event: Event | None) -> Explanation:
    """Explain one seq to one person's complaint; `event` when the seq is a control message."""
    if seq > line.head:
        return Explanation(False, False, Cause.NOT_YET, None, f"Seq {seq} does not exist yet; the head is {line.head}.")
    if person is None:
        return Explanation(False, False, Cause.NEVER_MEMBER, None, "The person never was in the group.")
    visible = seq in visible_range(person, line)
    cause, stay = _cause(person, line, seq)
    delivered = was_delivered(person, line, seq, event)
    return Explanation(visible, delivered, cause, stay, _sentence(person, line, seq, cause, stay, delivered))


def was_delivered(person: Person, line: Line, seq: int, event: Event | None) -> bool:
    """Whether a seq reached the person when it was allocated (design.md invariant 4)."""
    if event is not None and event.audience is Audience.CONCERNED and event.version not in person.versions:
        return False
    return any(first <= seq <= last for first, last in delivered_spans(person, line))


def _cause(person: Person, line: Line, seq: int) -> tuple[Cause, Stay | None]:
    shows = [stay for stay in person.stays if stay.history_from < seq and (not stay.left_at or seq < stay.left_at)]
    counting = counting_stays(person)
    open_to = [stay for stay in shows if stay in counting and not stay.revoked]
    if open_to:
        stay = open_to[-1]
        if seq <= line.floor:
            return Cause.FLOOR, stay
        if seq <= person.own_clear:
            return Cause.OWN_CLEAR, stay
        return (Cause.IN_STAY if seq > stay.joined_at else Cause.BACKLOG), stay
    revoked = [stay for stay in shows if stay in counting]
    if revoked:
        return Cause.REVOKED, revoked[-1]
    if shows:
        return Cause.EARLIER_STAY, shows[-1]
    ended = [stay for stay in person.stays if stay.left_at and stay.left_at <= seq]
    if not ended:
        return Cause.BEFORE_JOIN, person.stays[0]
    if ended[-1].left_at == seq:
        return Cause.LEAVE_EVENT, ended[-1]
    return (Cause.AFTER_LEAVE if ended[-1] is person.newest else Cause.BETWEEN_STAYS), ended[-1]


def _sentence(person: Person, line: Line, seq: int, cause: Cause, stay: Stay | None, delivered: bool) -> str:
    if stay is None:
        raise ValueError("only somebody who was in the group has a stay that decides")
    match cause:
        case Cause.IN_STAY:
            text = f"Visible: seq {seq} lies in the stay {_show(stay)}."
        case Cause.BACKLOG:
            text = (
                f"Visible: the stay {_show(stay, ',')} shows what came before its join, "
                f"from seq {stay.history_from + 1} on (newcomer_history when it began)."
            )
        case Cause.BEFORE_JOIN:
            text = (
                f"Hidden: the first stay {_show(stay, ',')} shows nothing before seq {stay.history_from + 1} "
                "(newcomer_history when it began)."
            )
        case Cause.BETWEEN_STAYS:
            text = f"Hidden: the person was outside at seq {seq}, after the stay {_show(stay)} and before the next."
        case Cause.AFTER_LEAVE:
            text = f"Hidden: the person has been outside since the stay {_show(stay)}."
        case Cause.LEAVE_EVENT:
            text = f"Hidden in the history: seq {seq} is the event with which the stay {_show(stay)} ended."
        case Cause.EARLIER_STAY:
            text = (
                f"Hidden: seq {seq} lies in the earlier stay {_show(stay)}, which stopped counting when the person "
                "came back (rejoin_history LATEST_STAY at that moment)."
            )
        case Cause.REVOKED:
            text = f"Hidden: the stay {_show(stay)} was closed with leaver_history NONE and shows nothing."
        case Cause.OWN_CLEAR:
            text = f"Hidden: the person cleared their own history up to seq {person.own_clear}."
        case Cause.FLOOR:
            text = f"Hidden from everybody: the group's floor is at seq {line.floor}."
        case _:
            raise ValueError(f"{cause} has no stay")
    return f"{text} {'It was' if delivered else 'It was not'} delivered to them."


def _show(stay: Stay, comma: str = "") -> str:
    """`comma` where the sentence goes on behind the words of an open stay."""
    begin = f"from seq {stay.joined_at + 1}"
    if not stay.left_at:
        return f"{begin} on, still open{comma}"
    how = "left" if stay.state is MemberState.LEFT else "were removed"
    return f"{begin} until they {how} with seq {stay.left_at}"
