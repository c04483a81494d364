"""Protobuf of conversations and mailbox entries, in and out."""

from __future__ import annotations

from qim.session.v1 import session_pb2
from qim_common.ids import ConversationId, parse_conversation
from qim_session.commands.listed import ListedConversation
from qim_session.commands.mailbox import Acknowledgement
from qim_session.domain.cursors import Cursor
from qim_session.storage.conversations import WireMessage, Withheld


def complete(wire: session_pb2.Conversation, listed: ListedConversation) -> None:
    """Make an empty message an entry of a list: as its owner gives it, with what the person has set."""
    wire.MergeFromString(listed.state.entry)
    wire.read_seq = listed.read_seq
    wire.hidden = listed.hidden
    wire.muted = listed.muted


def to_conversation(listed: ListedConversation) -> session_pb2.Conversation:
    """An entry of a list."""
    wire = session_pb2.Conversation()
    complete(wire, listed)
    return wire


def to_mailbox_entry(
    conversation: ConversationId, generation: int, content: WireMessage | Withheld
) -> session_pb2.MailboxEntry:
    """A delivered message, or a stretch of delivered seqs without their bodies."""
    wire = session_pb2.MailboxEntry(conversation_id=conversation, generation=generation)
    if isinstance(content, Withheld):
        wire.withheld.first_seq = content.first_seq
        wire.withheld.last_seq = content.last_seq
    else:
        wire.message.MergeFromString(content)
    return wire


def from_acknowledgement(ack: session_pb2.DeviceCursor, field: str) -> Acknowledgement:
    """An acknowledgement; raises InvalidArgument naming a part of `field`."""
    conversation = parse_conversation(ack.conversation_id, f"{field}.conversation_id")
    return Acknowledgement(conversation, Cursor(ack.generation, ack.seq))
