"""Read marks and flags of people's other devices, live: who is told, and that nothing is lost silently."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session.conftest import Store
from tests.integration.session.living import Live, attached, living
from tests.support.dispatch import TENANT, group, user

from qim_common.ids import DeviceId
from qim_common.keys import usig
from qim_common.positions import LOG_START
from qim_common.redis import Instance
from qim_session.backends.redis_signals import RedisSignalLog
from qim_session.domain.signals import SIGNAL_FIELD, Signal, SignalKind

pytestmark = pytest.mark.server
A = group(1)
ANA, BEN = user(1), user(2)
STREAM = usig(0)


def mark(seq: int) -> bytes:
    return Signal(SignalKind.READ_MARK, TENANT, ANA, DeviceId(b"d" * 16), A, 0, seq).pack()


@pytest_asyncio.fixture
async def log(store: Store) -> AsyncIterator[RedisSignalLog]:
    instance = Instance(store.server.address, name="signals", instance_position=0)
    await instance.start()
    yield RedisSignalLog(instance)
    await instance.close()


@pytest_asyncio.fixture
async def live(store: Store, log: RedisSignalLog) -> AsyncIterator[Live]:
    async with living(store, [log]) as made:
        yield made


async def add(store: Store, *seqs: int, keep: int | None = None) -> None:
    """In one step, so that nobody reads what of it is trimmed away."""
    trim = [] if keep is None else [("XTRIM", STREAM, "MAXLEN", keep)]
    adds = [("XADD", STREAM, "*", SIGNAL_FIELD, mark(seq)) for seq in seqs]
    await store.instance.pipeline([("MULTI",), *adds, *trim, ("EXEC",)])


async def test_signals_that_left_the_stream_before_they_were_read_are_told_of(store: Store, live: Live) -> None:
    await attached(live, ANA)
    await attached(live, BEN, 2)
    await add(store, 1)
    await live.screen.until(1, "read_mark")
    assert live.screen.of(1, "states_changed") == []
    await add(store, 2, 3, keep=1)
    await live.screen.until(2, "states_changed")
    (seen, newest) = await live.screen.until(1, "read_mark", 2)
    assert (seen.read_mark.read_seq, newest.read_mark.read_seq) == (1, 3)
    assert len(live.screen.of(1, "states_changed")) == 1


async def test_a_stream_of_which_everything_is_gone_is_told_of_once(store: Store, log: RedisSignalLog) -> None:
    await add(store, 1)
    at = await log.end()
    await add(store, 2, 3, keep=0)
    read = await log.read(at, count=10, block_ms=1)
    assert (read.signals, read.upto, read.lost) == ((), await log.end(), True)
    assert not (await log.read(read.upto, count=10, block_ms=1)).lost


async def test_a_stream_that_went_away_is_read_from_its_new_beginning(store: Store, log: RedisSignalLog) -> None:
    await add(store, 1)
    at = await log.end()
    await store.instance.call("DEL", STREAM)
    read = await log.read(at, count=10, block_ms=1)
    assert (read.upto, read.lost) == (LOG_START, True)
    assert not (await log.read(LOG_START, count=10, block_ms=1)).lost
    assert await log.end() == LOG_START
