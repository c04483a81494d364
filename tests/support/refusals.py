"""A refusal as it came over the wire, taken apart: the status, its one ErrorInfo, and the details beside it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class Refusal:
    """`fields` are those of BadRequest; `retry` says whether RetryInfo came; `precondition` the types of violations."""

    code: grpc.StatusCode
    message: str
    reason: str
    metadata: dict[str, str]
    fields: tuple[str, ...]
    retry: bool
    precondition: tuple[str, ...]

    @property
    def name(self) -> tuple[str, str]:
        """Status and reason, as contracts.md lists them."""
        return self.code.name, self.reason


def of_status(status: status_pb2.Status) -> Refusal:
    """Takes a status apart; fails unless it carries exactly one ErrorInfo of qim and nothing unknown."""
    infos: list[error_details_pb2.ErrorInfo] = []
    fields: list[str] = []
    preconditions: list[str] = []
    retry = False
    for detail in status.details:
        info, bad, failure, delay = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.PreconditionFailure(),
            error_details_pb2.RetryInfo(),
        )
        if detail.Unpack(info):
            infos.append(info)
        elif detail.Unpack(bad):
            fields += [violation.field for violation in bad.field_violations]
        elif detail.Unpack(failure):
            preconditions += [violation.type for violation in failure.violations]
        elif detail.Unpack(delay):
            retry = True
            assert delay.retry_delay.ToTimedelta().total_seconds() > 0
        else:
            raise AssertionError(f"an unknown detail: {detail.type_url}")
    (one,) = infos
    assert one.domain == "qim"
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    return Refusal(code, status.message, one.reason, dict(one.metadata), tuple(fields), retry, tuple(preconditions))


def of_error(error: grpc.aio.AioRpcError) -> Refusal:
    """Takes the error of a call apart; fails where the server gave no details."""
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS:
            assert isinstance(value, bytes)
            status = status_pb2.Status.FromString(value)
            assert status.code == error.code().value[0]
            assert status.message == error.details()
            return of_status(status)
    raise AssertionError(f"no details: {error}")


async def failure(call: Awaitable[Any]) -> grpc.aio.AioRpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def refusal(call: Awaitable[Any]) -> Refusal:
    """The named refusal that a call ends with."""
    return of_error(await failure(call))
