"""Cassandra (or ScyllaDB) for archive and conversation sets: settings, session, errors, migrations."""

from qim_common.cassandra.errors import CassandraRefused, CassandraUnavailable, OutcomeUnknown
from qim_common.cassandra.link import CassandraLink, CassandraRequests
from qim_common.cassandra.session import BATCH_MAX_BYTES, BATCH_MAX_ROWS, CassandraSession, Row, Statement, Value
from qim_common.cassandra.settings import CassandraSettings
from qim_common.cassandra.values import cursor_timestamp, earliest_wins, signed_tenant, unsigned_tenant

__all__ = [
    "BATCH_MAX_BYTES",
    "BATCH_MAX_ROWS",
    "CassandraLink",
    "CassandraRefused",
    "CassandraRequests",
    "CassandraSession",
    "CassandraSettings",
    "CassandraUnavailable",
    "OutcomeUnknown",
    "Row",
    "Statement",
    "Value",
    "cursor_timestamp",
    "earliest_wins",
    "signed_tenant",
    "unsigned_tenant",
]
