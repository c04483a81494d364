"""The `PushSink` that posts notifications to a webhook over HTTP (docs/push.md).

One attempt a batch: the consumer's pauses are the retries. What the receiver answers decides:

- 2xx: taken.
- 400, 413, 422: something in the batch is refused for good. It is halved until the refused notifications are found;
  they are logged, counted and dropped, so that none of them holds up the others.
- Anything else (no answer in time, 3xx, other 4xx, 5xx): not taken, the batch comes again. With a Retry-After no
  request at all is made until then.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Final

import httpx

from qim_common.telemetry.metrics import PushMetrics
from qim_session.backends.webhook_secrets import WebhookSecrets
from qim_session.backends.webhook_wire import SIGNATURE_HEADER, encode, sign
from qim_session.domain.push import Notification
from qim_session.storage.push import SinkUnavailable

_log = logging.getLogger(__name__)

REFUSALS: Final = frozenset({400, 413, 422})
RETRY_AFTER_MAX_SECONDS: Final = 300.0
ANSWER_MAX_BYTES: Final = 16 * 1024
"""An answer's body is read up to here, so that the connection can be used again; one that is longer is not."""

Clock = Callable[[], float]


class WebhookSink:
    """Posts to one URL. Close it (`aclose`) at the end.

    Args:
        ca_file: whom to trust instead of the system's authorities.
        timeout: seconds for a whole request, the connection included.
        connections: kept at most, and requests at once.
        clock: monotonic seconds.
        wall_clock: seconds since 1970, for signatures.
    """

    def __init__(
        self,
        url: str,
        secrets: WebhookSecrets,
        metrics: PushMetrics,
        *,
        ca_file: Path | None = None,
        timeout: float = 5.0,
        connections: int = 8,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        self._url = url
        self._secrets = secrets
        self._metrics = metrics
        self._timeout = timeout
        self._clock = clock
        self._wall_clock = wall_clock
        self._not_before = float("-inf")
        self._at_once = asyncio.Semaphore(connections)
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=None if ca_file is None else str(ca_file)),
            timeout=None,  # noqa: S113  one bound around the whole request, below
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            headers={"user-agent": "qim-push-webhook", "content-type": "application/json"},
            # What leaves, and where to, is what the configuration says, whatever the environment or an answer does.
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # takes none, from nobody
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def deliver(self, batch: Sequence[Notification]) -> None:
        """As `PushSink.deliver`."""
        status = await self._post(encode(batch))
        if status not in REFUSALS:
            return
        if len(batch) == 1:
            self._metrics.refused.inc()
            _log.error("the push receiver refuses a notification", extra={"status": status, "id": batch[0].id})
            return
        middle = len(batch) // 2
        await self.deliver(batch[:middle])
        await self.deliver(batch[middle:])

    async def _post(self, body: bytes) -> int:
        """The status, of 2xx or of REFUSALS. Raises SinkUnavailable."""
        async with self._at_once:
            left = self._not_before - self._clock()
            if left > 0:
                raise SinkUnavailable(message=f"the push receiver asks for a pause of {left:.0f} s more")
            signature = sign(self._secrets.current(), int(self._wall_clock()), body)
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._exchange(body, signature)
            except TimeoutError:
                raise SinkUnavailable(message=f"the push receiver does not answer in {self._timeout:g} s") from None
            except httpx.HTTPError as error:
                # Its text may hold the URL, and that a token.
                raise SinkUnavailable(message=f"the push receiver cannot be reached: {type(error).__name__}") from None

    async def _exchange(self, body: bytes, signature: str) -> int:
        async with self._client.stream(
            "POST", self._url, content=body, headers={SIGNATURE_HEADER: signature}
        ) as answer:
            read = 0
            async for chunk in answer.aiter_raw():
                read += len(chunk)
                if read > ANSWER_MAX_BYTES:
                    break
            if answer.is_success or answer.status_code in REFUSALS:
                return answer.status_code
            pause = retry_after(answer.headers.get("retry-after", ""), self._wall_clock())
            self._not_before = max(self._not_before, self._clock() + pause)
            raise SinkUnavailable(message=f"the push receiver answers {answer.status_code}")


def retry_after(value: str, now: float) -> float:
    """Seconds that a Retry-After asks for, 0 to 300; 0 for none and for one that cannot be read.

    Args:
        value: a number of seconds, or an HTTP date.
        now: seconds since 1970.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        seconds = float(value[:9])
    else:
        try:
            until = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        seconds = (until - datetime.fromtimestamp(now, UTC)).total_seconds()
    return min(max(seconds, 0.0), RETRY_AFTER_MAX_SECONDS)
