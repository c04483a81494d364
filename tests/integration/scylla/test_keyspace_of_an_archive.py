"""The comparison never writes into the archive of an installation."""

from __future__ import annotations

import secrets

import pytest
from tests.support.cassandra import CASSANDRA_MARKS

from qim_common.cassandra import CassandraSession
from qim_common.positions import Position
from qim_common.start import StartRefusedError
from qim_writer.backends.cassandra.positions import CassandraArchivePositions
from qim_writer.scylla_wiring import refuse_archive
from qim_writer.storage_archive import ArchivePosition

pytestmark = [*CASSANDRA_MARKS, pytest.mark.server]


async def test_the_keyspace_of_an_archive_is_refused_and_its_own_is_not(
    cassandra_session: CassandraSession, scylla_session: CassandraSession
) -> None:
    positions = CassandraArchivePositions(cassandra_session, installation_id=f"tests-{secrets.token_hex(4)}")
    await positions.announce(0, {0: ArchivePosition("log", Position(1, 0))})
    with pytest.raises(StartRefusedError, match="QIM_CASSANDRA_KEYSPACE"):
        await refuse_archive(cassandra_session)
    await refuse_archive(scylla_session)
