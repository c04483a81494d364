"""A reference model of one conversation: the invariants and decisions of design.md, read literally.

It imports nothing of the project. It keeps each seq with the people whom it reached, and each answer under its id; what
a person may see is found by asking every seq. People are values that can be ordered, ids any that can be hashed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

POLICIES = {"newcomer": "SINCE_JOIN", "last_n": 0, "rejoin": "LATEST_STAY", "leaver": "UNTIL_LEFT"}
DEFAULTS = {**POLICIES, "broadcast_max": 500, "limit": 100_000}


class Refused(Exception):  # noqa: N818 - an outcome, as the service names it
    """A refusal: the reason of contracts.md, "Errors"."""


@dataclass
class Stay:
    joined_at: int
    history_from: int
    began: int
    keeps_earlier: bool = False
    left_at: int = 0
    ended: int = 0
    ended_by: str = ""
    revoked: bool = False

    def shows(self, seq: int) -> bool:
        return not self.revoked and self.history_from < seq and (not self.left_at or seq < self.left_at)


@dataclass(frozen=True)
class Entry:
    """One seq: `says` is a body, or of a membership event (op, actor, people)."""

    sender: Any
    version: int
    prev: int
    reached: frozenset[Any]
    says: Any
    broadcast: bool = True
    control = property(lambda self: isinstance(self.says, tuple))


@dataclass
class Conversation:
    """A group, or with `pair` a direct conversation, which its first message creates."""

    settings: dict[str, Any] = field(default_factory=DEFAULTS.copy)
    pair: tuple[Any, ...] = ()
    owner: Any = None
    line: list[Entry] = field(default_factory=list)
    versions: list[frozenset[Any]] = field(default_factory=list)
    stays: dict[Any, list[Stay]] = field(default_factory=dict)
    cleared: dict[Any, int] = field(default_factory=dict)
    read: dict[Any, int] = field(default_factory=dict)
    answers: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    floor: int = 0
    revision: int = 0
    frozen: bool = False

    head = property(lambda self: len(self.line))
    version = property(lambda self: len(self.versions))
    members = property(lambda self: self.versions[-1] if self.versions else frozenset())

    def call(self, caller: tuple[str, Any], request: Any, op: str, *content: Any, **conditions: Any) -> Any:
        """Invariant 8. `caller` is ("send", person), ("member", person) or ("operator", name), whose ids never meet."""
        if (caller, request) not in self.answers:
            answer = getattr(self, op)(caller, *content, **conditions)
            self.answers[caller, request] = ((op, content), answer)
        elif self.answers[caller, request][0] != (op, content):
            raise Refused("IDEMPOTENCY_KEY_REUSED")
        return self.answers[caller, request][1]

    def create(self, people: Sequence[Any], owner: Any = None) -> None:
        self.owner, self.revision = owner, 1
        self.versions.append(frozenset(people))
        self.stays = {who: [Stay(joined_at=0, history_from=0, began=1)] for who in people}

    def send(self, caller: tuple[str, Any], body: Any, expected: int = 0) -> Any:
        inside = caller[1] in (self.members if self.versions else self.pair)
        if not inside or self.frozen:
            raise Refused("GROUP_FROZEN" if inside else "PERMISSION_DENIED")
        if expected not in (0, max(self.version, 1)):
            raise Refused("MEMBERSHIP_CHANGED")
        if not self.versions:
            self.create(self.pair)
        self.line.append(Entry(caller[1], self.version, self.newest_broadcast(), self.members, body))
        return {"seq": self.head, "version": self.version}

    def add(self, caller: tuple[str, Any], people: Sequence[Any], owner: Any = None, initiator: Any = None) -> Any:
        if self.frozen:
            raise Refused("GROUP_FROZEN")
        new = sorted(set(people) - self.members)
        if new and len(self.members) + len(new) > self.settings["limit"]:
            raise Refused("MEMBER_LIMIT_EXCEEDED")
        self.owner = (owner or people[0]) if new and not self.members else self.owner
        shown = {"SINCE_JOIN": 0, "LAST_N": self.settings["last_n"], "ALL": self.head}[self.settings["newcomer"]]
        keeps = self.settings["rejoin"] == "ALL_STAYS"
        for who in new:
            begun = Stay(self.head, max(self.head - shown, 0), self.version + 1, keeps)
            self.stays.setdefault(who, []).append(begun)
        return self.record("JOIN", new, initiator, self.owner)

    def remove(self, caller: tuple[str, Any], people: Sequence[Any], leaver: str = "", initiator: Any = None) -> Any:
        return self.end("REMOVE", people, leaver or self.settings["leaver"], initiator, self.owner)

    def leave(self, caller: tuple[str, Any]) -> Any:
        if caller[1] not in self.stays:
            raise Refused("PERMISSION_DENIED")
        self.end("LEAVE", [caller[1]], self.settings["leaver"], caller[1], caller[1])
        stay = self.stays[caller[1]][-1]
        return {"state": stay.ended_by, "left_at": stay.left_at, "version": stay.ended}

    def end(self, op: str, people: Sequence[Any], leaver: str, actor: Any, sender: Any) -> Any:
        gone = sorted(set(people) & self.members)
        if self.owner in gone:
            if len(gone) < len(self.members):
                raise Refused("OWNER_CANNOT_LEAVE")
            self.owner = None
        for stay in [self.stays[who][-1] for who in gone]:
            stay.left_at, stay.ended, stay.revoked = self.head + 1, self.version + 1, leaver == "NONE"
            stay.ended_by = {"LEAVE": "LEFT", "REMOVE": "REMOVED"}[op]
        return self.record(op, gone, actor, sender)

    def record(self, op: str, people: list[Any], actor: Any, sender: Any) -> Any:
        """One seq and one version for all that really changed; nothing where nothing did."""
        if people:
            after = self.members | set(people) if op == "JOIN" else self.members - set(people)
            broadcast = len(after) <= self.settings["broadcast_max"]
            reached, says = frozenset(people) | (after if broadcast else set()), (op, actor, tuple(people))
            prev, self.revision = self.newest_broadcast(), self.revision + 1
            self.versions.append(after)
            self.line.append(Entry(sender, self.version, prev, reached, says, broadcast))
        answer = {"version": self.version, "count": len(self.members), "changed": len(people)}
        return {**answer, "seq": self.head if people else 0}

    def change(self, caller: tuple[str, Any], name: str, value: Any) -> Any:
        """`settings`, `frozen`, `owner` or `floor` (0: the head), by an operator or, the last two, by the owner."""
        if caller[0] == "member" and (caller[1] != self.owner or self.frozen):
            raise Refused("PERMISSION_DENIED" if caller[1] != self.owner else "GROUP_FROZEN")
        if name == "owner" and value not in self.members:
            raise Refused("NEW_OWNER_NOT_MEMBER")
        if name == "floor":
            value = max(self.floor, min(value or self.head, self.head))
        self.revision += getattr(self, name) != value
        setattr(self, name, value)
        return {"owner": self.owner, "floor": self.floor, "frozen": self.frozen, "revision": self.revision}

    def clear(self, caller: tuple[str, Any], up_to: int) -> Any:
        before, upper = self.cleared.get(caller[1], 0), self.upper(self.check_reader(caller[1]))
        self.cleared[caller[1]] = max(before, min(up_to or upper, upper))
        self.revision += self.cleared[caller[1]] > before
        return {"cleared": self.cleared[caller[1]]}

    def mark_read(self, who: Any, seq: int) -> Any:
        self.read[who] = max(self.read.get(who, 0), min(seq, self.upper(self.check_reader(who))))
        return {"read": self.read[who], "unread": self.unread(who)}

    def counting(self, who: Any) -> list[Stay]:
        """The newest stay, and going back each earlier one as long as the later one keeps earlier ones."""
        stays = self.stays.get(who, [])
        broken = [at for at, stay in enumerate(stays) if not stay.keeps_earlier]
        return stays[max(broken, default=0) :]

    def check_reader(self, who: Any) -> Any:
        if all(stay.revoked for stay in self.counting(who)):
            raise Refused("PERMISSION_DENIED")
        return who

    def cut(self, who: Any) -> int:
        return max(self.cleared.get(who, 0), self.floor)

    def upper(self, who: Any) -> int:
        return (self.stays[who][-1].left_at or self.head + 1) - 1

    def visible(self, who: Any) -> list[int]:
        stays = self.counting(who)
        return [seq for seq in range(self.cut(who) + 1, self.head + 1) if any(stay.shows(seq) for stay in stays)]

    def earliest(self, who: Any) -> int:
        lower = min(stay.history_from for stay in self.counting(who) if not stay.revoked)
        return min(self.visible(who), default=min(max(lower, self.cut(who)), self.upper(who)) + 1)

    def unread(self, who: Any) -> int:
        newest, cursor = self.stays[who][-1], self.read.get(who, 0)
        counted = self.line[max(cursor, newest.joined_at, self.cut(who)) : self.upper(who)]
        return 0 if newest.revoked else sum(not entry.control and entry.sender != who for entry in counted)

    def delivered(self, who: Any) -> list[int]:
        return [seq for seq, entry in enumerate(self.line, 1) if who in entry.reached]

    def own_event(self, who: Any, seq: int) -> bool:
        entry = self.line[seq - 1]
        return entry.control and any(entry.version in (stay.began, stay.ended) for stay in self.stays[who])

    def newest_broadcast(self) -> int:
        return max((seq for seq, entry in enumerate(self.line, 1) if entry.broadcast), default=0)
