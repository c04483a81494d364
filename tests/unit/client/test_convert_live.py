"""Every kind of live event as the client tells it."""

from __future__ import annotations

from typing import cast

import pytest

from qim.common.v1 import types_pb2
from qim.session.v1 import session_pb2
from qim_client import (
    Attached,
    Attachment,
    Delivered,
    Detached,
    DeviceCursor,
    FlagsChanged,
    LiveEvent,
    ReadMarked,
    Resumed,
    ResyncRequired,
    SeqRange,
    StateChanged,
    StateEntry,
    StatesChanged,
)
from qim_client.answers import MailboxEntry
from qim_client.convert_live import live_event
from qim_common.errors import Overloaded
from qim_common.errors.status import to_status
from qim_common.ids import ConversationId
from qim_common.records import StateChange

WHO = cast(Attachment, object())
GROUP = ConversationId(bytes([2]) * 16)
Event = session_pb2.SubscribeEvent

TABLE: list[tuple[session_pb2.SubscribeEvent, LiveEvent]] = [
    (
        Event(
            delivered=session_pb2.MailboxEntry(
                conversation_id=GROUP, withheld=types_pb2.SeqRange(first_seq=3, last_seq=5), generation=2
            )
        ),
        Delivered(WHO, MailboxEntry(GROUP, None, SeqRange(3, 5), 2)),
    ),
    (
        Event(
            state=Event.State(
                conversation_id=GROUP,
                change=types_pb2.StateChange(revision=4, kind=types_pb2.StateChange.KIND_FLOOR, group_floor_seq=9),
            )
        ),
        StateChanged(WHO, GROUP, StateEntry(4, StateChange.FLOOR, 0, 0, 0, "", None, None, False, 9)),
    ),
    (
        Event(read_mark=Event.ReadMark(conversation_id=GROUP, generation=1, read_seq=8)),
        ReadMarked(WHO, GROUP, 1, 8),
    ),
    (Event(flags=Event.Flags(conversation_id=GROUP, hidden=True)), FlagsChanged(WHO, GROUP, True, False)),
    (Event(states_changed=Event.StatesChanged()), StatesChanged(WHO)),
    (Event(attached=Event.Attached(resume_token="t")), Attached(WHO, "t")),
    (Event(resume=Event.Resume(resume_token="t")), Resumed(WHO, "t")),
    (
        Event(resync_required=Event.ResyncRequired(conversation_id=GROUP, generation=1, newest_seq=7)),
        ResyncRequired(WHO, GROUP, 1, 7),
    ),
    (Event(detached=Event.Detached(resume_token="t")), Detached(WHO, None, "t")),
]


@pytest.mark.parametrize(("wire", "told"), TABLE, ids=lambda item: type(item).__name__)
def test_an_event_is_told_to_its_attachment(wire: session_pb2.SubscribeEvent, told: LiveEvent) -> None:
    make = live_event(wire)
    assert make is not None
    assert make(WHO) == told


def test_an_end_by_name_carries_the_error() -> None:
    make = live_event(Event(detached=Event.Detached(status=to_status(Overloaded()), resume_token="t")))
    assert make is not None
    told = make(WHO)
    assert isinstance(told, Detached)
    assert (type(told.error), told.reason, told.resume_token) == (Overloaded, "OVERLOADED", "t")


def test_a_kind_that_is_not_known_is_passed_over() -> None:
    assert live_event(Event()) is None


@pytest.mark.parametrize(
    ("told", "cursor"),
    [
        (Delivered(WHO, MailboxEntry(GROUP, None, SeqRange(3, 5), 2)), DeviceCursor(GROUP, 2, 5)),
        (ResyncRequired(WHO, GROUP, 1, 7), DeviceCursor(GROUP, 1, 7)),
    ],
)
def test_what_to_acknowledge(told: Delivered | ResyncRequired, cursor: DeviceCursor) -> None:
    assert told.cursor == cursor
