"""Carries one operation out through the public API, as often as it is asked to with the same request.

End users act through the gateway's certificate, everything that operators do goes through the admin service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.conformance.runner import scenario as values
from tests.conformance.runner.cast import Cast

from qim_client import GroupSettings, OperatorClient, Outgoing, SendStream
from qim_client.frames import MAX_FRAME_ITEMS
from qim_common.ids import ConversationId, UserId, uuid7


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered: everything of it, and the seq that it names, 0 for none."""

    seq: int
    everything: object


Request = Callable[[], Awaitable[Answer]]
"""Carries the operation out; a second time with the same ids and content."""


class Operations:
    """Makes requests of operations, in one conversation.

    Parameters:
        conversation: the group, or the direct conversation.
        direct: of a direct conversation the two people, else None.
    """

    def __init__(
        self,
        cast: Cast,
        operator: OperatorClient,
        stream: SendStream,
        conversation: ConversationId,
        direct: tuple[str, str] | None,
    ) -> None:
        self._cast = cast
        self._operator = operator
        self._stream = stream
        self._conversation = conversation
        self._direct = direct

    def request(self, action: values.Action) -> Request:
        """The request of an operation, complete with its ids. A retry has none: it is the request of another."""
        match action:
            case values.Send():
                return self._send(action)
            case values.Add(users):
                return self._add(self._cast.ids(users))
            case values.Remove():
                return self._remove(action)
            case values.Leave(by):
                return self._leave(by)
            case values.Clear():
                return self._clear(action)
            case values.Read():
                return self._read(action)
            case values.Transfer(to):
                return self._transfer(self._cast.id(to))
            case values.Set(change):
                return self._set(change)
            case values.ClearGroup(up_to):
                return self._clear_group(up_to)
            case values.Retry():
                raise AssertionError("a retry repeats another operation's request")

    def _send(self, action: values.Send) -> Request:
        sender = self._cast.acting(action.by).actor
        peer = self._peer(action.by)
        conversation = None if peer else self._conversation
        items = [
            Outgoing(sender, f"{action.by} writes {number}".encode(), conversation=conversation, peer=peer)
            for number in range(1, action.n + 1)
        ]

        async def send() -> Answer:
            sent = []
            for start in range(0, len(items), MAX_FRAME_ITEMS):
                outcomes = await self._stream.send(items[start : start + MAX_FRAME_ITEMS])
                sent += [outcome.result() for outcome in outcomes]
            first = sent[0].seq
            gaps = [item.seq for at, item in enumerate(sent) if item.seq != first + at]
            # Nobody else writes, so that a run of messages without consecutive seqs has lost or misplaced some.
            return Answer(gaps[0] if gaps else first, tuple(sent))

        return send

    def _peer(self, by: str) -> UserId | None:
        if self._direct is None:
            return None
        one, other = self._direct
        return self._cast.id(one if by == other else other)

    def _add(self, users: list[UserId]) -> Request:
        request_id = uuid7()

        async def add() -> Answer:
            result = await self._operator.add_members(self._conversation, users, request_id=request_id)
            return Answer(result.seq, result)

        return add

    def _remove(self, action: values.Remove) -> Request:
        request_id, users = uuid7(), self._cast.ids(action.users)

        async def remove() -> Answer:
            result = await self._operator.remove_members(
                self._conversation, users, leaver_history=action.leaver_history, request_id=request_id
            )
            return Answer(result.seq, result)

        return remove

    def _leave(self, by: str) -> Request:
        request_id, person = uuid7(), self._cast.acting(by)

        async def leave() -> Answer:
            left = await person.leave_group(self._conversation, request_id=request_id)
            return Answer(left.member.left_at, left)

        return leave

    def _clear(self, action: values.Clear) -> Request:
        request_id, person = uuid7(), self._cast.acting(action.by)

        async def clear() -> Answer:
            point = await person.clear_history(self._conversation, up_to_seq=action.up_to, request_id=request_id)
            return Answer(0, point)

        return clear

    def _read(self, action: values.Read) -> Request:
        person = self._cast.acting(action.by)

        async def read() -> Answer:
            await person.mark_read(self._conversation, action.seq)
            # It needs no entry of idempotency: a repeat may find more unread than the first call did.
            return Answer(0, None)

        return read

    def _transfer(self, to: UserId) -> Request:
        request_id = uuid7()
        owners: list[UserId] = []

        async def transfer() -> Answer:
            if not owners:
                owners.append(await self._owner())
            owner = self._cast.acting(self._cast.name(owners[0]))
            return Answer(0, await owner.transfer_ownership(self._conversation, to, request_id=request_id))

        return transfer

    async def _owner(self) -> UserId:
        """Who owns the conversation; somebody who has never been in it where nobody does."""
        if self._direct is not None:
            return self._cast.id(self._direct[0])
        return (await self._operator.get_group(self._conversation)).owner or self._cast.id("nobody")

    def _set(self, wanted: values.SettingsChange) -> Request:
        request_id = uuid7()
        settings: list[GroupSettings] = []

        async def change() -> Answer:
            if not settings:
                before = (await self._operator.get_group(self._conversation)).settings
                settings.append(wanted.applied_to(before))
            details = await self._operator.update_group_settings(self._conversation, settings[0], request_id=request_id)
            return Answer(0, details)

        return change

    def _clear_group(self, up_to: int) -> Request:
        request_id = uuid7()

        async def clear() -> Answer:
            details = await self._operator.clear_group_history(
                self._conversation, up_to_seq=up_to, request_id=request_id
            )
            return Answer(0, details)

        return clear
