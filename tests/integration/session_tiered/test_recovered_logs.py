"""A recovery begins a dispatch log anew: whoever reads it notices, also on a connection that has outlived it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.session.conftest import Running, Store, until
from tests.integration.session.living import Live, attached, living
from tests.support.dispatch import TENANT, group, messages, ordinary, user

from qim_common.keys import projection_epoch
from qim_common.redis import Role, read_fingerprint
from qim_common.redis.fingerprint import KEY
from qim_session.commands.consume import DispatchConsumer, DispatchLogRefused
from qim_session.domain.cursors import Cursor
from qim_session.domain.entries import ProjectionEntry

pytestmark = pytest.mark.server
A, ANA, BEN = group(1), user(1), user(2)
ANOTHER = "f" * 32


async def recover(store: Store, log_id: str = ANOTHER) -> None:
    """What a recovery leaves in the fingerprint."""
    former = await read_fingerprint(store.instance, Role.COMMIT)
    assert former is not None
    replaces = ",".join((*former.replaces, former.log_id))
    await store.instance.call("HSET", KEY, "log_id", log_id, "replaces", replaces)


async def epoch(store: Store) -> int:
    return int(await store.instance.call("GET", projection_epoch(0)) or 0)


async def say(store: Store, seq: int, version: int = 1, generation: int = 0) -> None:
    await store.append(A, messages(A, version, seq, [ordinary(ANA)], generation=generation))


@pytest_asyncio.fixture
async def consumer(store: Store) -> AsyncIterator[DispatchConsumer]:
    store.members.versions[A, 1] = {ANA}
    async with Running(store.consumer()) as running:
        yield running


async def test_a_running_consumer_raises_the_epoch_and_goes_on_in_the_new_log(
    store: Store, consumer: DispatchConsumer
) -> None:
    await say(store, 1)

    async def projected() -> bool:
        return A in await store.listed(ANA)

    await until(projected)
    before = await epoch(store)
    store.members.versions[A, 1] = {BEN}  # the version was given out again
    await recover(store)

    async def risen() -> bool:
        return await epoch(store) > before

    await until(risen)
    await say(store, 1, generation=1)

    async def projected_anew() -> bool:
        return A in await store.listed(BEN)

    await until(projected_anew)

    async def moved() -> bool:
        (stored,) = await store.projection.checkpoints([store.partition(A)])
        return stored is not None and stored.log_id == ANOTHER

    await until(moved)


async def test_a_consumer_that_was_down_meanwhile_raises_the_epoch_too(store: Store) -> None:
    store.members.versions[A, 1] = {ANA}
    async with Running(store.consumer()):
        await say(store, 1)

        async def projected() -> bool:
            return A in await store.listed(ANA)

        await until(projected)
    before = await epoch(store)
    await recover(store, "e" * 32)
    await recover(store, ANOTHER)
    async with Running(store.consumer()):

        async def risen() -> bool:
            return await epoch(store) > before

        await until(risen)


async def test_an_identity_that_replaces_nothing_is_still_refused(store: Store) -> None:
    async with Running(store.consumer()) as consumer:
        await say(store, 1)

        async def consumed() -> bool:
            return any(position.ms for position in consumer.positions.values())

        store.members.versions[A, 1] = {ANA}
        await until(consumed)
        before = await epoch(store)
        await store.instance.call("HSET", KEY, "log_id", ANOTHER)

        async def refused() -> bool:
            return bool(store.metrics.partitions_refused._value.get() > 0)

        await until(refused)
        assert await epoch(store) == before
    with pytest.raises(DispatchLogRefused):
        await store.consumer().check_start()


@pytest_asyncio.fixture
async def live(store: Store) -> AsyncIterator[Live]:
    async with living(store) as made:
        made.members.versions[A, 1] = {ANA}
        await store.people.register([ProjectionEntry(TENANT, ANA, A, 1)])
        yield made


async def test_live_streams_catch_up_with_everything_and_leave_what_was_lost(store: Store, live: Live) -> None:
    await attached(live, ANA)
    for seq in (1, 2):
        await say(store, seq)
    await live.screen.until(1, "delivered", 2)
    live.owner.newest[A], live.owner.generation = 1, 1
    live.members.versions[A, 1] = {ANA, BEN}  # the version was given out again
    await recover(store)
    (told,) = await live.screen.until(1, "resync_required")
    resync = told.resync_required
    assert (resync.conversation_id, resync.generation, resync.newest_seq) == (A, 1, 1)
    await live.screen.until(1, "attached", 2)
    await attached(live, BEN, 2)
    live.owner.newest[A] = 2
    await say(store, 2, generation=1)
    await live.screen.until(1, "delivered", 3)
    await live.screen.until(2, "delivered", 1)
    assert live.screen.seqs(1, A) == [1, 2, 2]


async def test_a_recovery_without_a_loss_repeats_nothing(store: Store, live: Live) -> None:
    await attached(live, ANA)
    await say(store, 1)
    await live.screen.until(1, "delivered")
    live.owner.newest[A] = 1
    await recover(store)
    await live.screen.until(1, "attached", 2)
    await say(store, 2)
    await live.screen.until(1, "delivered", 2)
    assert live.screen.seqs(1, A) == [1, 2]
    assert live.screen.of(1, "resync_required") == []


async def test_a_resume_token_of_the_former_log_looks_at_everything(store: Store, live: Live) -> None:
    """The conversation was active before the token, and has lost something that the device has seen."""
    await attached(live, ANA)
    await say(store, 1)
    await live.screen.until(1, "delivered")
    live.screen.stream.acknowledge(1, [(A, Cursor(0, 1))])
    live.screen.stream.detach(1)
    (ended,) = await live.screen.until(1, "detached")
    live.owner.newest[A] = 1

    live.screen.attach(2, ANA, ended.detached.resume_token)
    await live.screen.until(2, "attached")
    assert live.screen.of(2, "resync_required") == []
    live.screen.stream.detach(2)
    (ended,) = await live.screen.until(2, "detached")

    live.owner.generation = 1
    await recover(store)
    live.screen.attach(3, ANA, ended.detached.resume_token)
    await live.screen.until(3, "resync_required")
