"""What the backend tiered adds to a process: the archive behind Redis (docs/storage-tiers.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Final

from qim_common.cassandra import CassandraLink, CassandraSettings
from qim_common.cassandra.migrations import MigrationError
from qim_common.config import StoreSettings, load
from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import cassandra_metrics
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.backends.redis.archive_removals import RedisArchiveRemovals
from qim_writer.backends.redis.store import RedisStore
from qim_writer.commands.archive_removal import ArchiveRemoval

_log = logging.getLogger(__name__)

FIRST_CONNECTION_SECONDS: Final = 5.0
"""A start waits so long for Cassandra: instances that have to be compared with the archive then serve at once."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The archive of one process, a writer or an archiver."""

    link: CassandraLink
    archive: CassandraArchive
    positions: CassandraArchivePositions

    async def knows_instance(self, position: int) -> bool:
        """Whether the archive has seen anything of a commit instance. Raises BackendUnavailable."""
        return bool(await self.positions.of(position))

    def removal(self, store: RedisStore) -> ArchiveRemoval:
        """The archive's part in the removal of what lies below floors."""
        return ArchiveRemoval(self.archive, RedisArchiveRemovals(store))


async def open_tier(settings: StoreSettings) -> Tier:
    """Begin to connect to Cassandra; the process goes on without it (qim_common.cassandra.link).

    Raises StartRefusedError where the files of the schema are not in order."""
    try:
        link = CassandraLink(load(CassandraSettings), cassandra_metrics(), component="writer")
    except MigrationError as error:
        raise StartRefusedError(str(error)) from error
    link.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_CONNECTION_SECONDS):
            await link.wait()
    if not link.connected:
        _log.warning("Cassandra is not connected; the process starts without it")
    installation, buckets = settings.installation_id, settings.commit_buckets
    return Tier(
        link,
        CassandraArchive(link, installation_id=installation, buckets=buckets),
        CassandraArchivePositions(link, installation_id=installation),
    )
