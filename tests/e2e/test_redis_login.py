"""A suite whose Redis wants a password: every program that connects takes it from the file, or says what is wrong."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis.asyncio
from tests.support.command_lines import run_program
from tests.support.valkey import require_valkey

from qim_client.config import ClientConfig
from qim_client.gateway import GatewayClient
from qim_client.names import user_id
from qim_common.ids import TenantId
from qim_devkit.processes import ServiceProcess, SuiteError
from qim_devkit.suite import Suite

ANA, BEN = user_id("ana"), user_id("ben")
PASSWORD = "s3cret"
SERVICES = ("writer", "session")

pytestmark = pytest.mark.server


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


@pytest_asyncio.fixture
async def suite(tmp_path: Path, password_file: Path) -> AsyncIterator[Suite]:
    """Running without a password until its Valkeys, which take any before, are told of one."""
    require_valkey()
    login = {"QIM_REDIS_PASSWORD_FILE": str(password_file)}
    async with Suite(tmp_path / "suite", services=SERVICES, env_overrides=login) as running:
        for address in running.valkey_addresses:
            async with redis.asyncio.from_url(f"redis://{address}", protocol=2) as valkey:
                await valkey.config_set("requirepass", PASSWORD)
        yield running


def shell_environment(path: Path) -> dict[str, str]:
    """What one of the suite's files for shells sets."""
    words = shlex.split(path.read_text(), comments=True)
    return dict(word.partition("=")[::2] for word in words)


async def test_services_push_and_qimctl_log_in_with_the_password_of_the_file(suite: Suite) -> None:
    for name in SERVICES:
        await suite.restart(name)
    profile = ClientConfig.load(suite.paths.client_config).require_gateway()
    async with GatewayClient.from_profile(profile, timeout=10.0) as client:
        group = (await client.as_actor(TenantId(1), ANA).create_group([BEN])).group
        assert {member.user async for member in client.as_actor(TenantId(1), BEN).members(group)} == {ANA, BEN}

    push = shell_environment(suite.paths.push_environment) | {"QIM_WEBHOOK_URL": "http://127.0.0.1:9/"}
    process = ServiceProcess(
        "push", "qim_session.push_webhook", push, suite.paths.log("push"), push["QIM_HEALTH_LISTEN"]
    )
    await process.start()
    assert await process.stop()

    operator = shell_environment(suite.paths.qimctl_environment)
    fenced = await run_program("qimctl", "fence", "--instance", "1", "--yes", "--why", "disks", environment=operator)
    assert fenced.code == 0, fenced.err
    told = await run_program("qimctl", "recover", "--instance", "1", "--dry-run", environment=operator)
    assert (told.code, "by an operator: disks" in told.out) == (0, True), told.err + told.out


async def test_a_wrong_password_keeps_all_from_starting_and_is_told_by_its_variable(
    suite: Suite, password_file: Path
) -> None:
    password_file.write_text("wr0ng\n")
    for name in SERVICES:
        with pytest.raises(SuiteError, match="check QIM_REDIS_USERNAME, QIM_REDIS_PASSWORD_FILE"):
            await suite.restart(name)
        assert "wr0ng" not in suite.log(name).read_text()
    operator = shell_environment(suite.paths.qimctl_environment)
    for command in (["fence", "--yes"], ["recover", "--dry-run"]):
        refused = await run_program("qimctl", *command, "--instance", "1", environment=operator)
        assert refused.code != 0
        assert "QIM_REDIS_PASSWORD_FILE" in refused.err
        assert "wr0ng" not in refused.err
