"""`ProjectRequest` as the command takes it."""

from __future__ import annotations

from qim.session.v1 import session_pb2
from qim_common.ids import parse_conversation, parse_tenant, parse_user
from qim_session.commands.project import check_count
from qim_session.domain.hints import Hint


def hints_of(request: session_pb2.ProjectRequest) -> list[Hint]:
    """The request's runs. Raises InvalidArgument naming a field, TooManyItems."""
    check_count(len(request.runs))
    return [_hint(run, f"runs[{number}]") for number, run in enumerate(request.runs)]


def _hint(run: session_pb2.ProjectRequest.Run, field: str) -> Hint:
    return Hint(
        tenant=parse_tenant(run.tenant_id, f"{field}.tenant_id"),
        conversation=parse_conversation(run.conversation_id, f"{field}.conversation_id"),
        version=run.membership_version,
        time_ms=run.time_ms,
        broadcast=run.broadcast,
        concerned=tuple(
            parse_user(user, f"{field}.concerned_user_ids[{number}]")
            for number, user in enumerate(run.concerned_user_ids)
        ),
        big=run.big,
        became_big=run.became_big,
    )
