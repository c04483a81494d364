"""protos/gen is what protos/qim yields, and holds every service and method of contracts.md, "Services"."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from qim_devkit.protos import ProtocFailedError, generate, repository_root

PROTOS = repository_root() / "protos"

UNARY = (False, False)
SERVER_STREAM = (False, True)
BIDIRECTIONAL = (True, True)

SERVICES: dict[tuple[str, str], dict[str, tuple[bool, bool]]] = {
    ("qim.membership.v1.membership_pb2", "GroupMembership"): {
        "CreateGroup": UNARY,
        "AdminChangeMembers": UNARY,
        "AuthorizeSend": UNARY,
        "AuthorizeHistory": UNARY,
        "MembersPage": UNARY,
        "FreezeDelivery": UNARY,
        "RecipientsForVersion": SERVER_STREAM,
    },
    ("qim.writer.v1.writer_pb2", "Writer"): {
        "SendMessage": UNARY,
        "SendMessages": BIDIRECTIONAL,
        "LeaveGroup": UNARY,
        "PullHistory": UNARY,
        "GetMessages": UNARY,
        "GetVisibleRange": UNARY,
        "MembersSince": UNARY,
        "ClearHistory": UNARY,
        "ClearGroupHistory": UNARY,
        "TransferOwnership": UNARY,
    },
    ("qim.writer.v1.group_control_pb2", "GroupControl"): {
        "GetGroup": UNARY,
        "FindGroups": UNARY,
        "ListMembers": UNARY,
        "UpdateGroupSettings": UNARY,
        "TransferOwnership": UNARY,
        "ClearGroupHistory": UNARY,
        "GroupTimeline": UNARY,
        "ExplainVisibility": UNARY,
        "FreezeGroup": UNARY,
        "RunRetention": UNARY,
    },
    ("qim.writer.v1.internal_pb2", "Internal"): {
        "ConversationStates": UNARY,
        "DeliveredPage": UNARY,
    },
    ("qim.session.v1.session_pb2", "Session"): {
        "ListConversations": UNARY,
        "GetConversation": UNARY,
        "GetTotalUnread": UNARY,
        "MarkRead": UNARY,
        "SetConversationFlags": UNARY,
        "Subscribe": BIDIRECTIONAL,
        "PullMailbox": UNARY,
        "Project": UNARY,
    },
    ("qim.admin.v1.admin_pb2", "GroupAdmin"): {
        "AddMembers": UNARY,
        "RemoveMembers": UNARY,
        "GetGroup": UNARY,
        "ListMembers": UNARY,
        "FindGroups": UNARY,
        "GroupTimeline": UNARY,
        "ExplainVisibility": UNARY,
        "UpdateGroupSettings": UNARY,
        "TransferOwnership": UNARY,
        "ClearGroupHistory": UNARY,
        "FreezeGroup": UNARY,
        "RunRetention": UNARY,
    },
}


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_the_committed_code_is_what_the_protos_yield(tmp_path: Path) -> None:
    generate(PROTOS, tmp_path)
    fresh, committed = contents(tmp_path / "qim"), contents(PROTOS / "gen" / "qim")
    differing = sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))
    assert differing == [], "run `make protos` and commit its result"


def test_generating_again_touches_nothing_and_removes_what_no_proto_yields(tmp_path: Path) -> None:
    generate(PROTOS, tmp_path)
    assert generate(PROTOS, tmp_path) == []
    stale = tmp_path / "qim" / "common" / "v1" / "forgotten_pb2.py"
    stale.write_text("")
    assert generate(PROTOS, tmp_path) == [stale]
    assert not stale.exists()


def test_a_faulty_proto_is_refused_with_its_file_and_line(tmp_path: Path) -> None:
    source = tmp_path / "qim" / "common" / "v1" / "faulty.proto"
    source.parent.mkdir(parents=True)
    source.write_text('syntax = "proto3";\nmessage Broken { unknown.Type field = 1; }\n')
    with pytest.raises(ProtocFailedError, match=r"faulty\.proto:2"):
        generate(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("module", "service"), SERVICES, ids=[service for _, service in SERVICES])
def test_every_method_of_the_contract_exists(module: str, service: str) -> None:
    descriptor: ServiceDescriptor = importlib.import_module(module).DESCRIPTOR.services_by_name[service]
    methods = {method.name: (method.client_streaming, method.server_streaming) for method in descriptor.methods}
    assert methods == SERVICES[module, service]


def test_no_service_exists_beside_the_contract() -> None:
    modules = (PROTOS / "gen" / "qim").rglob("*_pb2.py")
    found: set[tuple[str, str]] = set()
    for path in modules:
        name = ".".join(path.relative_to(PROTOS / "gen").with_suffix("").parts)
        found.update((name, service) for service in importlib.import_module(name).DESCRIPTOR.services_by_name)
    assert found == set(SERVICES)
