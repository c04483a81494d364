"""Certificates and bindings change without a restart, on both sides of a connection."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from tests.integration.common.conftest import ANA, Caller, Place, Rig, actor_metadata, refusal, tls
from tests.support.conducted import build

from qim.membership.v1 import membership_pb2
from qim.writer.v1 import writer_pb2
from qim_common.channels import ChannelProvider
from qim_common.config import split_listen
from qim_common.errors import TenantNotAllowed, from_rpc_error
from qim_common.tls import CertificateError, PemFiles, TlsMaterial
from qim_devkit.pki import Authority, CertFiles, DevPki


def _send(caller: Caller) -> Any:
    return caller.membership.AuthorizeSend(
        membership_pb2.AuthorizeSendRequest(), timeout=10, metadata=tuple(actor_metadata())
    )


def _install(source: CertFiles, target: CertFiles) -> None:
    """Replaces the pair as a secret's mount does: each file whole, one after the other."""
    for old, new in ((source.cert, target.cert), (source.key, target.key)):
        beside = new.with_suffix(".new")
        shutil.copy(old, beside)
        beside.rename(new)


def _serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


@dataclass(frozen=True)
class Server:
    """A server whose files may be changed."""

    address: str
    files: CertFiles
    bindings: Path

    async def serial(self, client: CertFiles) -> int:
        """The serial number of the certificate that a new connection is shown."""

        def shake() -> int:
            context = ssl.create_default_context(cafile=str(client.ca))
            context.load_cert_chain(client.cert, client.key)
            context.set_alpn_protocols(["h2"])
            with (
                socket.create_connection(split_listen(self.address), timeout=10) as raw,
                context.wrap_socket(raw, server_hostname="localhost") as secured,
            ):
                shown = secured.getpeercert(binary_form=True)
            assert shown is not None
            return x509.load_der_x509_certificate(shown).serial_number

        return await asyncio.to_thread(shake)


@pytest.fixture
async def server(place: Place, pki: DevPki, tmp_path: Path) -> AsyncIterator[Server]:
    files = CertFiles(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")
    _install(pki.issue("writer", "w"), files)
    shutil.copy(pki.services_ca, files.ca)
    bindings = tmp_path / "bindings.yaml"
    bindings.write_text("gateways: {g: {tenants: [1]}}")
    settings = place.settings(
        tls_cert_file=str(files.cert),
        tls_key_file=str(files.key),
        tls_ca_file=str(files.ca),
        bindings_file=str(bindings),
        reload_interval_seconds=0,
    )
    harness, _ = build(settings)
    addresses = await harness.start()
    yield Server(addresses.grpc, files, bindings)
    await harness.stop()


async def test_new_connections_are_shown_the_new_server_certificate(server: Server, pki: DevPki) -> None:
    client, renewed = pki.issue("gateway", "g"), pki.issue("writer", "renewed")
    caller = Caller(ChannelProvider(server.address, tls(client)))
    await _send(caller)
    assert await server.serial(client) == _serial(pki.issue("writer", "w").cert)

    _install(renewed, server.files)

    assert await server.serial(client) == _serial(renewed.cert)
    await _send(caller)
    await caller.provider.close()


async def test_a_key_that_does_not_fit_keeps_the_old_certificate_until_it_does(
    server: Server, pki: DevPki, caplog: pytest.LogCaptureFixture
) -> None:
    client, first, renewed = pki.issue("gateway", "g"), pki.issue("writer", "w"), pki.issue("writer", "renewed")

    shutil.copy(renewed.cert, server.files.cert)
    assert await server.serial(client) == _serial(first.cert)
    assert "certificate not taken, keeping the old one" in [record.message for record in caplog.records]

    shutil.copy(renewed.key, server.files.key)
    assert await server.serial(client) == _serial(renewed.cert)


async def test_a_ca_that_is_added_lets_its_clients_in(server: Server, pki: DevPki) -> None:
    foreign = pki.issue("gateway", "g", authority=Authority.FOREIGN)
    before = Caller(ChannelProvider(server.address, tls(foreign)))
    assert (await refusal(_send(before))).code() is grpc.StatusCode.UNAVAILABLE
    await before.provider.close()

    foreign_ca = (pki.directory / "foreign-ca.crt").read_bytes()
    server.files.ca.write_bytes(pki.services_ca.read_bytes() + foreign_ca)

    after = Caller(ChannelProvider(server.address, tls(foreign)))
    await _send(after)
    await after.provider.close()


async def test_a_tenant_that_is_taken_away_is_refused_on_the_next_call(server: Server, pki: DevPki) -> None:
    caller = Caller(ChannelProvider(server.address, tls(pki.issue("gateway", "g"))))
    await _send(caller)

    server.bindings.write_text("gateways: {g: {tenants: [2]}}")

    assert isinstance(from_rpc_error(await refusal(_send(caller))), TenantNotAllowed)
    await caller.provider.close()


async def test_a_client_calls_with_its_new_certificate_while_old_streams_go_on(
    rig: Rig, pki: DevPki, tmp_path: Path
) -> None:
    files = CertFiles(tmp_path / "tls.crt", tmp_path / "tls.key", pki.services_ca)
    _install(pki.issue("gateway", "g"), files)
    caller = Caller(rig.provider(files))
    await _send(caller)
    stream = caller.writer.SendMessages()
    await stream.write(writer_pb2.SendMessagesRequest(frame_number=1, actors=[ANA.to_message()]))
    await stream.read()

    _install(pki.issue("gateway", "stranger"), files)

    assert isinstance(from_rpc_error(await refusal(_send(caller))), TenantNotAllowed)
    await stream.write(writer_pb2.SendMessagesRequest(frame_number=2, actors=[ANA.to_message()]))
    answer = await stream.read()
    assert isinstance(answer, writer_pb2.SendMessagesResponse)
    assert answer.frame_number == 2
    await caller.provider.close()


async def test_a_client_keeps_its_certificate_when_the_new_files_do_not_fit(
    rig: Rig, pki: DevPki, tmp_path: Path
) -> None:
    files = CertFiles(tmp_path / "tls.crt", tmp_path / "tls.key", pki.services_ca)
    _install(pki.issue("gateway", "g"), files)
    caller = Caller(rig.provider(files))
    channel = caller.provider.channel

    shutil.copy(pki.issue("gateway", "stranger").cert, files.cert)

    await _send(caller)
    assert caller.provider.channel is channel
    await caller.provider.close()


async def test_a_client_refuses_a_server_of_another_ca(rig: Rig, pki: DevPki) -> None:
    client = pki.issue("gateway", "g")
    provider = ChannelProvider(rig.addresses.grpc, PemFiles(client.cert, client.key, (pki.operators_ca,)))

    assert (await refusal(_send(Caller(provider)))).code() is grpc.StatusCode.UNAVAILABLE
    await provider.close()


@pytest.mark.parametrize("part", ["cert", "key", "ca"])
def test_files_that_cannot_be_taken_are_named(pki: DevPki, part: str) -> None:
    good = pki.issue("gateway", "g")
    files = tls(good)
    content = {"cert": good.cert.read_bytes(), "key": good.key.read_bytes(), "ca": good.ca.read_bytes()}
    path = getattr(good, part)

    with pytest.raises(CertificateError, match=re.escape(str(path))):
        TlsMaterial.parse(files, list({**content, part: b"-----BEGIN NOTHING-----"}.values()))


def test_a_missing_file_is_named(pki: DevPki, tmp_path: Path) -> None:
    good = pki.issue("gateway", "g")
    with pytest.raises(CertificateError, match=r"none\.crt: cannot be read"):
        ChannelProvider("127.0.0.1:1", PemFiles(tmp_path / "none.crt", good.key, (good.ca,)))
