"""The start-up check against a real server with each unsafe setting."""

from __future__ import annotations

import pytest

from qim_common.redis import Connection, RedisAddress, UnsafeRedis, check_instance
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


async def _open(server: ValkeyServer, credentials: str = "") -> Connection:
    return await Connection.open(RedisAddress.parse(f"redis://{credentials}{server.address}"), name="test")


async def test_the_embedded_server_is_safe(connection: Connection) -> None:
    await check_instance(connection)


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("appendonly", "no", "set it to yes"),
        ("appendfsync", "everysec", "set it to always"),
        ("appendfsync", "no", "set it to always"),
        ("no-appendfsync-on-rewrite", "yes", "set it to no"),
        ("maxmemory-policy", "allkeys-lru", "set it to noeviction"),
        ("maxmemory-policy", "volatile-lru", "set it to noeviction"),
    ],
)
async def test_an_unsafe_setting_is_refused_by_name(
    valkey: ValkeyServer, setting: str, value: str, remedy: str
) -> None:
    connection = await _open(valkey)
    await connection.call("CONFIG", "SET", setting, value)
    with pytest.raises(UnsafeRedis) as refused:
        await check_instance(connection)
    assert f"{setting} is '{value}', {remedy}" in str(refused.value)
    assert str(refused.value).count("\n  - ") == 1
    connection.close()


async def test_several_problems_come_in_one_message(valkey: ValkeyServer) -> None:
    connection = await _open(valkey)
    await connection.call("CONFIG", "SET", "appendfsync", "no", "maxmemory-policy", "volatile-ttl")
    await connection.call("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(UnsafeRedis) as refused:
        await check_instance(connection)
    for word in ("appendfsync", "maxmemory-policy", "replica", valkey.address):
        assert word in str(refused.value)
    assert str(refused.value).count("\n  - ") == 3
    connection.close()


async def test_a_user_who_may_not_read_the_settings_is_refused(valkey: ValkeyServer) -> None:
    operator = await _open(valkey)
    await operator.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config")
    connection = await _open(valkey, "app:pw@")
    with pytest.raises(UnsafeRedis, match=r"may not read the settings.*CONFIG GET"):
        await check_instance(connection)
    await operator.call("ACL", "SETUSER", "app", "+config|get")
    await check_instance(connection)
    connection.close()
    operator.close()
