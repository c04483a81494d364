"""Between the events of a Subscribe stream and the client's values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from qim.session.v1 import session_pb2
from qim_client import convert, live_events
from qim_client.convert_operators import state_entry
from qim_common.errors import from_status
from qim_common.ids import ConversationId

if TYPE_CHECKING:
    from qim_client.attachment import Attachment

ForAttachment = Callable[["Attachment"], live_events.LiveEvent]


def live_event(wire: session_pb2.SubscribeEvent) -> ForAttachment | None:
    """The event, still to be given the attachment that it belongs to; None for a kind that this version does not know.

    What it carries is converted once, however many attachments share it.
    """
    match wire.WhichOneof("event"):
        case "delivered":
            entry = convert.mailbox_entry(wire.delivered)
            return lambda attachment: live_events.Delivered(attachment, entry)
        case "state":
            changed, change = ConversationId(wire.state.conversation_id), state_entry(wire.state.change)
            return lambda attachment: live_events.StateChanged(attachment, changed, change)
        case "read_mark":
            mark, read = wire.read_mark, ConversationId(wire.read_mark.conversation_id)
            return lambda attachment: live_events.ReadMarked(attachment, read, mark.generation, mark.read_seq)
        case "flags":
            flags, flagged = wire.flags, ConversationId(wire.flags.conversation_id)
            return lambda attachment: live_events.FlagsChanged(attachment, flagged, flags.hidden, flags.muted)
        case "states_changed":
            return live_events.StatesChanged
        case "attached":
            attached = wire.attached.resume_token
            return lambda attachment: live_events.Attached(attachment, attached)
        case "resume":
            resumed = wire.resume.resume_token
            return lambda attachment: live_events.Resumed(attachment, resumed)
        case "resync_required":
            resync, lost = wire.resync_required, ConversationId(wire.resync_required.conversation_id)
            return lambda attachment: live_events.ResyncRequired(attachment, lost, resync.generation, resync.newest_seq)
        case "detached":
            ended = wire.detached
            error = from_status(ended.status) if ended.status.code else None
            return lambda attachment: live_events.Detached(attachment, error, ended.resume_token)
        case _:
            return None
