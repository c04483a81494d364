"""Messages that are passed on in their wire form under another name."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from qim.session.v1 import session_pb2
from qim.writer.v1 import internal_pb2

SESSION_ONLY = {"read_seq", "hidden", "muted"}
"""What the session service adds to an entry."""


def _layout(message: Descriptor) -> dict[str, tuple[object, ...]]:
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.message_type and field.message_type.full_name,
            field.enum_type and field.enum_type.full_name,
        )
        for field in message.fields
    }


def test_an_entry_of_the_writer_is_a_conversation_without_what_only_the_session_service_knows() -> None:
    entry = _layout(internal_pb2.ListEntry.DESCRIPTOR)
    conversation = _layout(session_pb2.Conversation.DESCRIPTOR)
    assert {name: conversation[name] for name in conversation.keys() - SESSION_ONLY} == entry
