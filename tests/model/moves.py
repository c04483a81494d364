"""The calls that change something: each as the model foretells it and as the service is asked for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

from tests.model.reference import DEFAULTS, Conversation, Refused
from tests.model.world import TENANT, World

from qim_client.gateway import actor
from qim_client.values import GroupSettings, Outgoing
from qim_common.enums import LeaverHistory, NewcomerPolicy, RejoinHistory
from qim_common.ids import ConversationId, UserId, uuid7

Told = dict[str, Any]


@dataclass(frozen=True)
class Move:
    """One call. `foretell` asks the model, `carry_out` the service, `tell` makes their answers comparable.

    `request` is the id under which a repeated call gets the first answer; None where it needs none.
    """

    name: str
    foretell: Callable[[Conversation], Told]
    carry_out: Callable[[World], Awaitable[Any]]
    tell: Callable[[Any], Told]
    request: bytes | None = None


def draw_id() -> bytes:
    """A request's id."""
    return uuid7()


def wire_settings(settings: Told) -> GroupSettings:
    """The model's settings as the client takes them."""
    return GroupSettings(
        newcomer=NewcomerPolicy[settings["newcomer"]],
        last_n=settings["last_n"],
        rejoin=RejoinHistory[settings["rejoin"]],
        leaver=LeaverHistory[settings["leaver"]],
        broadcast_max_members=settings["broadcast_max"],
        member_limit=settings["limit"],
    )


@dataclass
class Moves:
    """The moves of one conversation and its people."""

    people: list[UserId]
    model: Conversation
    group: ConversationId
    _streamed: Iterator[bool] = field(default_factory=lambda: cycle((True, True, False)))

    def create(self, settings: Told, people: list[UserId], *, by: UserId, request: bytes) -> Move:
        """Create the group; every call but a repeat of the first must be refused."""
        content = (tuple(settings.items()), frozenset(people) | {by})

        def foretell(model: Conversation) -> Told:
            known = model.answers.get((("member", by), request))
            if known is None:
                if model.versions:
                    raise Refused("GROUP_ALREADY_EXISTS")
                model.settings = settings
                model.create(sorted(content[1]), owner=by)
                known = model.answers[("member", by), request] = (content, {"version": 1, "count": len(content[1])})
            if known[0] != content:
                raise Refused("IDEMPOTENCY_KEY_REUSED")
            return dict(known[1])

        return Move(
            name=f"create by {self._name(by)} with {self._names(people)}",
            foretell=foretell,
            carry_out=lambda world: world.person(by).create_group(
                people, group=self.group, settings=wire_settings(settings), request_id=request
            ),
            tell=lambda answer: {"version": answer.membership_version, "count": answer.member_count},
            request=request + b"create",
        )

    def send(self, who: UserId, body: bytes, *, request: bytes, expected: int = 0) -> Move:
        """One message; `expected` is a version that has to hold."""
        peer = self.model.pair[-1 if who == self.model.pair[0] else 0] if who in self.model.pair else None
        item = Outgoing(
            actor(TENANT, who),
            body,
            conversation=None if peer else self.group,
            peer=peer,
            expected_version=expected,
            client_message_id=request,
        )
        return Move(
            name=f"send by {self._name(who)}" + (f" at version {expected}" if expected else ""),
            foretell=lambda model: model.call(("send", who), request, "send", body, expected=expected),
            carry_out=lambda world: world.send(item, streamed=next(self._streamed)),
            tell=lambda answer: {"seq": answer.seq, "version": answer.membership_version},
            request=request + b"send",
        )

    def add(
        self,
        people: list[UserId],
        *,
        request: bytes,
        by: str = "operator",
        owner: UserId | None = None,
        initiator: UserId | None = None,
    ) -> Move:
        """One call of an operator, or of a back end that may name an `initiator`."""
        return Move(
            name=f"add {self._names(people)} by {by}",
            foretell=lambda model: model.call(("operator", by), request, "add", tuple(people), owner, initiator),
            carry_out=lambda world: world.operators[by].add_members(
                self.group, people, owner=owner, initiator=initiator, request_id=request
            ),
            tell=_told_change,
            request=request + by.encode(),
        )

    def remove(
        self, people: list[UserId], *, request: bytes, by: str = "operator", leaver: str = "", initiator: UserId | None
    ) -> Move:
        """One call; `leaver` overrides the group's leaver_history."""
        return Move(
            name=f"remove {self._names(people)} {leaver} by {by}",
            foretell=lambda model: model.call(("operator", by), request, "remove", tuple(people), leaver, initiator),
            carry_out=lambda world: world.operators[by].remove_members(
                self.group,
                people,
                leaver_history=LeaverHistory[leaver] if leaver else None,
                initiator=initiator,
                request_id=request,
            ),
            tell=_told_change,
            request=request + by.encode(),
        )

    def leave(self, who: UserId, *, request: bytes) -> Move:
        """Leave the group."""
        return Move(
            name=f"leave {self._name(who)}",
            foretell=lambda model: model.call(("member", who), request, "leave"),
            carry_out=lambda world: world.person(who).leave_group(self.group, request_id=request),
            tell=lambda answer: {
                "state": answer.member.state.name,
                "left_at": answer.member.left_at,
                "version": answer.membership_version,
            },
            request=request + b"member",
        )

    def clear(self, who: UserId, up_to: int, *, request: bytes) -> Move:
        """The person's own clear point."""
        return Move(
            name=f"clear {self._name(who)} {up_to}",
            foretell=lambda model: model.call(("member", who), request, "clear", up_to),
            carry_out=lambda world: world.person(who).clear_history(self.group, up_to_seq=up_to, request_id=request),
            tell=lambda answer: {"cleared": answer},
            request=request + b"member",
        )

    def read(self, who: UserId, seq: int) -> Move:
        """The person's read cursor."""
        return Move(
            name=f"read {self._name(who)} {seq}",
            foretell=lambda model: model.mark_read(who, seq),
            carry_out=lambda world: world.person(who).mark_read(self.group, seq),
            tell=lambda answer: {"read": answer.read_seq, "unread": answer.unread_count},
        )

    def clear_group(self, by: UserId | None, up_to: int, *, request: bytes) -> Move:
        """The group's floor, by an end user or an operator (None)."""
        caller = ("member", by) if by else ("operator", "operator")
        return Move(
            name=f"floor {up_to} by {self._name(by) if by else 'operator'}",
            foretell=lambda model: model.call(caller, request, "change", "floor", up_to),
            carry_out=lambda world: (world.person(by) if by else world.operators["operator"]).clear_group_history(
                self.group, up_to_seq=up_to, request_id=request
            ),
            tell=lambda answer: {"floor": answer} if by else _told_details(answer),
            request=request + caller[0].encode(),
        )

    def transfer(self, by: UserId | None, owner: UserId, *, request: bytes) -> Move:
        """The ownership, by an end user or an operator (None)."""
        caller = ("member", by) if by else ("operator", "operator")
        return Move(
            name=f"transfer to {self._name(owner)} by {self._name(by) if by else 'operator'}",
            foretell=lambda model: model.call(caller, request, "change", "owner", owner),
            carry_out=lambda world: (world.person(by) if by else world.operators["operator"]).transfer_ownership(
                self.group, owner, request_id=request
            ),
            tell=lambda answer: {"owner": answer} if by else _told_details(answer),
            request=request + caller[0].encode(),
        )

    def set(self, settings: Told, *, request: bytes) -> Move:
        """All settings."""
        return Move(
            name=f"set {', '.join(str(v) for v in settings.values())}",
            foretell=lambda model: model.call(("operator", "operator"), request, "change", "settings", settings),
            carry_out=lambda world: world.operators["operator"].update_group_settings(
                self.group, wire_settings(settings), request_id=request
            ),
            tell=_told_details,
            request=request + b"operator",
        )

    def freeze(self, frozen: bool, *, request: bytes) -> Move:
        """On or off."""
        return Move(
            name="freeze" if frozen else "unfreeze",
            foretell=lambda model: model.call(("operator", "operator"), request, "change", "frozen", frozen),
            carry_out=lambda world: world.operators["operator"].freeze_group(
                self.group, frozen=frozen, request_id=request
            ),
            tell=_told_details,
            request=request + b"operator",
        )

    def not_a_group(self, move: Move) -> Move:
        """A group's method on a direct conversation."""

        def refused(_: Conversation) -> Told:
            raise Refused("INVALID_ARGUMENT")

        return replace(move, foretell=refused)

    def restart(self) -> Move:
        """The writer crashes and comes back; nobody should notice."""
        return Move("restart", lambda _: {}, lambda world: world.restart_writer(), lambda _: {})

    def _name(self, who: UserId) -> str:
        return f"p{self.people.index(who)}"

    def _names(self, people: Iterable[UserId]) -> str:
        return "+".join(map(self._name, people))


def settings_of(**changes: Any) -> Told:
    """The model's settings, all others as a new group has them."""
    return {**DEFAULTS, **changes}


def _told_change(answer: Any) -> Told:
    return {
        "version": answer.membership_version,
        "seq": answer.seq,
        "count": answer.member_count,
        "changed": answer.changed_count,
    }


def _told_details(answer: Any) -> Told:
    return {
        "owner": answer.owner,
        "floor": answer.group_floor_seq,
        "frozen": answer.frozen,
        "revision": answer.revision,
    }
