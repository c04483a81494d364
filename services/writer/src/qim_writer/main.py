"""The writer process: everything is put together here and nowhere else."""

from __future__ import annotations

import asyncio

from qim.membership.v1 import membership_pb2_grpc
from qim.writer.v1 import group_control_pb2_grpc, internal_pb2_grpc, writer_pb2_grpc
from qim_common.bindings import Bindings
from qim_common.channels import ChannelProvider
from qim_common.config import WriterSettings, load
from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, ScriptLoader, check_instance, verify_topology
from qim_common.server.harness import ServerHarness
from qim_common.server.runtime import run_service
from qim_common.start import StartRefusedError
from qim_common.telemetry.logs import configure_logging
from qim_common.tokens import TokenSigner
from qim_common.topology import Topology
from qim_writer.backends.redis.group_commit import RedisCommitLog
from qim_writer.backends.redis.group_state import RedisGroupStateStore
from qim_writer.backends.redis.membership import RedisMembershipStore
from qim_writer.backends.redis.messages import RedisMessageStore
from qim_writer.backends.redis.store import SCRIPTS, RedisStore
from qim_writer.backends.session_client import SessionLane
from qim_writer.commands.authorize import Authorization
from qim_writer.commands.change_members import GroupQueues, MemberChanges
from qim_writer.commands.clear_history import OwnClear
from qim_writer.commands.delivered import DeliveredPages
from qim_writer.commands.explain import Explain
from qim_writer.commands.group_state import GroupState
from qim_writer.commands.hints import HintLane
from qim_writer.commands.history import History
from qim_writer.commands.members import Members
from qim_writer.commands.states import PersonStates
from qim_writer.commands.trimming import Retention, Trimmer
from qim_writer.domain.policy import Limits
from qim_writer.handlers.group_control import GroupControlHandler
from qim_writer.handlers.internal import InternalHandler
from qim_writer.handlers.membership import GroupMembershipHandler
from qim_writer.handlers.writer import WriterHandler

_MS_PER_HOUR = 3_600_000


async def open_store(settings: WriterSettings) -> RedisStore:
    """The Redis instances, checked and connected.

    Raises StartRefusedError: UnsafeRedis, TopologyMismatch, an instance that does not answer."""
    topology = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id)
    instances = [
        Instance(address, name="writer", instance_position=position)
        for position, address in enumerate(topology.addresses)
    ]
    try:
        for instance in instances:
            instance.on_connected += [check_instance, ScriptLoader(SCRIPTS)]
            await instance.start()
        await verify_topology(instances, topology)
    except BackendUnavailable as error:
        raise StartRefusedError(f"{error}; start Redis or mend QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS") from error
    return RedisStore(instances, topology, retention_ms=int(settings.dispatch_retention_hours * _MS_PER_HOUR))


async def serve(settings: WriterSettings) -> None:
    """Serves until it is told to stop."""
    bindings = Bindings(settings.bindings_file)
    harness = ServerHarness(settings, bindings=bindings)
    store = await open_store(settings)
    limits = Limits(
        member_limit=settings.group_member_limit,
        member_limit_max=settings.group_member_limit_max,
        broadcast_max_members=settings.membership_event_broadcast_max_members,
        fanout_max_members=settings.projection_fanout_max_members,
    )
    channels = ChannelProvider(settings.session_addr, settings.client_tls) if settings.session_addr else None
    lane = HintLane(SessionLane(channels)) if channels else None
    membership, messages, commits = RedisMembershipStore(store), RedisMessageStore(store), RedisCommitLog(store, lane)
    queues = GroupQueues()
    changes = MemberChanges(membership, limits, queues, lane)
    tokens = TokenSigner(settings.token_key_file)
    members = Members(membership, tokens, settings.commit_buckets)
    states = RedisGroupStateStore(store)
    trimmer = Trimmer(states, settings.commit_buckets)
    groups = GroupState(membership, states, trimmer, limits, queues)
    retention = Retention(
        states, trimmer, settings.commit_buckets, interval_seconds=settings.retention_interval_seconds
    )
    harness.add(
        membership_pb2_grpc.add_GroupMembershipServicer_to_server,
        GroupMembershipHandler(
            store=membership,
            changes=changes,
            members=members,
            authorization=Authorization(membership),
            limits=limits,
            tasks=harness.tasks,
            hints=lane,
        ),
        service="qim.membership.v1.GroupMembership",
    )
    harness.add(
        writer_pb2_grpc.add_WriterServicer_to_server,
        WriterHandler(
            commits=commits,
            changes=changes,
            history=History(membership, messages),
            members=members,
            groups=groups,
            own_clear=OwnClear(membership, states),
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
            questions=Explain(membership, messages, states, tokens),
            limits=limits,
            tasks=harness.tasks,
        ),
        service="qim.writer.v1.GroupControl",
    )
    background = [asyncio.create_task(trimmer.run()), asyncio.create_task(retention.run())]
    if lane is not None:
        background.append(asyncio.create_task(lane.run()))

    async def end_background() -> None:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        if channels is not None:
            await channels.close()

    await harness.run([*(instance.close for instance in store.instances), end_background])


def main() -> None:
    """The entry point `qim-writer`."""
    settings = load(WriterSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    run_service(lambda: serve(settings))


if __name__ == "__main__":
    main()
