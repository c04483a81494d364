"""What of the writer's refusals reaches the caller of the session service."""

from __future__ import annotations

import grpc
import pytest

from qim_common.errors import ERROR_CLASSES, InvalidArgument, QimError, RemoteError, to_status
from qim_common.errors.reasons import Reason
from qim_common.errors.status import from_status
from qim_session.backends.writer_client import AnswerTooLargeError, refusal_of

THROUGH = {
    Reason.MEMBERSHIP_VERSION_EXPIRED,
    Reason.BACKEND_UNAVAILABLE,
    Reason.INSTANCE_FENCED,
    Reason.OVERLOADED,
}
"""What a question may be answered with. The others are of changes, or of a caller that is not entitled."""


def told(reason: Reason) -> QimError:
    """The refusal as it comes out of the writer's status."""
    error = InvalidArgument("field", "is wrong") if reason is Reason.INVALID_ARGUMENT else ERROR_CLASSES[reason]()
    return from_status(to_status(error))


@pytest.mark.parametrize("reason", list(Reason))
def test_a_refusal_of_the_question_goes_through_and_any_other_is_a_fault_between_the_services(reason: Reason) -> None:
    error = told(reason)
    refusal = refusal_of(error)
    assert isinstance(refusal, QimError)
    assert refusal.reason == (reason if reason in THROUGH else Reason.BACKEND_UNAVAILABLE)
    if reason in THROUGH:
        assert (str(refusal), refusal.retry_after) == (str(error), error.retry_after)


def test_what_is_said_of_a_fenced_store_fits_a_read() -> None:
    message = str(refusal_of(told(Reason.INSTANCE_FENCED)))
    assert "fenced; an operator has to recover it" in message
    assert "retry" not in message


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_a_failure_without_a_reason_is_an_unreachable_writer(code: grpc.StatusCode) -> None:
    refusal = refusal_of(RemoteError(code=code))
    assert isinstance(refusal, QimError)
    assert refusal.reason == Reason.BACKEND_UNAVAILABLE


def test_an_answer_above_the_limit_of_the_channel_is_asked_for_in_halves() -> None:
    assert isinstance(refusal_of(RemoteError(code=grpc.StatusCode.RESOURCE_EXHAUSTED)), AnswerTooLargeError)
