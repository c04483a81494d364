"""How the driver chooses nodes, repeats and waits: one explicit execution profile for each kind of statement."""

from __future__ import annotations

from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

from qim_common.cassandra.settings import CassandraSettings

SERIAL_READ: Final = "serial"
"""The profile of reads that see, and end, a conditional write whose outcome is unknown."""

SPECULATIVE_DELAY_SECONDS: Final = 0.4
"""After this a second node is asked, of idempotent statements only: a node that hangs costs this, not a timeout."""

_REPEATS: Final = 2
_Decision = tuple[int, Any]


class RepeatIdempotent(RetryPolicy):  # type: ignore[misc]  # the driver has no types
    """Repeats what may be repeated, on another node, at the same consistency.

    The driver's own policy also repeats conditional writes after a lost connection, whose first attempt may have been
    applied: the second one would then report that the condition did not hold.
    """

    def on_read_timeout(self, query: Any, consistency: Any, *_: Any, retry_num: int = 0, **__: Any) -> _Decision:
        """Reads are repeated once."""
        return _next_host(query, times=retry_num, at_most=1)

    def on_write_timeout(self, query: Any, consistency: Any, *_: Any, retry_num: int = 0, **__: Any) -> _Decision:
        """Idempotent writes are repeated once."""
        return _next_host(query, times=retry_num, at_most=1)

    def on_unavailable(self, query: Any, consistency: Any, *_: Any, retry_num: int = 0, **__: Any) -> _Decision:
        """Another node may know of more that live."""
        return _next_host(query, times=retry_num, at_most=1)

    def on_request_error(self, query: Any, consistency: Any, error: Any, retry_num: int) -> _Decision:
        """A connection broke, or a node could not take part."""
        return _next_host(query, times=retry_num, at_most=_REPEATS)


def _next_host(query: Any, *, times: int, at_most: int) -> _Decision:
    repeat = bool(query.is_idempotent) and times < at_most
    return (RetryPolicy.RETRY_NEXT_HOST if repeat else RetryPolicy.RETHROW), None


def execution_profiles(settings: CassandraSettings) -> dict[object, ExecutionProfile]:
    """The default profile (the configured quorum) and SERIAL_READ, both for the configured data centre."""
    quorum = getattr(ConsistencyLevel, settings.cassandra_consistency)
    local = settings.cassandra_consistency == "LOCAL_QUORUM"
    serial = ConsistencyLevel.LOCAL_SERIAL if local else ConsistencyLevel.SERIAL

    def profile(consistency: int) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.cassandra_local_dc)),
            retry_policy=RepeatIdempotent(),
            consistency_level=consistency,
            serial_consistency_level=serial,
            request_timeout=settings.cassandra_timeout_seconds,
            row_factory=tuple_factory,
            speculative_execution_policy=ConstantSpeculativeExecutionPolicy(SPECULATIVE_DELAY_SECONDS, 1),
        )

    return {EXEC_PROFILE_DEFAULT: profile(quorum), SERIAL_READ: profile(serial)}
