"""Which failures leave a change's outcome open, and what the driver may repeat."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from cassandra import (
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.policies import RetryPolicy
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, ServerError

from qim_common.cassandra import CassandraSettings, CassandraUnavailable, OutcomeUnknown
from qim_common.cassandra.errors import error_of
from qim_common.cassandra.policies import SERIAL_READ, RepeatIdempotent, execution_profiles
from qim_common.errors import BackendUnavailable, Reason


@pytest.mark.parametrize(
    ("error", "change_is"),
    [
        (OperationTimedOut(), OutcomeUnknown),
        (WriteTimeout("late", write_type=0), OutcomeUnknown),
        (WriteFailure("one replica failed", write_type=0), OutcomeUnknown),
        (ReadTimeout("late"), OutcomeUnknown),
        (ConnectionShutdown("gone"), OutcomeUnknown),
        (ServerError(0, "bug", None), OutcomeUnknown),
        (ErrorMessage(0x1700, "CAS operation result is unknown", None), OutcomeUnknown),
        (NoHostAvailable("all", {"a": ConnectionShutdown("gone")}), OutcomeUnknown),
        (Unavailable("one of three"), CassandraUnavailable),
        (OverloadedErrorMessage(0x1001, "busy", None), CassandraUnavailable),
        (NoHostAvailable("none", {}), CassandraUnavailable),
        (NoHostAvailable("none", {"a": NoConnectionsAvailable()}), CassandraUnavailable),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_change_that_may_have_reached_a_replica_has_an_unknown_outcome(
    error: Exception, change_is: type[CassandraUnavailable]
) -> None:
    changed, read = error_of(error, "statement", changes=True), error_of(error, "statement", changes=False)

    assert type(changed) is change_is
    assert type(read) is CassandraUnavailable
    assert isinstance(changed, BackendUnavailable)
    assert changed.reason == Reason.BACKEND_UNAVAILABLE
    # Callers are told neither addresses nor the server's words.
    assert str(error) not in changed.message


def test_a_fault_of_the_program_stays_what_it_is() -> None:
    error = InvalidRequest("unconfigured table")
    assert error_of(error, "statement", changes=True) is error


@pytest.mark.parametrize("idempotent", [True, False])
def test_only_idempotent_statements_are_repeated_and_not_for_ever(idempotent: bool) -> None:
    policy, query = RepeatIdempotent(), SimpleNamespace(is_idempotent=idempotent)
    first = RetryPolicy.RETRY_NEXT_HOST if idempotent else RetryPolicy.RETHROW
    quorum = ConsistencyLevel.QUORUM

    for count, expected in ((0, first), (1, RetryPolicy.RETHROW)):
        read = policy.on_read_timeout(query, quorum, 2, 1, data_retrieved=False, retry_num=count)
        write = policy.on_write_timeout(query, quorum, "SIMPLE", 2, 1, retry_num=count)
        unavailable = policy.on_unavailable(query, quorum, 2, 1, retry_num=count)
        assert [read[0], write[0], unavailable[0]] == [expected] * 3
    for count, expected in ((0, first), (1, first), (2, RetryPolicy.RETHROW)):
        assert policy.on_request_error(query, quorum, ConnectionShutdown("gone"), count)[0] == expected


@pytest.mark.parametrize(
    ("consistency", "ordinary", "serial"),
    [
        ("QUORUM", ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL),
        ("LOCAL_QUORUM", ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL),
    ],
)
def test_profiles_name_the_data_centre_and_the_consistency(consistency: str, ordinary: int, serial: int) -> None:
    settings = CassandraSettings.model_validate(
        {
            "cassandra_contact_points": "a",
            "cassandra_local_dc": "east",
            "cassandra_consistency": consistency,
            "cassandra_timeout_seconds": 3,
        }
    )
    profiles = execution_profiles(settings)
    (default,) = [profile for name, profile in profiles.items() if name != SERIAL_READ]

    assert (default.consistency_level, default.serial_consistency_level) == (ordinary, serial)
    assert profiles[SERIAL_READ].consistency_level == serial
    for profile in profiles.values():
        assert profile.load_balancing_policy._child_policy.local_dc == "east"
        assert profile.request_timeout == 3
