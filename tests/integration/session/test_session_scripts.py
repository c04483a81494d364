"""The session's scripts on a server in cluster mode, where one call may touch keys of one tag only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.dispatch import TENANT, group, user
from tests.support.valkey import require_valkey

from qim_common.keys import LEASES, REPLICAS, PushKeys
from qim_common.redis import Argument, Connection, RedisAddress, Script
from qim_common.redis.script_check import check_source
from qim_devkit.valkey import ValkeyServer, free_port
from qim_session.backends.redis_flags import SET_FLAGS
from qim_session.backends.redis_leases import RELEASE_LEASES, RENEW_LEASES
from qim_session.backends.redis_marks import POP_UNFLUSHED, RESTORE_FLAGS
from qim_session.backends.redis_people import ADVANCE_CURSORS
from qim_session.backends.redis_projection import POP_PENDING, PROJECT_ENTRIES, SETTLE_PROGRESS
from qim_session.backends.redis_push import MOVE_CHECKPOINT
from qim_session.domain.cursors import Cursor
from qim_session.domain.entries import ProjectionEntry
from qim_session.domain.flags import Flags

CONVS, OTHER_CONVS = "7:{u003}:a:convs", "7:{u003}:b:convs"
CHECKPOINTS, PROGRESS, PENDING = "{u003}:checkpoints", "{u003}:progress", "{u003}:ucs_pending"
BIG, SIGNALS, UNFLUSHED = "7:{u003}:a:bigconvs", "{u003}:usig", "{u003}:unflushed"


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Connection]:
    """A connection to a cluster of one node that holds all slots."""
    require_valkey()
    with ValkeyServer(options={"cluster-enabled": "yes", "cluster-port": str(free_port())}) as server:
        connection = await Connection.open(RedisAddress.parse(server.address), name="test")
        await connection.call("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        while b"cluster_state:ok" not in await connection.call("CLUSTER", "INFO"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        yield connection
        connection.close()
        await connection.wait_closed()


@pytest.mark.server
async def test_the_scripts_run_in_cluster_mode(cluster: Connection) -> None:
    packed = [ProjectionEntry(TENANT, user(number), group(1), 10).pack() for number in (1, 2)]
    keys: list[Argument] = [CHECKPOINTS, PROGRESS, PENDING, CONVS, OTHER_CONVS, BIG]
    args: list[Argument] = ["3", "", "10-0@log", 10, 1, 10, packed[0], 10, packed[1]]
    assert await cluster.call("EVAL", PROJECT_ENTRIES.source, len(keys), *keys, *args) == [0, 2]
    assert await cluster.call("EVAL", PROJECT_ENTRIES.source, len(keys), *keys, *args) == [1, b"10-0@log"]
    settle: list[Argument] = ["3", "4", "10-0@log", "9-0@log", 12, 12]
    assert await cluster.call("EVAL", SETTLE_PROGRESS.source, 2, CHECKPOINTS, PROGRESS, *settle) == [b"4"]
    assert await cluster.call("EVAL", POP_PENDING.source, 1, PENDING, *packed) == 2
    assert await cluster.call("EVAL", RENEW_LEASES.source, 2, LEASES, REPLICAS, "me", 6000, 3) == [0, 1, 2]
    assert await cluster.call("EVAL", RELEASE_LEASES.source, 2, LEASES, REPLICAS, "me") == 3
    move: list[Argument] = ["", "", group(1), Cursor(0, 5).pack()]
    assert await cluster.call("EVAL", ADVANCE_CURSORS.source, 3, "7:{u003}:a:dev:p", SIGNALS, UNFLUSHED, *move) == 1
    told: list[Argument] = ["signal", "person", group(1), Cursor(0, 5).pack()]
    assert await cluster.call("EVAL", ADVANCE_CURSORS.source, 3, "7:{u003}:a:read", SIGNALS, UNFLUSHED, *told) == 1
    written: list[Argument] = [b"person" + group(1), Cursor(0, 5).pack()]
    assert await cluster.call("EVAL", POP_UNFLUSHED.source, 1, UNFLUSHED, *written) == 1
    back: list[Argument] = [group(2), Flags(muted=True, changes=1).pack()]
    assert await cluster.call("EVAL", RESTORE_FLAGS.source, 1, "7:{u003}:a:flags", *back) == 1
    idem = [f"{{u003}}:idem{number}" for number in range(3)]
    names: list[Argument] = ["7:{u003}:a:flags", SIGNALS, "{u003}:meta", *idem, UNFLUSHED]
    flags: list[Argument] = [b"f" * 16, b"d" * 8, 0, group(1), "1", "", Cursor(0, 5).pack(), 0, b"s" * 69, b"field"]
    assert await cluster.call("EVAL", SET_FLAGS.source, len(names), *names, *flags) == [0, 1]
    assert await cluster.call("XLEN", SIGNALS) == 2
    key = PushKeys("webhook").checkpoints
    for expected, status in (("", 0), ("", 1), ("10-0@log", 0)):
        move = ["3", expected, "10-0@log"]
        assert await cluster.call("EVAL", MOVE_CHECKPOINT.source, 1, key, *move) == status


SCRIPTS = [
    *(PROJECT_ENTRIES, SETTLE_PROGRESS, POP_PENDING, ADVANCE_CURSORS, SET_FLAGS, POP_UNFLUSHED, RESTORE_FLAGS),
    *(RENEW_LEASES, RELEASE_LEASES, MOVE_CHECKPOINT),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_takes_every_key_from_its_keys(script: Script) -> None:
    assert check_source(script.source) == []
