"""The sink by itself: whom it trusts, what it signs with, and the pauses that a receiver asks for."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import TENANT, group, user
from tests.support.webhook_receiver import Answer, WebhookReceiver

from qim_common.identity import Role
from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import PushMetrics
from qim_devkit.pki import DevPki
from qim_session.backends.webhook import ANSWER_MAX_BYTES, WebhookSink
from qim_session.backends.webhook_secrets import WebhookSecrets
from qim_session.domain.push import Notification, PushedMessage
from qim_session.storage.push import SinkUnavailable

HIKERS = "02000000-0000-0000-0000-000000000001"


def notifications(count: int = 1) -> list[Notification]:
    message = PushedMessage(0, 5, 1000, user(99), "text", 5)
    return [Notification(TENANT, user(number), group(1), message, 1) for number in range(1, count + 1)]


class Wall:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def secret_file(directory: Path, *keys: bytes) -> Path:
    path = directory / "secret"
    path.write_text("".join(f"{key.hex()}\n" for key in keys))
    return path


@asynccontextmanager
async def sink_to(receiver: WebhookReceiver, directory: Path, **options: Any) -> AsyncIterator[WebhookSink]:
    loaded = WebhookSecrets(secret_file(directory, receiver.secret), interval=0.0)
    sink = WebhookSink(receiver.url, loaded, PushMetrics(CollectorRegistry()), **options)
    yield sink
    await sink.aclose()


async def test_cookies_of_the_receiver_are_not_kept(receiver: WebhookReceiver, tmp_path: Path) -> None:
    cookies = [("set-cookie", f"{name}={'v' * 1000}; Path=/; Domain=127.0.0.1") for name in ("first", "second")]
    plain = [("set-cookie", "third=1"), ("set-cookie2", "fourth=1; Version=1")]
    receiver.answers[HIKERS].extend([Answer(200, (*cookies, *plain)), Answer(503, (*cookies, *plain))])
    async with sink_to(receiver, tmp_path) as sink:
        await sink.deliver(notifications())
        with pytest.raises(SinkUnavailable):
            await sink.deliver(notifications())
        await sink.deliver(notifications())
    assert len(receiver.requests) == 3
    assert not any(name.startswith("cookie") for request in receiver.requests for name in request.headers)


async def test_no_request_is_made_before_the_pause_that_was_asked_for_is_over(
    receiver: WebhookReceiver, tmp_path: Path
) -> None:
    clock = Wall()
    receiver.answers[HIKERS].append(Answer(503, (("Retry-After", "60"),)))
    async with sink_to(receiver, tmp_path, clock=clock) as sink:
        for passed in (0.0, 30.0, 29.0):
            clock.now += passed
            with pytest.raises(SinkUnavailable):
                await sink.deliver(notifications())
        assert len(receiver.requests) == 1
        clock.now += 1.0
        await sink.deliver(notifications())
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        *map(Answer, (300, 401, 403, 404, 408, 410, 429, 500, 503)),
        Answer(307, (("location", "http://127.0.0.1:1/"),)),
        Answer(429, (("retry-after", "soon"),)),
        Answer(0),
        Answer(None),
    ],
    ids=str,
)
async def test_what_is_not_taken_is_to_come_again(receiver: WebhookReceiver, tmp_path: Path, answer: Answer) -> None:
    receiver.answers[HIKERS].append(answer)
    async with sink_to(receiver, tmp_path, timeout=0.5) as sink:
        with pytest.raises(SinkUnavailable) as failed:
            await sink.deliver(notifications())
        assert "confidential" not in str(failed.value)
        await sink.deliver(notifications())
    first, second = receiver.seen(HIKERS)
    assert first == second


async def test_a_receiver_that_is_not_there_is_to_be_tried_again(receiver: WebhookReceiver, tmp_path: Path) -> None:
    await receiver.close()
    async with sink_to(receiver, tmp_path) as sink:
        with pytest.raises(SinkUnavailable):
            await sink.deliver(notifications())
        await receiver.open()
        await sink.deliver(notifications())


@pytest.mark.parametrize("refused", [{1}, {4}, {2, 5}, {1, 2, 3, 4, 5}])
async def test_the_refused_are_found_and_all_others_are_taken(
    receiver: WebhookReceiver, tmp_path: Path, refused: Sequence[int]
) -> None:
    ids = {one.id for number, one in enumerate(notifications(5), start=1) if number in refused}
    receiver.refuses = lambda one: one["id"] in ids
    async with sink_to(receiver, tmp_path) as sink:
        await sink.deliver(notifications(5))
    assert {one["id"] for one in receiver.taken(HIKERS)} == {one.id for one in notifications(5)} - ids


async def test_a_certificate_of_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    pki = DevPki(tmp_path / "pki")
    files = pki.issue(Role.WRITER, "receiver")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.cert, files.key)
    async with WebhookReceiver(secrets.token_bytes(32), tls=tls) as receiver:
        async with sink_to(receiver, tmp_path) as sink:
            with pytest.raises(SinkUnavailable):
                await sink.deliver(notifications())
        assert receiver.requests == []
        async with sink_to(receiver, tmp_path, ca_file=pki.services_ca) as sink:
            await sink.deliver(notifications())
        assert len(receiver.taken(HIKERS)) == 1


async def test_a_rotated_secret_signs_without_a_restart_and_a_bad_file_changes_nothing(
    receiver: WebhookReceiver, tmp_path: Path
) -> None:
    async with sink_to(receiver, tmp_path) as sink:
        await sink.deliver(notifications())
        (tmp_path / "secret").write_text("rubbish\n")
        await sink.deliver(notifications())
        old, receiver.secret = receiver.secret, secrets.token_bytes(32)
        secret_file(tmp_path, receiver.secret, old)
        await sink.deliver(notifications())
    assert receiver.requests[-1].headers["qim-signature"].count("v1=") == 2
    assert len(receiver.taken(HIKERS)) == 3


async def test_an_answer_without_end_is_taken_and_not_kept(receiver: WebhookReceiver, tmp_path: Path) -> None:
    receiver.answers[HIKERS].append(Answer(200, body=b"x" * (ANSWER_MAX_BYTES * 50)))
    async with sink_to(receiver, tmp_path) as sink:
        await sink.deliver(notifications())
        await sink.deliver(notifications())
    assert len(receiver.taken(HIKERS)) == 2


@pytest.mark.parametrize("content", [b"", b"short\n", b"zz" * 32, b"\xff\xfe", b"ab" * 31])
def test_a_secret_that_cannot_be_taken_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(StartRefusedError) as refused:
        WebhookSecrets(path)
    assert "abab" not in str(refused.value)
    with pytest.raises(StartRefusedError, match="QIM_WEBHOOK_SECRET_FILE"):
        WebhookSecrets(tmp_path / "nowhere")
