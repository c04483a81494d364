"""What can go wrong with Cassandra.

`CassandraUnavailable` means that nothing was changed, its subclass `OutcomeUnknown` that nobody knows. Both are the
reason BACKEND_UNAVAILABLE towards callers, who are told neither addresses nor the server's words.
"""

# ruff: noqa: N818 - the classes say what happened, as those of qim_common.errors do

from __future__ import annotations

from typing import Final

from cassandra import (
    CoordinationFailure,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    RequestExecutionException,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import (
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    ServerError,
    TruncateError,
)

from qim_common.errors import BackendUnavailable
from qim_common.start import StartRefusedError

_REFUSED_BEFORE: Final = (Unavailable, OverloadedErrorMessage, IsBootstrappingErrorMessage, NoConnectionsAvailable)
"""A coordinator or the driver refused before anything was sent to a replica."""

_BROKEN_OFF: Final = (
    OperationTimedOut,
    ReadTimeout,
    WriteTimeout,
    ReadFailure,
    WriteFailure,
    CoordinationFailure,
    ConnectionException,
    ServerError,
    TruncateError,
)
"""Replicas may have carried it out: some of them did, or nobody heard."""

_CAS_WRITE_UNKNOWN: Final = 0x1700
"""Protocol 5: a conditional write that only some replicas accepted. The driver has no class for it."""


class CassandraUnavailable(BackendUnavailable):
    """The cluster cannot serve this now; nothing was changed.

    Attributes:
        detail: which statement and why, for logs; never sent to a caller.
    """

    def __init__(self, detail: str) -> None:
        super().__init__()
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class OutcomeUnknown(CassandraUnavailable):
    """A change timed out or broke off: it may have been applied, or may be later.

    Unconditional writes here are repeated without harm. After a conditional one (LWT) only a read at SERIAL tells.
    """


class CassandraRefused(StartRefusedError):
    """The cluster must not be used as configured; a service does not start on it. The message says what to change."""


def error_of(error: BaseException, name: str, *, changes: bool) -> BaseException:
    """The exception for what the driver raised for the statement `name`; the driver's own for a program's fault.

    `changes`: the statement is a write, whose outcome may be unknown.
    """
    detail = f"{name}: {type(error).__name__}: {error}"
    if isinstance(error, _REFUSED_BEFORE):
        return CassandraUnavailable(detail)
    if isinstance(error, NoHostAvailable):
        tried = error.errors.values() if isinstance(error.errors, dict) else ()
        sent = any(not isinstance(one, _REFUSED_BEFORE) for one in tried)
        return OutcomeUnknown(detail) if changes and sent else CassandraUnavailable(detail)
    half_accepted = isinstance(error, ErrorMessage) and error.code == _CAS_WRITE_UNKNOWN
    if half_accepted or isinstance(error, (*_BROKEN_OFF, RequestExecutionException)):
        return OutcomeUnknown(detail) if changes else CassandraUnavailable(detail)
    return error
