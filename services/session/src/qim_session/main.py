"""The session service's process: reads the configuration, connects, and puts the parts together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from qim.session.v1.session_pb2_grpc import add_SessionServicer_to_server
from qim_common.bindings import Bindings
from qim_common.channels import ChannelProvider
from qim_common.config import SessionSettings, load
from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, Role, ScriptLoader, check_instance, verify_topology
from qim_common.server.harness import ServerHarness
from qim_common.server.runtime import run_service
from qim_common.start import StartRefusedError
from qim_common.telemetry.logs import configure_logging
from qim_common.telemetry.metrics import session_metrics
from qim_common.tokens import TokenSigner
from qim_common.topology import Topology
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_people import ADVANCE_CURSORS, RedisPeople
from qim_session.backends.redis_projection import POP_PENDING, PROJECT_ENTRIES, RedisProjectionStore
from qim_session.backends.writer_client import WriterClient
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer, progress_of
from qim_session.commands.list_conversations import ListConversations
from qim_session.commands.mark_read import MarkRead
from qim_session.commands.person_conversations import PersonConversations
from qim_session.commands.projection import Projector
from qim_session.commands.pull_mailbox import PullMailbox
from qim_session.commands.register import Registrar
from qim_session.domain.membership import MembersCache
from qim_session.handlers.session import SERVICE, SessionHandler

MEMBERS_IN_MEMORY = 500_000
"""People in all cached groups together, about 100 bytes each."""


def main() -> None:
    """The entry point `qim-session`; exits with 1 where the service must not start, with 2 on a bad configuration."""
    settings = load(SessionSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    run_service(lambda: serve(settings))


async def serve(settings: SessionSettings) -> None:
    """Serve until told to stop. Raises StartRefusedError where the service must not start as it is configured."""
    async with AsyncExitStack() as stack:
        harness = ServerHarness(settings, bindings=Bindings(settings.bindings_file))
        commits = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id)
        sessions = Topology(settings.session_addrs, settings.commit_buckets, settings.installation_id)
        logs = await _connect(stack, commits, Role.COMMIT, name="qim-session-dispatch")
        stores = await _connect(stack, sessions, Role.SESSION, name="qim-session")
        channels = ChannelProvider(settings.writer_addr, settings.client_tls)
        stack.push_async_callback(channels.close)

        metrics = session_metrics()
        writer = WriterClient(channels)
        people = RedisPeople(stores, sessions)
        projections = [RedisProjectionStore(store, sessions) for store in stores]
        registrars = [Registrar(projection, people, metrics) for projection in projections]
        projector = Projector(projections, sessions, on_registered=lambda: _notify(registrars))
        audiences = Audiences(writer, MembersCache(MEMBERS_IN_MEMORY), metrics)
        consumers = [
            DispatchConsumer(RedisDispatchLog(log, commits.buckets_of(log.position)), projector, audiences, metrics)
            for log in logs
        ]
        try:
            await asyncio.gather(*(consumer.locate() for consumer in consumers))
        except BackendUnavailable as error:
            raise StartRefusedError(str(error)) from None
        for consumer in consumers:
            _run(stack, consumer)
        for registrar in registrars:
            _run(stack, registrar)

        handler = SessionHandler(  # type: ignore[abstract]  # the rest of the base class answers UNIMPLEMENTED
            list_conversations=ListConversations(
                people, people, writer, TokenSigner(settings.token_key_file), metrics, lambda: progress_of(consumers)
            ),
            person_conversations=PersonConversations(people, people, writer),
            mark_read=MarkRead(people, writer),
            pull_mailbox=PullMailbox(people, people, writer, metrics),
        )
        harness.add(add_SessionServicer_to_server, handler, service=SERVICE)
        await harness.run()


async def _connect(stack: AsyncExitStack, topology: Topology, role: Role, *, name: str) -> list[Instance]:
    """The instances of one list, started and checked; closed with the stack."""
    instances = [
        Instance(address, name=name, instance_position=position) for position, address in enumerate(topology.addresses)
    ]
    for instance in instances:
        instance.on_connected.append(check_instance)
        if role is Role.SESSION:
            instance.on_connected.append(ScriptLoader([PROJECT_ENTRIES, POP_PENDING, ADVANCE_CURSORS]))
        stack.push_async_callback(instance.close)
    try:
        await asyncio.gather(*(instance.start() for instance in instances))
        await verify_topology(instances, topology, role)
    except BackendUnavailable as error:
        raise StartRefusedError(str(error)) from None
    return instances


def _notify(registrars: Sequence[Registrar]) -> None:
    for registrar in registrars:
        registrar.notify()


def _run(stack: AsyncExitStack, worker: DispatchConsumer | Registrar) -> None:
    """Run a worker until the stack closes; cancelling one is safe at any moment."""
    task = asyncio.create_task(worker.run(), name=type(worker).__name__)

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(stop)


if __name__ == "__main__":
    main()
