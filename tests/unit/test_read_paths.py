"""Every read path goes through the one function (design.md invariant 6): an RPC that tells somebody about messages must
be registered here with the test that compares it with the reference model."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

import qim
from qim.common.v1 import types_pb2

FILES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(qim.__path__, "qim.")
    if module.name.endswith("_pb2")
]
MESSAGE_DATA = {types_pb2.Message.DESCRIPTOR.full_name, types_pb2.SeqRange.DESCRIPTOR.full_name}
TELLING_FIELDS = {"unread_count", "visible"}
"""Fields that are no message and say something about messages nevertheless."""

TESTS = "tests/model/test_visibility.py"
WATCHED_BY = {
    "qim.writer.v1.Writer.PullHistory": "test_pull_history_returns_exactly_the_visible_messages",
    "qim.writer.v1.Writer.GetMessages": "test_get_messages_leaves_out_what_is_not_visible",
    "qim.writer.v1.Writer.GetVisibleRange": "test_get_visible_range_is_what_the_stays_leave",
    "qim.writer.v1.Internal.ConversationStates": "test_conversation_states_show_the_newest_visible_message",
    "qim.writer.v1.Internal.DeliveredPage": "test_delivered_page_withholds_what_is_not_visible",
    "qim.session.v1.Session.ListConversations": "test_list_conversations_shows_the_newest_visible_message",
    "qim.session.v1.Session.GetConversation": "test_get_conversation_shows_the_newest_visible_message",
    "qim.session.v1.Session.GetTotalUnread": "test_get_total_unread_counts_only_what_counts",
    "qim.session.v1.Session.MarkRead": "test_mark_read_counts_only_what_counts",
    "qim.session.v1.Session.SetConversationFlags": "test_set_conversation_flags_shows_the_newest_visible_message",
    "qim.session.v1.Session.PullMailbox": "test_pull_mailbox_withholds_what_is_not_visible",
    "qim.session.v1.Session.Subscribe": "test_subscribe_withholds_what_is_not_visible",
    "qim.admin.v1.GroupAdmin.ExplainVisibility": "test_explain_visibility_decides_as_the_history_does",
    "qim.admin.v1.GroupAdmin.GroupTimeline": "test_group_timeline_shows_the_stays_and_what_is_visible",
    # Asked through the admin service, which passes the answers on.
    "qim.writer.v1.GroupControl.ExplainVisibility": "test_explain_visibility_decides_as_the_history_does",
    "qim.writer.v1.GroupControl.GroupTimeline": "test_group_timeline_shows_the_stays_and_what_is_visible",
}


def methods() -> Iterator[MethodDescriptor]:
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def tells_of_messages(answer: Descriptor | None, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a response holds message data, however deep."""
    assert answer is not None
    if answer.full_name in MESSAGE_DATA:
        return True
    if answer.full_name in seen:
        return False
    inside = seen | {answer.full_name}
    return any(
        field.name in TELLING_FIELDS
        or (field.type == FieldDescriptor.TYPE_MESSAGE and tells_of_messages(field.message_type, inside))
        for field in answer.fields
    )


READ_PATHS = sorted(method.full_name for method in methods() if tells_of_messages(method.output_type))


def test_read_paths_are_found_however_deep_the_messages_lie() -> None:
    assert "qim.writer.v1.Writer.PullHistory" in READ_PATHS
    assert "qim.session.v1.Session.Subscribe" in READ_PATHS, "SubscribeResponse.delivered.message"
    assert "qim.writer.v1.Writer.SendMessage" not in READ_PATHS


@pytest.mark.parametrize("path", READ_PATHS)
def test_every_read_path_is_watched(path: str) -> None:
    assert path in WATCHED_BY, f"{path}: write its test in {TESTS} and register it here"


@pytest.mark.parametrize("path", sorted(WATCHED_BY))
def test_nothing_else_is_registered(path: str) -> None:
    assert path in READ_PATHS


@pytest.mark.parametrize("test", sorted(set(WATCHED_BY.values())))
def test_the_watching_test_exists(test: str) -> None:
    tree = ast.parse((Path(__file__).parents[2] / TESTS).read_text())
    assert test in {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
