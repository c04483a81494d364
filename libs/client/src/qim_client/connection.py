"""One service as a client sees it: unary calls with a deadline, repeated with the same ids (`qim_client.retry`)."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

import grpc

from qim_client.retry import RetryPolicy
from qim_common.channels import ChannelProvider
from qim_common.errors import InvalidArgument, QimError, RemoteError, from_rpc_error

DEFAULT_TIMEOUT: Final = 5.0
"""Seconds; every call has a deadline (contracts.md, "Identity")."""

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
Request = TypeVar("Request")
Response = TypeVar("Response")
Stub = TypeVar("Stub")


class Connection(Generic[Stub]):
    """Calls to one gRPC service.

    Parameters:
        channels: to the service, always over mTLS; several connections may share them.
        stub: the generated class of the service's methods.
        timeout: the deadline of a call that names none, seconds.
        policy: when a call is repeated.
    """

    def __init__(
        self,
        channels: ChannelProvider,
        stub: Callable[[grpc.aio.Channel], Stub],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.timeout = check_timeout(timeout)
        self.policy = policy or RetryPolicy()
        self._channels = channels
        self._make = stub

    def stub(self) -> Stub:
        """The methods over the present channel: ask for it at every call, certificates are renewed meanwhile."""
        return self._channels.stub(self._make)

    async def call(
        self,
        method: Callable[[Stub], grpc.aio.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        *,
        metadata: Metadata = (),
        timeout: float | None = None,
        repeat_aborted: bool = True,
    ) -> Response:
        """The answer to `request`, repeated as it is while that helps and the deadline allows.

        Args:
            timeout: seconds for all attempts together; None: the connection's.
            repeat_aborted: whether MEMBERSHIP_CHANGED is repeated.

        Raises:
            QimError: the service's reason; RemoteError (DEADLINE_EXCEEDED) when no answer came in time.
        """
        limit = self.timeout if timeout is None else check_timeout(timeout)
        policy = self.policy if repeat_aborted else dataclasses.replace(self.policy, repeat_aborted=False)
        deadline = time.monotonic() + limit
        attempt = 0
        while True:
            attempt += 1
            remaining = max(deadline - time.monotonic(), 0.001)
            try:
                return await method(self.stub())(request, timeout=remaining, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                failure, cause = _failure(error, limit), error
            wait = policy.delay(
                failure,
                attempt=attempt,
                remaining=deadline - time.monotonic(),
                jitter=random.random(),  # noqa: S311 - spreads retries, no secret
            )
            if wait is None:
                raise failure from cause
            await asyncio.sleep(wait)


def deadline_exceeded(limit: float) -> RemoteError:
    """No answer came in `limit` seconds: the outcome is unknown."""
    return RemoteError(
        code=grpc.StatusCode.DEADLINE_EXCEEDED,
        message=f"no answer within {limit:g} s; it may have been carried out, so repeat it with the same id",
    )


def check_timeout(timeout: float) -> float:
    """`timeout`; raises InvalidArgument unless it is above 0 (seconds)."""
    if not timeout > 0:
        raise InvalidArgument("timeout", "must be more than 0 seconds")
    return timeout


def _failure(error: grpc.aio.AioRpcError, limit: float) -> QimError:
    failure = from_rpc_error(error)
    if failure.code is grpc.StatusCode.DEADLINE_EXCEEDED and not failure.reason:
        return deadline_exceeded(limit)
    return failure
