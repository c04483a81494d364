"""rediss:// addresses, against a real server behind a TLS terminator."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from qim_common.errors import BackendUnavailable
from qim_common.redis import Connection, RedisAddress, UnusableFile
from qim_devkit.pki import DevPki
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with a key and its self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "valkey")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "valkey.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest_asyncio.fixture
async def tls_address(valkey_session: ValkeyServer, certificate: Path) -> AsyncIterator[RedisAddress]:
    """The shared server, reached through TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(valkey_session.host, valkey_session.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield RedisAddress.parse(f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def test_a_server_with_a_trusted_certificate_serves(
    tls_address: RedisAddress, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    connection = await Connection.open(tls_address, name="test")
    assert await asyncio.gather(*(connection.call("ECHO", str(i)) for i in range(50))) == [
        str(i).encode() for i in range(50)
    ]
    connection.close()
    await connection.wait_closed()


async def test_the_cas_of_the_file_are_trusted_instead_of_the_systems(
    tls_address: RedisAddress, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(certificate.read_bytes())
    address = tls_address.with_ca(ca)
    connection = await Connection.open(address, name="test")
    assert await connection.call("PING") == b"PONG"
    connection.close()

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ca.write_bytes(DevPki(tmp_path / "pki").services_ca.read_bytes())
    with pytest.raises(BackendUnavailable, match=r"must name 127\.0\.0\.1 and be of a CA of QIM_REDIS_TLS_CA_FILE"):
        await Connection.open(address, name="test")

    ca.write_text("no certificate")
    with pytest.raises(UnusableFile, match="QIM_REDIS_TLS_CA_FILE"):
        await Connection.open(address, name="test")


async def test_a_server_with_another_name_is_not_used(tls_address: RedisAddress, certificate: Path) -> None:
    address = replace(tls_address, host="localhost").with_ca(certificate)
    with pytest.raises(BackendUnavailable, match="must name localhost"):
        await Connection.open(address, name="test")


async def test_a_server_with_an_unknown_certificate_is_not_used(tls_address: RedisAddress) -> None:
    with pytest.raises(BackendUnavailable, match="certificate verify failed"):
        await Connection.open(tls_address, name="test")


async def test_a_server_without_tls_is_not_used(valkey_session: ValkeyServer) -> None:
    with pytest.raises(BackendUnavailable, match="did not answer"):
        await Connection.open(RedisAddress.parse(f"rediss://{valkey_session.address}"), name="test", timeout=0.2)
