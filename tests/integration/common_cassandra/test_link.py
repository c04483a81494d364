"""The link: a service that starts without Cassandra, tells why, and is connected once it can be."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.cassandra import opened, settings_of
from tests.support.cutting_proxy import CuttingProxy
from tests.support.writers import until

from qim_common.cassandra import CassandraLink, CassandraSettings, CassandraUnavailable, Statement, signed_tenant
from qim_common.cassandra.migrations import MigrationError
from qim_common.ids import TenantId
from qim_common.telemetry.metrics import CassandraMetrics
from qim_devkit.cassandra import CassandraCluster

READ = Statement("test_read", "SELECT head_seq FROM conversation_heads LIMIT 1")
WRITE = Statement(
    "test_write",
    "INSERT INTO messages (tenant_id, conversation_id, seq_bucket, seq, record) VALUES (?, ?, 0, ?, ?)",
)
COUNT = Statement(
    "test_count", "SELECT seq FROM messages WHERE tenant_id = ? AND conversation_id = ? AND seq_bucket = 0"
)

_ERROR, _OPTIONS, _SUPPORTED, _AUTHENTICATE = 0x00, 0x05, 0x06, 0x03
_STARTUP, _BAD_CREDENTIALS = 0x01, 0x0100


@asynccontextmanager
async def linked(
    settings: CassandraSettings, registry: CollectorRegistry | None = None
) -> AsyncIterator[CassandraLink]:
    link = CassandraLink(
        settings, CassandraMetrics(registry or CollectorRegistry()), component="writer", statements=(READ,)
    )
    link.start()
    try:
        yield link
    finally:
        await link.close()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_node_that_comes_up_later_is_found_and_every_kind_of_request_goes_through(
    cassandra: CassandraCluster, cassandra_schema: CassandraSettings, tenant: TenantId
) -> None:
    registry = CollectorRegistry()
    port = unused_port()
    proxy = CuttingProxy(cassandra.contact_points.split(",")[0])
    settings = cassandra_schema.model_copy(update={"cassandra_contact_points": (f"127.0.0.1:{port}",)})
    place = (signed_tenant(tenant), b"\x02" * 16)
    async with linked(settings, registry) as link:
        for refused in (link.execute(READ), link.batch(WRITE, [(*place, 1, b"r")])):
            with pytest.raises(CassandraUnavailable):
                await refused
        with pytest.raises(CassandraUnavailable):
            _ = [rows async for rows in link.pages(READ)]
        assert not link.connected
        assert registry.get_sample_value("qim_cassandra_connected") == 0

        await proxy.start(port)
        try:
            async with asyncio.timeout(60):
                await link.wait()
            assert registry.get_sample_value("qim_cassandra_connected") == 1
            await link.prepare(COUNT)
            await link.batch(WRITE, [(*place, 1, b"r"), (*place, 2, b"r")])
            assert await link.execute(COUNT, place) == [(1,), (2,)]
            assert [rows async for rows in link.pages(COUNT, place)] == [[(1,), (2,)]]
        finally:
            await proxy.stop()


async def test_after_its_end_the_link_refuses_and_it_ends_twice_without_harm(
    cassandra: CassandraCluster, cassandra_schema: CassandraSettings
) -> None:
    async with linked(cassandra_schema) as link:
        async with asyncio.timeout(60):
            await link.wait()
        await link.close()
        with pytest.raises(CassandraUnavailable, match="closed"):
            await link.execute(READ)
        with pytest.raises(RuntimeError, match="started before"):
            link.start()


async def test_closing_while_it_connects_neither_waits_for_the_node_nor_leaves_a_session(
    cassandra_schema: CassandraSettings,
) -> None:
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    settings = cassandra_schema.model_copy(
        update={"cassandra_contact_points": (f"127.0.0.1:{port}",), "cassandra_timeout_seconds": 20.0}
    )
    try:
        link = CassandraLink(settings, CassandraMetrics(CollectorRegistry()), component="writer")
        link.start()
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await link.close()
        with pytest.raises(CassandraUnavailable):
            await link.execute(READ)
    finally:
        silent.close()


async def test_a_wrong_login_is_an_error_in_the_log_and_tried_again(
    cassandra_schema: CassandraSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong\n")
    async with server_that_refuses_logins() as (port, logins):
        settings = cassandra_schema.model_copy(
            update={
                "cassandra_contact_points": (f"127.0.0.1:{port}",),
                "cassandra_protocol_version": 4,
                "cassandra_username": "qim",
                "cassandra_password_file": password,
            }
        )
        with caplog.at_level(logging.ERROR, logger="qim_common.cassandra.link"):
            async with linked(settings) as link:
                await until(lambda: len(logins) >= 3)
                with pytest.raises(CassandraUnavailable, match="QIM_CASSANDRA_USERNAME"):
                    await link.execute(READ)
        assert "Cassandra refused the login; check QIM_CASSANDRA_USERNAME" in caplog.text
        assert "wrong" not in caplog.text.replace("Cassandra refused", "")
        assert len([line for line in caplog.records if "refused the login" in line.message]) == 1


async def test_a_keyspace_without_the_tables_is_refused_until_it_is_migrated(
    cassandra: CassandraCluster, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"qim_link_{uuid.uuid4().hex[:8]}"
    settings = settings_of(cassandra, keyspace=name)
    with caplog.at_level(logging.ERROR, logger="qim_common.cassandra.link"):
        async with linked(settings) as link:
            await until(lambda: "no keyspace" in caplog.text)
            assert "run `qimctl schema migrate` first" in caplog.text

    async with opened(settings, keyspace="") as session:
        await session.define(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'dc1': 3}}"
        )
        try:
            caplog.clear()
            with caplog.at_level(logging.ERROR, logger="qim_common.cassandra.link"):
                async with linked(settings) as link:
                    await until(lambda: "does not have this release's tables" in caplog.text)
                    assert "writer 0001" in caplog.text
                    assert not link.connected
        finally:
            await session.define(f"DROP KEYSPACE {name}")


async def test_a_component_without_a_package_is_a_fault_of_the_installation(
    cassandra_schema: CassandraSettings,
) -> None:
    with pytest.raises(MigrationError, match="qim-nobody"):
        CassandraLink(cassandra_schema, CassandraMetrics(CollectorRegistry()), component="nobody")


@asynccontextmanager
async def server_that_refuses_logins() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Speaks version 4 of the protocol up to the login, and refuses that: the port, and the logins that were tried."""
    logins: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, _, stream, opcode, length = struct.unpack(">BBhBI", await reader.readexactly(9))
                body = await reader.readexactly(length)
                if opcode == _OPTIONS:
                    answer, text = _SUPPORTED, _strings({"CQL_VERSION": "3.4.7", "COMPRESSION": "lz4"})
                elif opcode == _STARTUP:
                    answer, text = _AUTHENTICATE, _string("org.apache.cassandra.auth.PasswordAuthenticator")
                else:
                    logins.append(body)
                    answer, text = _ERROR, struct.pack(">I", _BAD_CREDENTIALS) + _string("no such login")
                writer.write(struct.pack(">BBhBI", 0x84, 0, stream, answer, len(text)) + text)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], logins
    finally:
        server.close()


def _strings(values: dict[str, str]) -> bytes:
    """A multimap with one value for each key."""
    pairs = (_string(key) + struct.pack(">H", 1) + _string(value) for key, value in values.items())
    return struct.pack(">H", len(values)) + b"".join(pairs)


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
