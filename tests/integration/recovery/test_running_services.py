"""An instance is lost with its disk under running services, and recovered under them: none is started again."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.cassandra import TieredPlace
from tests.support.command_lines import run_program
from tests.support.valkey import require_valkey
from tests.support.writers import ANA, BEN, SECONDS, Writers, until

from qim_client.gateway import GatewayClient
from qim_client.values import Direction, Outgoing
from qim_common.errors import QimError
from qim_common.ids import ConversationId, TenantId
from qim_devkit.suite import Suite


@pytest_asyncio.fixture
async def suite(module_cassandra: TieredPlace, tmp_path: Path) -> AsyncIterator[Suite]:
    """Writer, session service and archiver on two Valkeys."""
    require_valkey()
    async with module_cassandra.suite(tmp_path / "suite", services=("writer", "session"), valkeys=2) as running:
        yield running


async def wipe(suite: Suite, name: str) -> None:
    """The Valkey dies and its disk is gone; an empty one stands at its address."""
    await suite.kill(name)
    for part in suite.paths.valkey(name).iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    await suite.restart(name)


async def test_a_lost_instance_is_recovered_under_running_services(suite: Suite) -> None:
    tenant = TenantId(suite.tenants[0])
    served = Writers(suite)
    gateway = GatewayClient(
        suite.addresses["writer"], suite.addresses["session"], suite.gateway_files(), timeout=SECONDS
    )
    try:
        ana, ben = gateway.as_actor(tenant, ANA), gateway.as_actor(tenant, BEN)
        groups: dict[str, ConversationId] = {}
        while len(groups) < 2:
            group = (await ana.create_group([BEN])).group
            groups.setdefault(served.instance_name(group, tenant), group)
        lost, other = groups["valkey-1"], groups["valkey-0"]
        for _ in range(5):
            for group in (lost, other):
                await ana.send_to(group, b"hello")
        await ben.mark_read(lost, 3)

        def archived() -> bool:
            instance, keys, _ = served.keys(lost, tenant)
            return bool(instance.hget(keys.grpmeta, "aseq") == b"5")

        await until(archived)
        await wipe(suite, "valkey-1")
        with pytest.raises(QimError):
            await ana.send_to(lost, b"nobody takes it")
        await ana.send_to(other, b"goes on")

        environment = suite.environment("writer")
        done = await run_program(
            "qimctl", "recover", "--instance", "1", "--archive-complete", "--yes", environment=environment
        )
        assert done.code == 0, done.err

        again = Outgoing(ana.actor, b"again", conversation=lost)

        async def sent() -> bool:
            try:
                answer = await ana.send(again)
            except QimError:
                return False
            assert answer.seq == 6
            return True

        await until(sent)
        page = await ben.pull_history(lost, from_seq=1, direction=Direction.NEWER, limit=100)
        assert [message.seq for message in page.messages] == [1, 2, 3, 4, 5, 6]

        async def listed() -> bool:
            try:
                return {entry.conversation async for entry in ben.conversations()} >= {lost, other}
            except QimError:
                return False

        await until(listed)
    finally:
        await gateway.close()
        await served.close()
