"""Real archiver processes that are killed while people write: nothing is lost, nothing is otherwise, nothing twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.archiving import Life, differences, unfinished
from tests.support.cassandra import TieredPlace, opened
from tests.support.chat import Chat
from tests.support.redis_stores import RedisStores, redis_stores

from qim_common.ids import TenantId
from qim_devkit.suite import Suite
from qim_writer.domain.policy import Limits

pytestmark = pytest.mark.timeout(600)
BUCKETS = 8
SECONDS = 60.0


async def archived(stores: RedisStores, at_least: int) -> None:
    """Wait until so many messages and state entries are archived; a process may have to start for it."""
    async with asyncio.timeout(SECONDS):
        while True:
            counted = [int(await stores.call("HGET", bucket.meta, "arcd") or 0) for bucket in stores.store.buckets]
            if sum(counted) >= at_least:
                return
            await asyncio.sleep(0.002)


async def recorded(stores: RedisStores) -> int:
    """Messages and state entries so far."""
    return sum([int(await stores.call("HGET", bucket.meta, "rec") or 0) for bucket in stores.store.buckets])


async def test_archivers_that_are_killed_at_any_time_lose_nothing(
    module_cassandra: TieredPlace, tmp_path: Path
) -> None:
    chance = random.Random(11)  # noqa: S311  no secret
    settings = {"QIM_COMMIT_BUCKETS": str(BUCKETS), "QIM_ARCHIVE_LINGER_MS": "20"}
    suite = module_cassandra.suite(
        tmp_path / "suite", services=("writer",), archivers=2, valkeys=1, env_overrides=settings
    )
    async with suite:
        server: Any = SimpleNamespace(address=suite.valkey_addresses[0])
        async with redis_stores(server, buckets=BUCKETS) as stores:
            chat = Chat(stores, limits=Limits(broadcast_max_members=20), tenant=TenantId(suite.tenants[0]))
            life = Life(chat, chance)
            await life.begin(6)
            for name in suite.archiver_names * 3:
                before = await recorded(stores)
                writing = asyncio.create_task(life.go_on(6))
                await archived(stores, before + chance.randint(1, 40))
                await suite.kill(name)
                await writing
                await suite.restart(name)
            await archived(stores, await recorded(stores))

            assert await unfinished(stores) == []
            async with opened(place_settings(suite)) as session:
                installation = suite.environment("writer")["QIM_INSTALLATION_ID"]
                assert await differences(stores, session, installation, chat) == []


async def test_an_archiver_that_is_told_to_stop_leaves_its_lease_to_the_other(
    module_cassandra: TieredPlace, tmp_path: Path
) -> None:
    suite = module_cassandra.suite(tmp_path / "suite", services=("writer",), archivers=2, valkeys=1)
    async with suite:
        server: Any = SimpleNamespace(address=suite.valkey_addresses[0])
        async with redis_stores(server) as stores:
            life = Life(Chat(stores, tenant=TenantId(suite.tenants[0])), random.Random(3))  # noqa: S311  no secret
            await life.begin(3)
            await archived(stores, await recorded(stores))
            for name in suite.archiver_names:
                await suite.restart(name)
                await life.send(3)
                await archived(stores, await recorded(stores))
            assert await unfinished(stores) == []


def place_settings(suite: Suite) -> Any:
    """How to reach the suite's Cassandra."""
    assert suite.cassandra_place is not None
    return suite.cassandra_place.settings(20.0)
