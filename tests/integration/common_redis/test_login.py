"""The login whose password is in a file, against servers that want one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.common_redis.conftest import until

from qim_common.errors import BackendUnavailable
from qim_common.redis import Connection, HandshakeRefused, Instance, RedisAddress, RedisUnavailable, UnusableFile
from qim_devkit.valkey import ValkeyServer

pytestmark = pytest.mark.server


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("s3cret\n")
    return path


@pytest.fixture
def server(valkey: ValkeyServer) -> ValkeyServer:
    """With the password of `password_file` for its default user."""
    valkey.options["requirepass"] = "s3cret"
    valkey.restart()
    return valkey


async def test_the_default_user_logs_in_with_the_file(server: ValkeyServer, password_file: Path) -> None:
    address = RedisAddress.parse(server.address).with_login("", password_file)
    connection = await Connection.open(address, name="test")
    assert await connection.call("ACL", "WHOAMI") == b"default"
    connection.close()


async def test_a_named_user_logs_in_with_whatever_bytes_the_file_holds(
    server: ValkeyServer, password_file: Path
) -> None:
    admin = await Connection.open(RedisAddress.parse(server.address).with_login("", password_file), name="test")
    await admin.call("ACL", "SETUSER", "app", "on", b">p\xff s", "~*", "+@all")
    admin.close()
    password_file.write_bytes(b"p\xff s\r\n")
    connection = await Connection.open(RedisAddress.parse(server.address).with_login("app", password_file), name="test")
    assert await connection.call("ACL", "WHOAMI") == b"app"
    connection.close()


async def test_what_the_user_may_not_do_is_told_and_nothing_that_a_caller_is_at_fault_for(
    server: ValkeyServer, password_file: Path
) -> None:
    admin = await Connection.open(RedisAddress.parse(server.address).with_login("", password_file), name="test")
    await admin.call("ACL", "SETUSER", "app", "on", b">s3cret", "~*", "+@all", "-@scripting")
    admin.close()
    connection = await Connection.open(RedisAddress.parse(server.address).with_login("app", password_file), name="test")
    with pytest.raises(RedisUnavailable, match=r"NOPERM.*script\|load") as told:
        await connection.call("SCRIPT", "LOAD", "return 1")
    assert told.value.message == BackendUnavailable().message
    connection.close()


async def test_a_wrong_password_is_refused_with_its_variable(server: ValkeyServer, password_file: Path) -> None:
    password_file.write_text("wr0ng\n")
    with pytest.raises(HandshakeRefused, match=r"WRONGPASS.*check QIM_REDIS_USERNAME, QIM_REDIS_PASSWORD_FILE") as told:
        await Connection.open(RedisAddress.parse(server.address).with_login("", password_file), name="test")
    assert "wr0ng" not in str(told.value)


async def test_no_password_where_one_is_wanted_is_refused_with_the_variable(server: ValkeyServer) -> None:
    with pytest.raises(HandshakeRefused, match=r"NOAUTH.*set QIM_REDIS_PASSWORD_FILE"):
        await Connection.open(RedisAddress.parse(server.address), name="test")


async def test_the_file_is_read_again_for_each_connection(server: ValkeyServer, password_file: Path) -> None:
    address = RedisAddress.parse(server.address).with_login("", password_file)
    instance = Instance(address, name="test", instance_position=0)
    await instance.start()
    await instance.call("CONFIG", "SET", "requirepass", "n3w")
    await instance.call("SET", "connected", "yes")  # a connection outlives the password that it came with
    lost = instance.connection
    lost.close()
    await until(lambda: "refuses the connection" in str(down(instance)))
    password_file.unlink()
    await until(lambda: "QIM_REDIS_PASSWORD_FILE: cannot be read" in str(down(instance)))
    password_file.write_text("n3w\n")
    await until(lambda: instance.connected)
    assert await instance.call("GET", "connected") == b"yes"
    await instance.close()


def down(instance: Instance) -> BaseException | None:
    """Why the instance is down."""
    try:
        _ = instance.connection
    except Exception as error:  # noqa: BLE001  its words are looked at
        return error
    return None


async def test_a_file_that_cannot_be_used_is_told_and_not_waited_for(server: ValkeyServer, password_file: Path) -> None:
    instance = Instance(
        RedisAddress.parse(server.address).with_login("", password_file), name="test", instance_position=0
    )
    password_file.write_text("\n")
    with pytest.raises(UnusableFile, match=r"127\.0\.0\.1:\d+ is not connected to: QIM_REDIS_PASSWORD_FILE: is empty"):
        await instance.start()
    await instance.close()
