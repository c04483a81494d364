"""Events of Subscribe in their wire form, each made once and without its attachments."""

from __future__ import annotations

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim_common.errors import QimError
from qim_common.errors.status import to_status
from qim_common.ids import ConversationId
from qim_common.records import DispatchItem, MessageBlock, StateChange
from qim_common.settings_wire import settings_to_wire
from qim_session.commands.live.events import WireEntryEvent, WireEvent
from qim_session.domain.cursors import Cursor
from qim_session.domain.signals import Signal, SignalKind
from qim_session.domain.state_entries import StateNow
from qim_session.storage.conversations import WireMessage, Withheld

Event = session_pb2.SubscribeEvent


class LiveWire:
    """The `EventEncoder`."""

    def message(self, block: MessageBlock, item: DispatchItem, time_ms: int) -> WireEvent:
        """As `EventEncoder.message`. Raises ValueError for an item without a tail."""
        tail = item.tail
        if tail is None:
            raise ValueError(f"the body of seq {item.seq} is not in the log")
        return _wire(
            Event(
                delivered=session_pb2.MailboxEntry(
                    conversation_id=block.conversation,
                    generation=block.generation,
                    message=types_pb2.Message(
                        conversation_id=block.conversation,
                        seq=item.seq,
                        generation=block.generation,
                        membership_version=block.version,
                        time_ms=time_ms,
                        type=types_pb2.MessageType.ValueType(tail.type),
                        sender_user_id=tail.sender,
                        sender_device_id=tail.device,
                        client_message_id=tail.client_message_id,
                        custom_type=tail.custom_type,
                        body=tail.body,
                        prev_seq=item.prev,
                        audience=types_pb2.Audience.ValueType(item.audience),
                    ),
                )
            )
        )

    def entry(self, conversation: ConversationId, generation: int, content: WireMessage | Withheld) -> WireEntryEvent:
        """As `EventEncoder.entry`."""
        entry = session_pb2.MailboxEntry(conversation_id=conversation, generation=generation)
        if isinstance(content, Withheld):
            entry.withheld.first_seq = content.first_seq
            entry.withheld.last_seq = content.last_seq
        else:
            entry.message.MergeFromString(content)
        last = content.last_seq if isinstance(content, Withheld) else entry.message.seq
        return WireEntryEvent(_wire(Event(delivered=entry)), last)

    def state(self, state: StateNow, *, with_revision: bool) -> WireEvent:
        """As `EventEncoder.state`."""
        change = types_pb2.StateChange(
            revision=state.revision if with_revision else 0,
            kind=types_pb2.StateChange.Kind.ValueType(state.change),
            time_ms=state.time_ms,
        )
        if state.change is StateChange.FLOOR:
            change.group_floor_seq = state.floor
        if state.policy is not None:
            change.settings.CopyFrom(settings_to_wire(state.policy))
            change.owner_user_id = state.policy.owner or b""
            change.frozen = state.policy.frozen
        return _wire(Event(state=Event.State(conversation_id=state.conversation, change=change)))

    def signal(self, signal: Signal) -> WireEvent:
        """As `EventEncoder.signal`."""
        if signal.kind is SignalKind.READ_MARK:
            mark = Event.ReadMark(
                conversation_id=signal.conversation, generation=signal.generation, read_seq=signal.seq
            )
            return _wire(Event(read_mark=mark))
        flags = Event.Flags(conversation_id=signal.conversation, hidden=signal.hidden, muted=signal.muted)
        return _wire(Event(flags=flags))

    def states_changed(self) -> WireEvent:
        """As `EventEncoder.states_changed`."""
        return _wire(Event(states_changed=Event.StatesChanged()))

    def attached(self, token: str) -> WireEvent:
        """As `EventEncoder.attached`."""
        return _wire(Event(attached=Event.Attached(resume_token=token)))

    def resume(self, token: str) -> WireEvent:
        """As `EventEncoder.resume`."""
        return _wire(Event(resume=Event.Resume(resume_token=token)))

    def resync_required(self, conversation: ConversationId, newest: Cursor) -> WireEvent:
        """As `EventEncoder.resync_required`."""
        resync = Event.ResyncRequired(conversation_id=conversation, generation=newest.generation, newest_seq=newest.seq)
        return _wire(Event(resync_required=resync))

    def detached(self, error: QimError | None, token: str, *, stream_ends: bool) -> WireEvent:
        """As `EventEncoder.detached`."""
        detached = Event.Detached(resume_token=token, stream_ends=stream_ends)
        if error is None:
            detached.status.SetInParent()
        else:
            detached.status.CopyFrom(to_status(error))
        return _wire(Event(detached=detached))


def _wire(event: session_pb2.SubscribeEvent) -> WireEvent:
    return WireEvent(event.SerializeToString())
