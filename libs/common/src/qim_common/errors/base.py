"""The root of the exception tree: what every refusal carries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import ClassVar

import grpc

from qim_common.errors.reasons import Reason

_NO_METADATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that cannot be taken, and how to mend it.

    `field` is the path as in the proto (`people[3]`, `request_id`), `description` never repeats what the caller sent.
    """

    field: str
    description: str


class QimError(Exception):
    """A refusal with a name. The one interceptor turns it into a status (`to_status`).

    Parameters (keyword only):
        message: what went wrong and what to do about it; the class's own words by default.
        metadata: `ErrorInfo.metadata`; keys `[a-z][a-zA-Z0-9_-]{0,63}`, short values, never message or member data
            of somebody who may not see them.
        violations: fields at fault, answered as `BadRequest`.
        retry_after: earliest sensible moment for a retry, answered as `RetryInfo`.

    Class attributes:
        reason: the name of contracts.md ("Errors"), a member of `Reason` for everything raised in a service.
        code: the gRPC status of that name.
        default_message: the words used if the raiser gives none.
        default_retry_after: answered if the raiser gives none; None for reasons that carry no RetryInfo.
        precondition_subject: what the failed precondition is about; empty for reasons that carry none.
    """

    reason: str
    code: grpc.StatusCode
    default_message: ClassVar[str]
    default_retry_after: ClassVar[timedelta | None] = None
    precondition_subject: ClassVar[str] = ""

    def __init__(
        self,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        self.message = self.default_message if message is None else message
        self.metadata = _NO_METADATA if metadata is None else MappingProxyType(dict(metadata))
        self.violations = tuple(violations)
        self.retry_after = self.default_retry_after if retry_after is None else retry_after
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.reason else self.message


class RemoteError(QimError):
    """An error of another process that is none of the tree: INTERNAL, a transport failure, a newer reason.

    `reason` is the remote `ErrorInfo.reason`, empty where there is none (a broken connection, a deadline that passed).
    """

    reason: str = ""
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    default_message = "the call failed without a reason; look into the server's log"

    def __init__(
        self,
        *,
        code: grpc.StatusCode,
        reason: str = "",
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message=message, metadata=metadata, violations=violations, retry_after=retry_after)
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return f"{self.reason or self.code.name}: {self.message}"


__all__ = ["FieldViolation", "QimError", "Reason", "RemoteError"]
