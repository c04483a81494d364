"""A push receiver on loopback: it checks signatures, remembers what it was sent, and answers as a test tells it to."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

BOUND_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """One answer. `status` 0: hang up without one; None: say nothing until the other side hangs up."""

    status: int | None = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"ok"


@dataclass
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes
    answer: Answer

    @property
    def notifications(self) -> list[dict[str, Any]]:
        """What it holds."""
        document = json.loads(self.body)
        assert document["schema"] == 1
        notifications: list[dict[str, Any]] = document["notifications"]
        return notifications


@dataclass
class WebhookReceiver:
    """Use it as an async context manager. `secret`: what requests must be signed with.

    `answers`: those to requests about a conversation, taken one after the other; 200 when there are none. `refuses`: a
    request with such a notification is answered with 422.
    """

    secret: bytes
    answers: defaultdict[str, deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    refuses: Callable[[dict[str, Any]], bool] = lambda _: False
    requests: list[Received] = field(default_factory=list)
    port: int = 0
    tls: ssl.SSLContext | None = None
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: asyncio.Server | None = None
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Where to post to."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/hook?token=confidential"

    async def open(self) -> None:
        """Listen, on the port of the last time."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Be down: no connection is taken, and those that are open end."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        await self._server.wait_closed()

    def taken(self, conversation: str) -> list[dict[str, Any]]:
        """The notifications of a conversation that were answered with 200, in the order in which they came."""
        return self._of(conversation, lambda request: request.answer.status == 200)

    def seen(self, conversation: str) -> list[dict[str, Any]]:
        """The same, whatever was answered."""
        return self._of(conversation, lambda _: True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what has come fulfils a condition."""
        async with asyncio.timeout(BOUND_SECONDS), self._news:
            await self._news.wait_for(condition)

    def _of(self, conversation: str, which: Callable[[Received], bool]) -> list[dict[str, Any]]:
        requests = [request for request in self.requests if which(request)]
        return [one for request in requests for one in request.notifications if one["conversation"] == conversation]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        assert start == "POST /hook?token=confidential HTTP/1.1"
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        assert verifies(headers["qim-signature"], body, self.secret)
        received = Received(headers, body, Answer())
        if any(map(self.refuses, received.notifications)):
            received.answer = Answer(422)
        else:
            scripted = filter(None, (self.answers[one["conversation"]] for one in received.notifications))
            received.answer = next((answers.popleft() for answers in scripted), Answer())
        async with self._news:
            self.requests.append(received)
            self._news.notify_all()
        if not received.answer.status:
            if received.answer.status is None:
                await reader.read(1)
            return False
        status, content = received.answer.status, received.answer.body
        extra = "".join(f"{name}: {value}\r\n" for name, value in received.answer.headers)
        head = f"HTTP/1.1 {status} Said\r\n{extra}content-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        return True


def verifies(header: str, body: bytes, secret: bytes) -> bool:
    """What docs/push.md tells receivers to do, without the look at the clock."""
    time_s, *signatures = [part.partition("=")[2] for part in header.split(",")]
    expected = hmac.digest(secret, time_s.encode() + b"." + body, hashlib.sha256).hex()
    return any(hmac.compare_digest(signature, expected) for signature in signatures)
