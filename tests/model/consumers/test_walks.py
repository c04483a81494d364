"""Consumers that are killed, held and restarted at any failpoint lose nothing and do nothing twice.

After each walk lists, sets, cursors and mailboxes are compared with a fold of what was written.
QIM_CONSUMER_WALKS sets how many walks there are; a failure names its seed, and QIM_CONSUMER_SEED takes that one as
often.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.model.consumers.losses import WIPE
from tests.model.consumers.replicas import Stores
from tests.model.consumers.walk import REPLICAS, Walk
from tests.support.valkey import require_valkey

from qim_common import backoff
from qim_common.redis import Instance, Role, ScriptLoader, verify_topology
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_session import main
from qim_session.commands import consume, leases, memlog, progress, projection, register
from qim_session.domain import leases as tenures
from qim_session.storage import projection as projection_storage

WALKS = int(os.environ.get("QIM_CONSUMER_WALKS", "10"))
SEED = os.environ.get("QIM_CONSUMER_SEED")
STEPS = 60
BUCKETS = 4

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(60 + 20 * WALKS)]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches and short waits, so that a short walk meets their edges."""
    for module in (projection_storage, projection, memlog, register):
        monkeypatch.setattr(module, "ENTRIES_PER_CALL", 3)
    monkeypatch.setattr(consume, "ENTRIES_PER_READ", 3)
    monkeypatch.setattr(memlog, "ENTRIES_PER_READ", 2)
    monkeypatch.setattr(consume, "BLOCK_SECONDS", 0.02)
    monkeypatch.setattr(consume, "GATHER_SECONDS", 0.002)
    monkeypatch.setattr(consume, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(consume, "REFUSED_SECONDS", 0.05)
    monkeypatch.setattr(consume, "AGED_MS", -1)
    monkeypatch.setattr(progress, "CACHED_SECONDS", 0.01)
    monkeypatch.setattr(memlog, "IDLE_SECONDS", 0.03)
    monkeypatch.setattr(register, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(backoff, "FIRST_PAUSE_SECONDS", 0.005)
    monkeypatch.setattr(backoff, "LONGEST_PAUSE_SECONDS", 0.05)
    for module in (leases, tenures):
        monkeypatch.setattr(module, "LEASE_MS", 300)
        monkeypatch.setattr(module, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(leases, "AGAIN_SECONDS", 0.05)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    """Two servers, each a commit instance and a session instance; every replica reads the logs on its own."""
    require_valkey()
    with ValkeyServer() as one, ValkeyServer() as two:
        topology = Topology((one.address, two.address), BUCKETS, "walk")
        opened: list[Instance] = []

        async def connections(name: str) -> list[Instance]:
            found = [
                Instance(address, name=name, instance_position=place)
                for place, address in enumerate(topology.addresses)
            ]
            for instance in found:
                instance.on_connected.append(ScriptLoader((*main.SCRIPTS, WIPE)))
                await instance.start()
            opened.extend(found)
            return found

        yield Stores(topology, await connections("store"), [await connections("dispatch") for _ in range(REPLICAS)])
        for instance in opened:
            await instance.close()


async def emptied(stores: Stores) -> None:
    """A new installation on the same servers."""
    for instance in stores.instances:
        await instance.call("FLUSHALL")
    for role in (Role.COMMIT, Role.SESSION):
        await verify_topology(stores.instances, stores.topology, role)


async def test_walks_lose_nothing_and_do_nothing_twice(
    stores: Stores, hurried: None, capsys: pytest.CaptureFixture[str]
) -> None:
    first = random.SystemRandom().randrange(2**31) if SEED is None else int(SEED)
    executed: Counter[str] = Counter()
    steps, started = 0, time.monotonic()
    try:
        for number in range(WALKS):
            seed = first if SEED is not None else first + number
            await emptied(stores)
            walk = Walk(seed, stores)
            try:
                await walk.run(STEPS)
            except AssertionError as error:
                raise AssertionError(f"QIM_CONSUMER_SEED={seed}: {error}") from None
            finally:
                steps += len(walk.steps)
                executed += walk.executed
    finally:
        with capsys.disabled():
            calls = ", ".join(f"{count} {name}" for name, count in sorted(executed.items()))
            sys.stdout.write(
                f"\nconsumers: {steps} steps in {time.monotonic() - started:.0f} s from seed {first}; {calls}\n"
            )
