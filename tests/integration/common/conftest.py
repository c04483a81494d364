"""One conducted server over real mTLS, and callers with certificates of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.conducted import Conducted, build

from qim.membership.v1 import membership_pb2_grpc
from qim.writer.v1 import writer_pb2_grpc
from qim_common.channels import ChannelProvider
from qim_common.config import WriterSettings
from qim_common.identity import Actor, Principal
from qim_common.ids import DeviceId, TenantId, UserId
from qim_common.server.harness import Addresses, ServerHarness
from qim_common.telemetry.tracing import CallTracer
from qim_common.tls import PemFiles
from qim_devkit.pki import CertFiles, DevPki

Pairs = Sequence[tuple[str, str | bytes]]
ANA = Actor(TenantId(1), UserId(b"a" * 16), DeviceId(b"d" * 16))


def actor_metadata(actor: Actor = ANA) -> Pairs:
    return [("qim-actor-bin", actor.to_message().SerializeToString())]


def principal_metadata(principal: Principal) -> Pairs:
    return [("qim-principal-bin", principal.to_message().SerializeToString())]


def tls(files: CertFiles) -> PemFiles:
    return PemFiles(files.cert, files.key, (files.ca,))


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> DevPki:
    return DevPki(tmp_path_factory.mktemp("pki"))


@dataclass(frozen=True)
class Place:
    """Files of one server, and the settings made of them."""

    directory: Path
    settings: Callable[..., WriterSettings]
    environment: dict[str, str]
    server: CertFiles


@pytest.fixture(scope="session")
def place(pki: DevPki, tmp_path_factory: pytest.TempPathFactory) -> Place:
    directory = tmp_path_factory.mktemp("place")
    bindings = directory / "bindings.yaml"
    bindings.write_text("gateways: {g: {tenants: [1]}}\noperators: {ana: {tenants: [1], roles: [admin]}}\n")
    token_key = directory / "token.key"
    token_key.write_text("11" * 32)
    server = pki.issue("writer", "w")
    values = {
        "listen": "127.0.0.1:0",
        "health_listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "tls_cert_file": str(server.cert),
        "tls_key_file": str(server.key),
        "tls_ca_file": str(pki.services_ca),
        "bindings_file": str(bindings),
        "token_key_file": str(token_key),
        "redis_addr": "127.0.0.1:6379",
        "installation_id": "test",
        "drain_seconds": "2",
    }
    return Place(
        directory,
        lambda **changes: WriterSettings(**{**values, **changes}),
        {f"QIM_{name.upper()}": value for name, value in values.items()},
        server,
    )


@dataclass(frozen=True)
class Rig:
    """A running server."""

    harness: ServerHarness
    conducted: Conducted
    addresses: Addresses
    spans: InMemorySpanExporter

    def provider(self, files: CertFiles, **options: Any) -> ChannelProvider:
        return ChannelProvider(self.addresses.grpc, tls(files), interval=0, **options)


@pytest.fixture(scope="session")
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="session")
async def rig(place: Place, spans: InMemorySpanExporter) -> AsyncIterator[Rig]:
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    harness, conducted = build(place.settings(), tracer=CallTracer(traces.get_tracer("test")))
    addresses = await harness.start()
    yield Rig(harness, conducted, addresses, spans)
    await harness.stop()


class Caller:
    """A client with one certificate."""

    def __init__(self, provider: ChannelProvider) -> None:
        self.provider = provider

    @property
    def membership(self) -> membership_pb2_grpc.GroupMembershipStub:
        return self.provider.stub(membership_pb2_grpc.GroupMembershipStub)

    @property
    def writer(self) -> writer_pb2_grpc.WriterStub:
        return self.provider.stub(writer_pb2_grpc.WriterStub)


@pytest.fixture(scope="session")
async def callers(rig: Rig, pki: DevPki) -> AsyncIterator[dict[str, Caller]]:
    """By name: a certificate of every role, and those that name nobody."""
    foreign_domain = DevPki(pki.directory, "elsewhere").spiffe_id("gateway", "g")
    files = {
        "gateway": pki.issue("gateway", "g"),
        "stranger": pki.issue("gateway", "stranger"),
        "session": pki.issue("session", "s"),
        "admin": pki.issue("admin", "a"),
        "writer": pki.issue("writer", "w"),
        "two names": pki.issue("gateway", "g", uris=[pki.spiffe_id("gateway", "g"), pki.spiffe_id("admin", "a")]),
        "no name": pki.issue("gateway", "g", uris=[]),
        "other form": pki.issue("gateway", "g", uris=["https://example.org/gateway"]),
        "other domain": pki.issue("gateway", "g", uris=[foreign_domain]),
    }
    made = {name: Caller(rig.provider(each)) for name, each in files.items()}
    yield made
    for caller in made.values():
        await caller.provider.close()


@pytest.fixture
def gateway(callers: dict[str, Caller]) -> Caller:
    return callers["gateway"]


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value
