"""A group's whole history, checked: what really happened must be one order in which the model does the same.

The auditor was there from the start and is never touched, so that everything is visible to them. The history alone
tells the order; the model is led along it, and must agree with every record, version, audience and sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.model.doors import Call
from tests.model.reader import Reader
from tests.model.reference import Conversation
from tests.model.sights import expected_sight, told_entry
from tests.model.world import TENANT, World

from qim_client.actor import MAX_PAGE
from qim_client.values import Direction, Message, StateEntry
from qim_common.ids import ConversationId, MembershipOp, UserId
from qim_common.records import RecordType, StateChange


@dataclass(frozen=True)
class History:
    """What was there in the end: all messages, all changes without a seq, and who called for what."""

    messages: Sequence[Message]
    states: Sequence[StateEntry]
    calls: Sequence[Call]

    @classmethod
    async def read(cls, world: World, group: ConversationId, auditor: UserId, calls: Sequence[Call]) -> History:
        """Everything that the auditor may read, and the group's timeline."""
        person = world.gateway.as_actor(TENANT, auditor)
        messages = [message async for message in person.history(group, direction=Direction.NEWER)]
        pages = [page async for page in world.operators["operator"].timeline_pages(group)]
        leaves: set[int] = set()
        for call in calls:
            # Who leaves again, or after a removal, is told of the seq with which they went.
            event = messages[call.seq - 1].event if call.kind == "leave" and call.seq else None
            if event is not None and (event.op is not MembershipOp.LEAVE or call.seq in leaves):
                call.seq = 0
            elif event is not None:
                leaves.add(call.seq)
        return cls(messages, [state for page in pages for state in page.state_entries], calls)

    def check_order(self) -> None:
        """Seqs without a gap, times that never fall, versions in a row, and nothing before what it came after."""
        assert [message.seq for message in self.messages] == list(range(1, len(self.messages) + 1))
        assert all(before.time_ms <= after.time_ms for before, after in pairwise(self.messages))
        events = [message.membership_version for message in self.messages if message.type is RecordType.CONTROL]
        assert events == list(range(2, len(events) + 2))
        took = [call for call in self.calls if call.seq]
        by_end = sorted(took, key=lambda call: call.ended)
        newest, ended = 0, iter(by_end)
        last: Call | None = next(ended, None)
        for call in sorted(took, key=lambda call: call.started):
            while last is not None and last.ended < call.started:
                newest, last = max(newest, last.seq), next(ended, None)
            assert call.seq > newest, f"seq {call.seq} of a call that began after seq {newest} was answered"

    def check_answers(self) -> None:
        """Each committed message stands once, where its answer says; what was refused stands nowhere."""
        at = {message.client_message_id: message for message in self.messages}
        assert len(at) == len(self.messages)
        for call in self.calls:
            if call.kind == "send" and call.refused:
                assert call.message_id not in at
            elif call.kind == "send":
                message = at.pop(call.message_id)
                assert (message.seq, message.membership_version) == (call.seq, call.version)
                assert message.sender == call.people[0]
        assert all(message.type is RecordType.CONTROL for message in at.values()), "messages that nobody sent"

    def lead(self, model: Conversation, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Lead the model along the history; every record must be what the model makes of it.

        `settings` are the model's by their repr as a client's value.
        """
        asked = {call.seq: call for call in self.calls if call.seq and call.kind != "send"}
        states = sorted(self.states, key=lambda state: state.revision)
        for message in [*self.messages, None]:
            while states and (message is None or states[0].head_seq < message.seq):
                self._change(model, states.pop(0), settings)
            if message is None:
                return
            if message.event is None:
                model.call(("send", message.sender), message.client_message_id, "send", message.body)
            else:
                self._event(model, message, asked[message.seq])
            entry = model.line[-1]
            said = (entry.sender, entry.version, entry.prev, entry.broadcast, entry.says)
            assert told_entry(message) == said, f"seq {message.seq}"

    def _event(self, model: Conversation, message: Message, call: Call) -> None:
        if call.kind == "leave":
            model.call(("member", call.people[0]), message.seq, "leave")
        elif call.kind == "add":
            model.call(("operator", ""), message.seq, "add", call.people)
        else:
            model.call(("operator", ""), message.seq, "remove", call.people, call.leaver)

    def _change(self, model: Conversation, state: StateEntry, settings: Mapping[str, Mapping[str, Any]]) -> None:
        assert (state.head_seq, state.membership_version) == (model.head, model.version)
        if state.kind is StateChange.SETTINGS:
            model.call(("operator", "state"), state.revision, "change", "settings", settings[repr(state.settings)])
        elif state.kind is StateChange.OWNER:
            model.call(("operator", "state"), state.revision, "change", "owner", state.owner)
        assert model.revision == state.revision


async def check_sights(world: World, group: ConversationId, model: Conversation, people: Sequence[UserId]) -> None:
    """The members at every version, the changes since the first, and everything that each person is told."""
    since = await world.person(people[0]).members_since(group, 1, limit=MAX_PAGE)
    told = [(c.version, c.seq, (c.op.name if c.op else "", c.actor, c.people)) for c in since.changes]
    assert told == [(entry.version, seq, entry.says) for seq, entry in enumerate(model.line, 1) if entry.control]
    assert since.current_version == model.version
    for version, members in enumerate(model.versions, 1):
        assert sorted(await world.members_at(group, version)) == sorted(members), f"version {version}"
    for turn in range(4):
        for who in people:
            await Reader(world, group, expected_sight(model, who), turn).compare()
