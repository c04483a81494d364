"""The writer's gRPC services over the stores of whichever backend."""

from __future__ import annotations

from dataclasses import dataclass

from qim.membership.v1 import membership_pb2_grpc
from qim.writer.v1 import group_control_pb2_grpc, internal_pb2_grpc, writer_pb2_grpc
from qim_common.bindings import Bindings
from qim_common.config import WriterSettings
from qim_common.server.harness import ServerHarness
from qim_common.tokens import TokenSigner
from qim_writer.commands.authorize import Authorization
from qim_writer.commands.change_members import GroupQueues, MemberChanges
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.delivered import DeliveredPages
from qim_writer.commands.explain import Explain
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.history import History
from qim_writer.commands.members import Members
from qim_writer.commands.retention_run import RetentionRuns
from qim_writer.commands.states import PersonStates
from qim_writer.commands.trimming import Retention, Trimmer
from qim_writer.domain.hints import CommitHints
from qim_writer.domain.policy import Limits
from qim_writer.handlers.group_control import GroupControlHandler
from qim_writer.handlers.internal import InternalHandler
from qim_writer.handlers.membership import GroupMembershipHandler
from qim_writer.handlers.writer import WriterHandler
from qim_writer.storage import CommitLog, GroupStateStore, MembershipStore, MessageStore
from qim_writer.storage_archive import ArchiveRemovals


@dataclass(frozen=True, slots=True)
class Stores:
    """What a backend brings. `planned` is the membership that changes are planned on and applied to; `removals` is None
    where nothing is removed from an archive."""

    membership: MembershipStore
    planned: MembershipStore
    messages: MessageStore
    commits: CommitLog
    states: GroupStateStore
    removals: ArchiveRemovals | None = None


def add_services(
    harness: ServerHarness,
    settings: WriterSettings,
    bindings: Bindings,
    stores: Stores,
    trimmer: Trimmer,
    retention: Retention,
    hints: CommitHints | None,
) -> None:
    """Put the four services together and add them. `hints` hears of changes; None: there is no lane.

    Raises StartRefusedError for a token key that cannot be taken."""
    membership, messages = stores.membership, stores.messages
    limits = Limits(
        member_limit=settings.group_member_limit,
        member_limit_max=settings.group_member_limit_max,
        broadcast_max_members=settings.membership_event_broadcast_max_members,
        fanout_max_members=settings.projection_fanout_max_members,
    )
    queues = GroupQueues()
    changes = MemberChanges(stores.planned, limits, queues, hints)
    tokens = TokenSigner(settings.token_key_file)
    members = Members(membership, tokens, settings.commit_buckets)
    groups = GroupState(membership, stores.states, trimmer, limits, queues)
    harness.add(
        membership_pb2_grpc.add_GroupMembershipServicer_to_server,
        GroupMembershipHandler(
            store=membership,
            changes=changes,
            members=members,
            authorization=Authorization(membership),
            limits=limits,
            tasks=harness.tasks,
            hints=hints,
        ),
        service="qim.membership.v1.GroupMembership",
    )
    harness.add(
        writer_pb2_grpc.add_WriterServicer_to_server,
        WriterHandler(
            commits=stores.commits,
            changes=changes,
            history=History(membership, messages),
            members=members,
            groups=groups,
            own_clear=OwnClear(membership, stores.states),
            bindings=bindings,
            tasks=harness.tasks,
            message_max_bytes=settings.message_max_bytes,
        ),
        service="qim.writer.v1.Writer",
    )
    harness.add(
        internal_pb2_grpc.add_InternalServicer_to_server,
        InternalHandler(PersonStates(membership, messages), DeliveredPages(membership, messages)),
        service="qim.writer.v1.Internal",
    )
    harness.add(
        group_control_pb2_grpc.add_GroupControlServicer_to_server,
        GroupControlHandler(  # type: ignore[abstract]  # FindGroups answers UNIMPLEMENTED
            store=membership,
            members=members,
            groups=groups,
            questions=Explain(membership, messages, stores.states, tokens),
            retention=RetentionRuns(stores.states, retention, stores.removals, tokens, settings.commit_buckets),
            limits=limits,
            tasks=harness.tasks,
        ),
        service="qim.writer.v1.GroupControl",
    )
