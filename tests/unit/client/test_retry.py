"""When a call is repeated: where that may help, inside the deadline, never for what only people can mend."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest

from qim_client.retry import RetryPolicy
from qim_common import errors

POLICY = RetryPolicy()
UNAVAILABLE = errors.RemoteError(code=grpc.StatusCode.UNAVAILABLE)


def aborted(retry_after: timedelta | None) -> errors.QimError:
    return errors.RemoteError(code=grpc.StatusCode.ABORTED, retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (UNAVAILABLE, True),
        (errors.BackendUnavailable(), True),
        (errors.AuditUnavailable(), True),
        (errors.InstanceFenced(), False),
        (errors.MembershipChanged(), True),
        (errors.Overloaded(), True),
        (errors.ArchiveBacklogFull(), True),
        (aborted(None), False),
        (aborted(timedelta(milliseconds=1)), True),
        (errors.RemoteError(code=grpc.StatusCode.RESOURCE_EXHAUSTED), False),
        (errors.RemoteError(code=grpc.StatusCode.DEADLINE_EXCEEDED), False),
        (errors.RemoteError(code=grpc.StatusCode.INTERNAL), False),
        (errors.PermissionDenied(), False),
        (errors.InvalidArgument("user_ids", "x"), False),
        (errors.IdempotencyKeyReused(), False),
        (errors.RequestTooOld(), False),
    ],
    ids=lambda value: str(value),
)
def test_what_is_repeated(error: errors.QimError, *, repeated: bool) -> None:
    assert POLICY.is_retryable(error) is repeated


def test_a_call_that_names_its_version_is_not_repeated_when_the_version_is_gone() -> None:
    assert not RetryPolicy(repeat_aborted=False).is_retryable(errors.MembershipChanged())
    assert RetryPolicy(repeat_aborted=False).is_retryable(UNAVAILABLE)


@pytest.mark.parametrize(
    ("attempt", "jitter", "seconds"),
    [(1, 0.0, 0.025), (1, 0.999, 0.05), (2, 0.0, 0.05), (4, 0.0, 0.2), (6, 0.0, 0.5), (500, 0.999, 1.0)],
)
def test_the_delay_grows_to_its_bound(attempt: int, jitter: float, seconds: float) -> None:
    assert POLICY.backoff(UNAVAILABLE, attempt=attempt, jitter=jitter) == pytest.approx(seconds, rel=0.01)


def test_the_servers_delay_is_obeyed_and_spread() -> None:
    error = aborted(timedelta(seconds=2))
    assert POLICY.backoff(error, attempt=1, jitter=0.0) == 2.0
    assert POLICY.backoff(error, attempt=1, jitter=0.5) == 2.5


@pytest.mark.parametrize(
    ("attempt", "remaining", "repeated"),
    [(1, 5.0, True), (7, 5.0, True), (8, 5.0, False), (1, 0.02, False), (1, -1.0, False)],
)
def test_it_gives_up_after_the_attempts_and_before_the_deadline(
    attempt: int, remaining: float, *, repeated: bool
) -> None:
    delay = POLICY.delay(UNAVAILABLE, attempt=attempt, remaining=remaining, jitter=0.0)
    assert (delay is not None) is repeated


def test_a_policy_of_one_attempt_never_repeats() -> None:
    assert RetryPolicy(max_attempts=1).delay(UNAVAILABLE, attempt=1, remaining=60.0, jitter=0.0) is None
