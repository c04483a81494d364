"""The writer on the comparison backend `scylla`: Cassandra or ScyllaDB alone (docs/decisions/0018)."""

from __future__ import annotations

import logging

from qim_common.bindings import Bindings
from qim_common.cassandra import (
    CassandraRefused,
    CassandraRequests,
    CassandraSession,
    CassandraSettings,
    CassandraUnavailable,
    Statement,
)
from qim_common.cassandra.migrate import require_migrated
from qim_common.cassandra.migrations import COMPARISON_COMPONENTS, MigrationError, installed_migrations
from qim_common.config import WriterSettings, load
from qim_common.server.harness import ServerHarness
from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import cassandra_metrics
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.scylla import conversations, people, requests
from qim_writer.backends.scylla.commit_log import ScyllaCommitLog
from qim_writer.backends.scylla.group_state import ScyllaGroupStateStore
from qim_writer.backends.scylla.membership import NoMembershipChanges, ScyllaMembershipStore
from qim_writer.backends.scylla.messages import ScyllaMessageStore
from qim_writer.commands.trimming import Retention, Trimmer
from qim_writer.services import Stores, add_services

_ARCHIVED = Statement("archive_in_use", "SELECT installation_id FROM archive_positions LIMIT 1")

_log = logging.getLogger(__name__)


async def serve_comparison(settings: WriterSettings) -> None:
    """Serves until it is told to stop.

    Raises StartRefusedError: no node answers, or the tables are not there."""
    cassandra = load(CassandraSettings)
    bindings = Bindings(settings.bindings_file)
    harness = ServerHarness(settings, bindings=bindings)
    session = await _open(cassandra)
    _log.warning("the backend scylla is a comparison: see docs/decisions/0018 for what it does not keep")
    installation, buckets = settings.installation_id, settings.commit_buckets
    archive = CassandraArchive(session, installation_id=installation, buckets=buckets)
    commits, states = ScyllaCommitLog(session, archive), ScyllaGroupStateStore(session)
    stores = Stores(
        membership=ScyllaMembershipStore(session, archive, buckets=buckets),
        planned=NoMembershipChanges(session, archive, buckets=buckets),
        messages=ScyllaMessageStore(archive),
        commits=commits,
        states=states,
    )
    trimmer = Trimmer(states, buckets)
    # Of no effect: no group of this backend has a retention.
    retention = Retention(states, trimmer, buckets, interval_seconds=settings.retention_interval_seconds)
    add_services(harness, settings, bindings, stores, trimmer, retention, None)
    await harness.run([session.close, commits.close])


async def refuse_archive(session: CassandraRequests) -> None:
    """Raises StartRefusedError for a keyspace that is the archive of an installation: ids of direct conversations are
    always the same ones, and messages of this backend would replace the archived ones."""
    found = await session.execute(_ARCHIVED)
    if found:
        raise StartRefusedError(
            f"the keyspace is the archive of the installation {found[0][0]}, whose messages the backend scylla would "
            "overwrite: name another one in QIM_CASSANDRA_KEYSPACE, and migrate it with `--backend scylla`"
        )


async def _open(settings: CassandraSettings) -> CassandraSession:
    """The session, its tables checked and its statements prepared."""
    try:
        session = await CassandraSession.connect(settings, cassandra_metrics())
        try:
            await require_migrated(session, installed_migrations(COMPARISON_COMPONENTS))
            await refuse_archive(session)
            await session.prepare(*conversations.STATEMENTS, *people.STATEMENTS, *requests.STATEMENTS)
        except BaseException:
            await session.close()
            raise
    except CassandraUnavailable as error:
        raise StartRefusedError(f"{error}; start Cassandra or mend QIM_CASSANDRA_*") from error
    except CassandraRefused as error:
        raise StartRefusedError(f"{error} (the tables of this backend: `--backend scylla`)") from error
    except MigrationError as error:
        raise StartRefusedError(str(error)) from error
    return session
