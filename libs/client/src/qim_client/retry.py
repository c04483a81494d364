"""When a failed call is repeated, and after how long. Pure.

A call is repeated with the same ids, so that it has no second effect (design.md invariant 8): after UNAVAILABLE (it may
have been carried out), and after ABORTED and RESOURCE_EXHAUSTED where the server names a delay in RetryInfo.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from qim_common.errors import QimError, Reason

_WITH_RETRY_INFO = frozenset({grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter inside the caller's deadline.

    Attributes:
        first_delay: before the second attempt, seconds.
        factor: by which the delay grows with each attempt.
        longest_delay: seconds; a longer RetryInfo is obeyed nevertheless.
        max_attempts: the first one included; 1 never repeats.
        repeat_aborted: False for calls that name the membership version they expect: it will not come back.
    """

    first_delay: float = 0.05
    factor: float = 2.0
    longest_delay: float = 1.0
    max_attempts: int = 8
    repeat_aborted: bool = True

    def is_retryable(self, error: QimError) -> bool:
        """Whether the same call with the same ids may succeed later.

        INSTANCE_FENCED is not retried although it is UNAVAILABLE: it waits for an operator (storage.md, "Fence").
        """
        if error.code is grpc.StatusCode.UNAVAILABLE:
            return error.reason != Reason.INSTANCE_FENCED
        if error.code is grpc.StatusCode.ABORTED and not self.repeat_aborted:
            return False
        return error.code in _WITH_RETRY_INFO and error.retry_after is not None

    def backoff(self, error: QimError, *, attempt: int, jitter: float) -> float:
        """Seconds to wait after `attempt` attempts, counted from 1; never less than the server's RetryInfo.

        `jitter` is a random number in [0, 1): the delay is between half and the whole of the step.
        """
        step = min(self.first_delay * self.factor ** min(attempt - 1, 32), self.longest_delay)
        wait = step * (0.5 + jitter / 2)
        if error.retry_after is None:
            return wait
        return max(wait, error.retry_after.total_seconds() * (1 + jitter / 2))

    def delay(self, error: QimError, *, attempt: int, remaining: float, jitter: float) -> float | None:
        """Seconds to wait before the next attempt; None: give up and raise `error`.

        `attempt` counts the attempts made, from 1; `remaining` are the seconds up to the caller's deadline.
        """
        if attempt >= self.max_attempts or not self.is_retryable(error):
            return None
        wait = self.backoff(error, attempt=attempt, jitter=jitter)
        return wait if wait < remaining else None
