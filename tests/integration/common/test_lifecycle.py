"""Streams' ages, bounds, cancels, health, metrics, spans, and the orderly end of a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.integration.common.conftest import ANA, Caller, Place, Rig, actor_metadata, refusal, tls
from tests.support import conducted
from tests.support.conducted import build

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.channels import ChannelProvider
from qim_common.errors import BackendUnavailable, Overloaded, Reason, from_rpc_error
from qim_common.server.harness import ServerHarness
from qim_common.server.health import LIVENESS_SERVICE, HealthServer
from qim_common.server.worker import WorkerHarness
from qim_common.start import StartRefusedError
from qim_devkit.pki import DevPki

BOUND = 10
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _send(caller: Caller, what: bytes = conducted.OK, timeout: float = BOUND) -> Any:
    request = membership_pb2.AuthorizeSendRequest(conversation_id=what)
    return caller.membership.AuthorizeSend(request, timeout=timeout, metadata=tuple(actor_metadata()))


async def _start(place: Place, **changes: object) -> tuple[ServerHarness, conducted.Conducted, str]:
    harness, service = build(place.settings(**changes))
    addresses = await harness.start()
    return harness, service, addresses.grpc


@pytest.fixture
async def short_lived(place: Place, pki: DevPki) -> AsyncIterator[dict[str, Caller]]:
    """Callers of a server whose streams live a fifth of a second."""
    harness, _, address = await _start(place, stream_max_age_seconds=0.2)
    names = {"gateway": "g", "session": "s"}
    made = {role: Caller(ChannelProvider(address, tls(pki.issue(role, name)))) for role, name in names.items()}
    yield made
    for caller in made.values():
        await caller.provider.close()
    await harness.stop()


async def test_a_stream_of_answers_past_its_age_is_cut_with_a_reason_never_passed_off_as_whole(
    short_lived: dict[str, Caller],
) -> None:
    request = membership_pb2.RecipientsForVersionRequest(group_id=conducted.FOREVER)
    stream = short_lived["session"].membership.RecipientsForVersion(request)
    assert isinstance(await stream.read(), membership_pb2.RecipientChunk)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()

    assert isinstance(from_rpc_error(refused.value), BackendUnavailable)


async def test_a_stream_of_requests_at_its_age_answers_what_it_read_and_ends_ok(short_lived: dict[str, Caller]) -> None:
    stream = short_lived["gateway"].writer.SendMessages()
    await stream.write(writer_pb2.SendMessagesRequest(frame_number=1, actors=[ANA.to_message()]))

    answers = [answer.frame_number async for answer in stream]

    assert answers == [1]
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_commit_survives_the_clients_cancel(rig: Rig, gateway: Caller) -> None:
    service = rig.conducted
    service.entered.clear()
    call = _send(gateway, conducted.COMMIT)
    await service.entered.wait()

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    service.go_on.set()

    async with asyncio.timeout(BOUND):
        await service.committed.wait()


async def test_a_call_that_takes_too_long_is_ended_by_name_within_its_deadline(gateway: Caller) -> None:
    error = await refusal(_send(gateway, conducted.FOREVER, timeout=2))

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert from_rpc_error(error).reason == Reason.BACKEND_UNAVAILABLE
    await _send(gateway)


async def test_beyond_its_bound_of_calls_a_server_answers_overloaded(place: Place, pki: DevPki) -> None:
    harness, service, address = await _start(place, max_concurrent_calls=1)
    caller = Caller(ChannelProvider(address, tls(pki.issue("gateway", "g"))))
    held = _send(caller, conducted.COMMIT)
    await service.entered.wait()

    error = from_rpc_error(await refusal(_send(caller)))
    service.go_on.set()
    await held
    await _send(caller)

    assert isinstance(error, Overloaded)
    assert error.retry_after == Overloaded.default_retry_after
    await caller.provider.close()
    await harness.stop()


async def test_the_health_port_serves_health_and_nothing_else(rig: Rig) -> None:
    async with grpc.aio.insecure_channel(rig.addresses.health) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", LIVENESS_SERVICE, "qim.writer.v1.Writer", "qim.membership.v1.GroupMembership"):
            assert (await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=BOUND)).status == SERVING
        listing: Any = channel.unary_unary("/grpc.health.v1.Health/List")
        listed = await refusal(listing(b"", timeout=BOUND))
        unknown = await refusal(health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=BOUND))
        call: Any = channel.unary_unary("/qim.membership.v1.GroupMembership/AuthorizeSend")
        elsewhere = await refusal(call(b"", timeout=BOUND, metadata=tuple(actor_metadata())))

    assert (listed.code(), "Unexpected" in str(listed.details())) == (grpc.StatusCode.UNIMPLEMENTED, False)
    assert unknown.code() is grpc.StatusCode.NOT_FOUND
    assert elsewhere.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_calls_are_counted_by_method_code_and_reason(rig: Rig, gateway: Caller) -> None:
    await _send(gateway)
    await refusal(_send(gateway, conducted.FROZEN))

    def scrape() -> str:
        with urllib.request.urlopen(f"http://{rig.addresses.metrics}/metrics", timeout=BOUND) as page:
            return str(page.read().decode())

    text = await asyncio.to_thread(scrape)
    method = 'method="/qim.membership.v1.GroupMembership/AuthorizeSend"'
    assert f'qim_rpc_requests_total{{code="OK",{method},reason=""}}' in text
    assert f'qim_rpc_requests_total{{code="FAILED_PRECONDITION",{method},reason="GROUP_FROZEN"}}' in text
    assert "qim_rpc_seconds_bucket{le=" in text
    assert "qim_session_" not in text


async def test_each_call_is_a_span_under_the_callers(rig: Rig, gateway: Caller) -> None:
    rig.spans.clear()
    request = membership_pb2.AuthorizeSendRequest(conversation_id=conducted.FROZEN)
    traceparent = ("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01")
    await refusal(gateway.membership.AuthorizeSend(request, timeout=BOUND, metadata=(*actor_metadata(), traceparent)))
    await refusal(_send(gateway, conducted.BUG))

    async with asyncio.timeout(BOUND):
        while len(rig.spans.get_finished_spans()) < 2:  # noqa: ASYNC110  a span ends after its caller has the answer
            await asyncio.sleep(0.005)
    refused, broken = sorted(rig.spans.get_finished_spans(), key=lambda span: span.start_time or 0)
    assert refused.attributes is not None
    assert refused.name == "qim.membership.v1.GroupMembership/AuthorizeSend"
    assert dict(refused.attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": "qim.membership.v1.GroupMembership/AuthorizeSend",
        "rpc.response.status_code": "FAILED_PRECONDITION",
        "error.type": "GROUP_FROZEN",
    }
    assert refused.parent is not None
    assert refused.parent.trace_id == int("ab" * 16, 16)
    assert (refused.status.is_ok, broken.status.is_ok) == (True, False)


async def test_a_second_server_on_the_same_port_refuses_to_start(rig: Rig, place: Place, gateway: Caller) -> None:
    for name, address in (
        ("listen", rig.addresses.grpc),
        ("health_listen", rig.addresses.health),
        ("metrics_listen", rig.addresses.metrics),
    ):
        harness, _ = build(place.settings(**{name: address}))
        with pytest.raises(StartRefusedError, match="cannot be bound"):
            await harness.start()
    await _send(gateway)


class Service:
    """The conducted service as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, place: Place, **environment: str) -> Service:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.support.conducted",
                env={**inherited, **place.environment, **environment},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        )

    async def line(self) -> str:
        """The next line of stdout."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), BOUND)).decode().rstrip()

    async def ready(self) -> dict[str, str]:
        """The addresses of its READY line."""
        line = await self.line()
        assert line.startswith("READY writer "), line
        return dict(part.split("=") for part in line.split()[2:])

    async def end(self) -> tuple[int | None, list[str], str]:
        """Exit code, the rest of stdout, stderr."""
        out, err = await asyncio.wait_for(self.process.communicate(), BOUND)
        return self.process.returncode, out.decode().splitlines(), err.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_on_a_signal_a_process_turns_unhealthy_ends_its_commits_and_closes_what_it_opened(
    place: Place, pki: DevPki, number: signal.Signals
) -> None:
    service = await Service.start(place)
    addresses = await service.ready()
    caller = Caller(ChannelProvider(addresses["listen"], tls(pki.issue("gateway", "g"))))
    async with grpc.aio.insecure_channel(addresses["health"]) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        states = health.Watch(health_pb2.HealthCheckRequest())
        assert (await states.read()).status == SERVING
        stream = caller.writer.SendMessages()
        await stream.write(writer_pb2.SendMessagesRequest(frame_number=1, actors=[ANA.to_message()]))
        await stream.read()
        committing = _send(caller, conducted.COMMIT)
        assert await service.line() == "COMMITTING"

        service.process.send_signal(number)

        assert (await states.read()).status == NOT_SERVING
        await committing
        assert await stream.code() is grpc.StatusCode.OK
    code, out, err = await service.end()
    await caller.provider.close()

    assert (code, out) == (0, ["COMMITTED", "CLOSED second", "CLOSED first"]), err
    assert "Traceback" not in err


async def _said(address: str, service: str) -> int:
    """What the health port at `address` answers for a service name."""
    async with grpc.aio.insecure_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        return int((await health.Check(request, timeout=BOUND)).status)


async def test_a_server_that_drains_is_not_ready_and_alive_to_the_end(place: Place, pki: DevPki) -> None:
    harness, service = build(place.settings(drain_seconds=BOUND))
    addresses = await harness.start()
    caller = Caller(ChannelProvider(addresses.grpc, tls(pki.issue("gateway", "g"))))
    committing = asyncio.ensure_future(_send(caller, conducted.COMMIT))
    await service.entered.wait()
    stopping = asyncio.create_task(harness.stop())
    await harness.draining.wait()

    said = [await _said(addresses.health, name) for name in ("", "qim.writer.v1.Writer", LIVENESS_SERVICE)]
    service.go_on.set()
    await committing
    await stopping
    await caller.provider.close()

    assert said == [NOT_SERVING, NOT_SERVING, SERVING]


async def test_a_worker_that_drains_is_not_ready_and_alive_to_the_end(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = WorkerHarness(place.settings())
    said: list[int] = []

    async def drain(_: float) -> None:
        said.extend([await _said(address, name) for name in ("", LIVENESS_SERVICE)])

    running = asyncio.create_task(worker.run(drain))
    async with asyncio.timeout(BOUND):
        while "READY" not in (out := capsys.readouterr().out):  # noqa: ASYNC110 - a line on stdout has no event
            await asyncio.sleep(0.01)
        address = f"127.0.0.1:{out.split('health=')[1].split()[0]}"
        said.extend([await _said(address, name) for name in ("", LIVENESS_SERVICE)])
        worker.request_stop()
        await running

    assert said == [SERVING, SERVING, NOT_SERVING, SERVING]


async def test_a_server_that_is_not_ready_yet_is_alive(place: Place) -> None:
    server = HealthServer(place.settings().health_listen, ["qim.writer.v1.Writer"])
    address = f"127.0.0.1:{await server.start()}"

    said = [await _said(address, name) for name in ("", "qim.writer.v1.Writer", LIVENESS_SERVICE)]
    await server.stop()

    assert said == [NOT_SERVING, NOT_SERVING, SERVING]


async def test_a_process_on_pure_python_protobuf_refuses_to_start(place: Place) -> None:
    service = await Service.start(place, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    code, _, err = await service.end()

    assert code == 1
    assert "refusing to start: protobuf runs on 'python' instead of 'upb'" in err


@pytest.mark.parametrize(
    ("variable", "content", "words"),
    [
        ("QIM_BINDINGS_FILE", "gateways: 7", "gateways"),
        ("QIM_TLS_KEY_FILE", "no key", "no unencrypted PEM private key"),
        ("QIM_TLS_CA_FILE", "no certificate", "no PEM certificate"),
    ],
)
async def test_a_process_with_a_bad_file_refuses_to_start_in_one_line(
    place: Place, tmp_path: Path, variable: str, content: str, words: str
) -> None:
    bad = tmp_path / "bad"
    bad.write_text(content)
    service = await Service.start(place, **{variable: str(bad)})
    code, _, err = await service.end()

    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith(f"refusing to start: {bad}: ")
    assert words in line
