"""From settings to the driver's objects, and what an operator is told where there is no connection."""

from __future__ import annotations

import ssl
from typing import Final

from cassandra import AuthenticationFailed
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.policies import ExponentialReconnectionPolicy

from qim_common.cassandra.driver_log import quiet_driver
from qim_common.cassandra.errors import CassandraRefused, CassandraUnavailable, error_of
from qim_common.cassandra.policies import execution_profiles
from qim_common.cassandra.settings import CassandraSettings

_HEARTBEAT_SECONDS: Final = 5.0
"""How soon a node that hangs is taken for down."""

_FIRST_RECONNECTION_SECONDS: Final = 0.5
_LAST_RECONNECTION_SECONDS: Final = 5.0
"""How long a node that was down is left alone. The driver's own policy waits ten minutes, and gives up in the end."""


def make_cluster(settings: CassandraSettings) -> Cluster:
    """The driver's cluster object, not connected. Raises CassandraRefused without libev, or for a file's fault."""
    try:
        # Without it the driver falls back to asyncore, which is slow and gone in Python 3.12.
        from cassandra.io.libevreactor import LibevConnection
    except ImportError as error:
        raise CassandraRefused(
            f"the Cassandra driver has no libev: {error}; install a wheel of cassandra-driver that has it"
        ) from None
    quiet_driver()
    auth = None
    try:
        if settings.cassandra_username:
            auth = PlainTextAuthProvider(settings.cassandra_username, settings.password())
        context = settings.ssl_context()
    except (OSError, ssl.SSLError, ValueError) as error:
        raise CassandraRefused(f"a file of QIM_CASSANDRA_* cannot be taken: {error}") from None
    return Cluster(
        contact_points=settings.endpoints,
        execution_profiles=execution_profiles(settings),
        connection_class=LibevConnection,
        auth_provider=auth,
        ssl_context=context,
        protocol_version=settings.cassandra_protocol_version,
        # A node that does not have a statement asks for it; asking all of them beforehand waits for one that hangs.
        prepare_on_all_hosts=False,
        connect_timeout=settings.cassandra_timeout_seconds,
        control_connection_timeout=settings.cassandra_timeout_seconds,
        reconnection_policy=ExponentialReconnectionPolicy(
            _FIRST_RECONNECTION_SECONDS, _LAST_RECONNECTION_SECONDS, max_attempts=None
        ),
        idle_heartbeat_interval=_HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
        application_name="qim",
        monitor_reporting_enabled=False,
    )


def connect(cluster: Cluster, keyspace: str) -> Session:
    """The session on a keyspace (empty: none). Blocks. Raises CassandraRefused, and whatever the driver raises."""
    session = cluster.connect()
    if keyspace:
        # With a keyspace that does not exist the driver itself would take every node for down.
        if keyspace not in cluster.metadata.keyspaces:
            raise CassandraRefused(f"Cassandra has no keyspace {keyspace}; run `qimctl schema migrate` first")
        session.set_keyspace(keyspace)
    return session


def refusal(error: BaseException, cluster: Cluster, settings: CassandraSettings) -> BaseException:
    """Why there is no session: what the operator has to change, or that nobody answers."""
    if isinstance(error, NoHostAvailable):
        causes = list(error.errors.values()) if isinstance(error.errors, dict) else []
        if any(isinstance(cause, AuthenticationFailed) for cause in causes):
            return CassandraRefused("Cassandra refused the login; check QIM_CASSANDRA_USERNAME and its password file")
        found = sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter})
        if found and settings.cassandra_local_dc not in found:
            return CassandraRefused(
                f"QIM_CASSANDRA_LOCAL_DC: no node is in {settings.cassandra_local_dc}; there are {', '.join(found)}"
            )
        return CassandraUnavailable(f"no node of Cassandra answers: {error}")
    return error_of(error, "connect", changes=False)
