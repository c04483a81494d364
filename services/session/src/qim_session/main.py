"""The session service's process: reads the configuration, connects, and puts the parts together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

from qim.session.v1.session_pb2_grpc import add_SessionServicer_to_server
from qim_common.bindings import Bindings
from qim_common.channels import ChannelProvider
from qim_common.config import SessionSettings, load
from qim_common.errors import BackendUnavailable
from qim_common.redis import Role
from qim_common.server.harness import ServerHarness
from qim_common.server.runtime import run_service
from qim_common.start import StartRefusedError
from qim_common.telemetry.logs import configure_logging
from qim_common.telemetry.metrics import session_metrics
from qim_common.tokens import TokenSigner
from qim_common.topology import Topology
from qim_session.authority import open_authority
from qim_session.backends.redis_dispatch import RedisDispatchLog
from qim_session.backends.redis_flags import SET_FLAGS, RedisFlags
from qim_session.backends.redis_leases import RELEASE_LEASES, RENEW_LEASES, RedisLeases
from qim_session.backends.redis_marks import POP_UNFLUSHED, RESTORE_FLAGS
from qim_session.backends.redis_memlog import RedisMemberLog
from qim_session.backends.redis_people import ADVANCE_CURSORS, RedisPeople
from qim_session.backends.redis_projection import POP_PENDING, PROJECT_ENTRIES, SETTLE_PROGRESS, RedisProjectionStore
from qim_session.backends.redis_rebuild import RedisListRestore
from qim_session.backends.writer_client import WriterClient
from qim_session.commands.audience import Audiences
from qim_session.commands.consume import DispatchConsumer
from qim_session.commands.flags import SetConversationFlags
from qim_session.commands.leases import Leases
from qim_session.commands.list_conversations import ListConversations
from qim_session.commands.listed import Entries
from qim_session.commands.mailbox import Mailbox
from qim_session.commands.mark_read import MarkRead
from qim_session.commands.memlog import MemlogRegistrar
from qim_session.commands.person_conversations import PersonConversations
from qim_session.commands.progress import ProgressReader
from qim_session.commands.project import Project
from qim_session.commands.projection import Projector
from qim_session.commands.projection_lane import ProjectionLane
from qim_session.commands.pull_mailbox import PullMailbox
from qim_session.commands.rebuild import Rebuild
from qim_session.commands.register import Registrar
from qim_session.domain.membership import MembersCache
from qim_session.handlers.session import SERVICE, SessionHandler
from qim_session.live_wiring import live_service
from qim_session.process_wiring import Worker, connect, hold_all, run_worker

MEMBERS_IN_MEMORY = 500_000
"""People in all cached groups together, about 100 bytes each; of each of the two lanes."""


SCRIPTS = (
    *(PROJECT_ENTRIES, SETTLE_PROGRESS, POP_PENDING, ADVANCE_CURSORS, SET_FLAGS, RENEW_LEASES, RELEASE_LEASES),
    *(POP_UNFLUSHED, RESTORE_FLAGS),
)


def main() -> None:
    """The entry point `qim-session`; exits with 1 where the service must not start, with 2 on a bad configuration."""
    settings = load(SessionSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    run_service(lambda: serve(settings))


async def serve(settings: SessionSettings) -> None:
    """Serve until told to stop. Raises StartRefusedError where the service must not start as it is configured."""
    async with AsyncExitStack() as stack:
        bindings = Bindings(settings.bindings_file)
        harness = ServerHarness(settings, bindings=bindings)
        commits = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
        sessions = Topology(settings.session_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
        logs = await connect(stack, commits, Role.COMMIT, name="qim-session-dispatch")
        memlogs = await connect(stack, commits, Role.COMMIT, name="qim-session-memlog")
        stores = await connect(stack, sessions, Role.SESSION, name="qim-session", scripts=SCRIPTS)
        tails = await connect(stack, commits, Role.COMMIT, name="qim-session-live")
        clocks = await connect(stack, commits, Role.COMMIT, name="qim-session-clock")
        signals = await connect(stack, sessions, Role.SESSION, name="qim-session-signals")
        channels = ChannelProvider(settings.writer_addr, settings.client_tls)
        stack.push_async_callback(channels.close)

        metrics = session_metrics()
        writer = WriterClient(channels)
        tiered, archived = settings.backend == "tiered", settings.ack_level == "archived"
        people = RedisPeople(stores, sessions, written_behind=tiered)
        authority = open_authority(settings, stack, people=people, stores=stores, sessions=sessions, metrics=metrics)
        projections = [RedisProjectionStore(store, sessions) for store in stores]
        registrars = [Registrar(projection, authority.sets, metrics) for projection in projections]
        projector = Projector(projections, sessions, on_registered=lambda: _notify(registrars))
        audiences = Audiences(writer, MembersCache(MEMBERS_IN_MEMORY), metrics)
        members = [
            MemlogRegistrar(RedisMemberLog(log, commits.buckets_of(log.position)), authority.sets, metrics)
            for log in memlogs
        ]
        hint_audiences = Audiences(writer, MembersCache(MEMBERS_IN_MEMORY), metrics)
        consumers = [
            DispatchConsumer(
                RedisDispatchLog(log, commits.buckets_of(log.position), archived=archived),
                ProjectionLane(projector, audiences, registrar, metrics, on_renewed=hint_audiences.forget),
                metrics,
            )
            for log, registrar in zip(logs, members, strict=True)
        ]
        progress = ProgressReader(projections, range(commits.buckets))
        project = Project(projector, hint_audiences, progress, commits, metrics)
        leases = Leases(
            RedisLeases(stores[0], commits.buckets),
            metrics,
            holder=os.urandom(16),
            on_change=lambda held: hold_all([*consumers, *members, *authority.flushers], held),
        )
        try:
            await asyncio.gather(*(consumer.check_start() for consumer in consumers))
        except BackendUnavailable as error:
            raise StartRefusedError(str(error)) from None
        workers: list[Worker] = [*consumers, *members, *registrars, *authority.flushers, project]
        for worker in workers:
            run_worker(stack, worker)
        stack.push_async_callback(leases.release)
        run_worker(stack, leases)

        rebuild = Rebuild(
            RedisListRestore(stores, sessions),
            authority.sets,
            writer,
            registrars,
            sessions,
            metrics,
            restore_marks=authority.restore_marks,
        )
        entries = Entries(people, writer)
        mailbox = Mailbox(
            people,
            writer,
            metrics,
            max_entries=settings.mailbox_max_entries,
            max_age_days=settings.mailbox_max_age_days,
        )
        signer = TokenSigner(settings.token_key_file)
        live = live_service(
            settings,
            commits=commits,
            sessions=sessions,
            tails=tails,
            clocks=clocks,
            signals=signals,
            stores=stores,
            writer=writer,
            people=people,
            mailbox=mailbox,
            rebuild=rebuild,
            progress=progress,
            signer=signer,
            metrics=metrics,
        )
        for live_worker in live.workers:
            run_worker(stack, live_worker)
        handler = SessionHandler(
            list_conversations=ListConversations(rebuild, people, entries, signer, metrics, progress),
            person_conversations=PersonConversations(rebuild, people, entries, metrics),
            mark_read=MarkRead(rebuild, people, writer),
            set_conversation_flags=SetConversationFlags(
                rebuild, entries, RedisFlags(stores, sessions, written_behind=tiered)
            ),
            pull_mailbox=PullMailbox(rebuild, people, mailbox),
            project=project,
            live=live,
            bindings=bindings,
        )
        harness.add(add_SessionServicer_to_server, handler, service=SERVICE)
        await harness.run()


def _notify(registrars: Sequence[Registrar]) -> None:
    for registrar in registrars:
        registrar.notify()


if __name__ == "__main__":
    main()
