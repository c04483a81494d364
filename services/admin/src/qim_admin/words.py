"""What operators read: settings, events and changes without a seq in words. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from qim_client import GroupSettings, LeaverHistory, MembershipChange, MembershipEvent, RejoinHistory, StateEntry, Stay
from qim_client.presentation import printable
from qim_client.words import (
    Leaver,
    NameOf,
    Rejoin,
    clock,
    event_words,
    newcomer_words,
    stay_began,
    stay_ended,
    stay_history,
)
from qim_common.records import StateChange

RECORD_REMOVED = "removed: the event lies below the floor"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a timeline: `place` is the seq of an event, or after which seq a change without one was made."""

    place: str
    number: str
    time: str
    words: str


def settings_rows(settings: GroupSettings) -> list[tuple[str, str]]:
    """Each setting as people read it, its value as it is typed where it is typed."""
    rejoin = Rejoin.ALL if settings.rejoin is RejoinHistory.ALL_STAYS else Rejoin.LATEST
    leaver = Leaver.NONE if settings.leaver is LeaverHistory.NONE else Leaver.UNTIL_LEFT
    broadcast, days = settings.broadcast_max_members, settings.retention_days
    return [
        ("newcomers read", newcomer_words(settings.newcomer, settings.last_n)),
        ("returning people read", str(rejoin)),
        ("leavers read", str(leaver)),
        ("events go to all up to", f"{broadcast:,} members" if broadcast else "the deployment's bound"),
        ("member limit", f"{settings.member_limit:,}" if settings.member_limit else "the deployment's"),
        ("messages are kept for", f"{days:,} days" if days else "ever"),
    ]


def stay_words(stay: Stay) -> str:
    """One stay with all that was fixed into it."""
    flags = ["keeps earlier stays"] * stay.keeps_earlier + ["revoked"] * stay.revoked
    return ", ".join([stay_began(stay), f"history {stay_history(stay)}", stay_ended(stay), *flags])


def maker_words(made_by: str, name_of: NameOf) -> str:
    """Who made a change without a seq."""
    kind, _, name = made_by.partition(":")
    if kind == "user":
        try:
            return name_of(uuid.UUID(name).bytes)
        except ValueError:
            return printable(made_by)
    kinds = {"operator": "operator ", "backend": "back end "}
    return printable(kinds[kind] + name if kind in kinds else made_by)


def timeline_lines(changes: Iterable[MembershipChange], entries: Iterable[StateEntry], name_of: NameOf) -> list[Line]:
    """The events and the changes without a seq on one line, oldest first."""
    placed = [((change.seq, 0, change.version), _event_line(change, name_of)) for change in changes]
    before: GroupSettings | None = None
    for entry in entries:
        maker = maker_words(entry.made_by, name_of)
        words = f"{_entry_words(entry, before, name_of)}, by {maker}"
        line = Line(f"after {entry.head_seq}", f"r{entry.revision}", clock(entry.time_ms), words)
        placed.append(((entry.head_seq, 1, entry.revision), line))
        before = entry.settings or before
    return [line for _, line in sorted(placed, key=lambda item: item[0])]


def _event_line(change: MembershipChange, name_of: NameOf) -> Line:
    if change.op is None:
        return Line(str(change.seq), f"v{change.version}", "", RECORD_REMOVED)
    words = event_words(MembershipEvent(change.op, change.actor, change.people), name_of)
    return Line(str(change.seq), f"v{change.version}", clock(change.time_ms), words)


def _entry_words(entry: StateEntry, before: GroupSettings | None, name_of: NameOf) -> str:
    owner = "nobody" if entry.owner is None else printable(name_of(entry.owner))
    match entry.kind:
        case StateChange.CREATED:
            return f"created, {owner} is the owner"
        case StateChange.SETTINGS:
            return _settings_words(before, entry.settings)
        case StateChange.OWNER:
            return f"{owner} became the owner"
        case StateChange.FLOOR:
            return f"cleared for all up to {entry.group_floor_seq}"
        case StateChange.FROZEN:
            return "frozen" if entry.frozen else "unfrozen"
        case _:
            return "a person cleared their own history"


def _settings_words(before: GroupSettings | None, after: GroupSettings | None) -> str:
    new = settings_rows(after or GroupSettings())
    if before is None:
        return "settings: " + ", ".join(f"{name} {value}" for name, value in new)
    pairs = zip(settings_rows(before), new, strict=True)
    changed = [f"{name} {old} → {value}" for (_, old), (name, value) in pairs if old != value]
    return "settings: " + (", ".join(changed) or "nothing changed")
