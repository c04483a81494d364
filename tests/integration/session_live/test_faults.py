"""Live streams while what they stand on goes away and comes back: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from tests.integration.session_live.conftest import TENANT
from tests.support.live import LiveReader
from tests.support.valkey import require_valkey

from qim_client import ActorClient, Delivered, Detached, GatewayClient, Outgoing
from qim_common.errors import QimError
from qim_common.ids import ConversationId, DeviceId, UserId, uuid7
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def fragile(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    """A suite whose parts the tests take away."""
    require_valkey()
    directory = tmp_path_factory.mktemp("live-faults")
    overrides = {"QIM_SUBSCRIBE_TOKEN_SECONDS": "0.2"}
    async with Suite(directory, services=("writer", "session"), env_overrides=overrides) as running:
        yield running


@pytest_asyncio.fixture
async def gateway(fragile: Suite) -> AsyncIterator[GatewayClient]:
    writer, session = fragile.addresses["writer"], fragile.addresses["session"]
    async with GatewayClient(writer, session, fragile.gateway_files(), timeout=5.0) as client:
        yield client


class Talk:
    """Somebody who writes all the time, whatever happens. Every message is repeated until it is answered."""

    def __init__(self, sender: ActorClient, groups: list[ConversationId]) -> None:
        self.newest = dict.fromkeys(groups, 0)
        self._sender = sender
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._write())

    async def end(self) -> None:
        """Write no more, and wait for the last answer."""
        self._stop.set()
        await self._task

    async def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            for group in self.newest:
                number += 1
                body = b"x" * (5_000 if number % 50 == 0 else 20)
                item = Outgoing(self._sender.actor, body, conversation=group)
                while True:
                    with suppress(QimError):
                        self.newest[group] = (await self._sender.send(item)).seq
                        break


@pytest.mark.parametrize(
    "fault", ["writer killed", "session restarted", "session killed", "store killed", "session paused", "writer paused"]
)
async def test_everything_comes_once_and_in_order_through(fragile: Suite, gateway: GatewayClient, fault: str) -> None:
    ana, ben = (gateway.as_actor(TENANT, UserId(uuid7()), DeviceId(uuid7())) for _ in range(2))
    groups = [(await ana.create_group([ben.actor.user])).group for _ in range(4)]
    async with LiveReader(gateway) as reader:
        attachment = await reader.attach(ben.actor)
        talk = Talk(ana, groups)
        await reader.until(lambda: len(reader.of(attachment, Delivered)) > 100)
        name, _, what = fault.partition(" ")
        name = "valkey-0" if name == "store" else name
        if what == "paused":
            fragile.pause(name)
            with suppress(QimError):  # long enough for what waits to pile up
                await ben.get_total_unread(timeout=1.5)
            fragile.resume(name)
        elif what == "killed":
            await fragile.kill(name)
            await fragile.restart(name)
        else:
            await fragile.restart(name)
        before = len(reader.of(attachment, Delivered))
        await attachment.acknowledge_many([event.cursor for event in reader.of(attachment, Delivered)])
        await reader.until(lambda: len(reader.of(attachment, Delivered)) > before + 100)
        await talk.end()
        for group in groups:
            newest = talk.newest[group]
            await reader.until(lambda: newest in reader.seqs(attachment, group))  # noqa: B023  awaited here
            assert reader.seqs(attachment, group) == list(range(1, newest + 1))
        assert reader.of(attachment, Detached) == []
