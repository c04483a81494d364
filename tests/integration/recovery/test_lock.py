"""One recovery of an instance at a time: whoever cannot renew the right to it ends, and never lifts the fence."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.integration.recovery.test_rebuilt_keys import live
from tests.support.past import Past, World
from tests.support.writers import until

from qim_common.errors import BackendUnavailable
from qim_common.recovery import Loss, RecoveryRefused
from qim_common.redis import Instance, read_fingerprint
from qim_common.redis.fence import read_fence
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.recovering import LOCK_KEY, RedisRecovery
from qim_writer.commands.recover.lock import locked

LOCK = "qim_writer.commands.recover.lock"


class Unreachable(RedisRecovery):
    """An instance that does not answer when its lock is renewed, for so many renewals."""

    def __init__(self, recovering: Recovering, server: ValkeyServer, instance: Instance, missed: int) -> None:
        topology = recovering.topology(server)
        super().__init__(instance, topology, recovering.guard(server), (0, topology))
        self.missed = missed
        self.asked = 0

    async def lock(self, token: str) -> bool:
        """Taken the first time; then it may not answer."""
        self.asked += 1
        if 1 < self.asked <= 1 + self.missed:
            raise BackendUnavailable
        return await super().lock(token)


async def test_a_renewal_without_an_answer_is_tried_again(
    recovering: Recovering, empty: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{LOCK}._RENEW_SECONDS", 0.01)
    async with recovering.instance(empty) as instance:
        unreachable = Unreachable(recovering, empty, instance, 2)
        async with locked(unreachable):
            await until(lambda: unreachable.asked > 5)
            assert await instance.call("EXISTS", LOCK_KEY) == 1
        assert await instance.call("EXISTS", LOCK_KEY) == 0


async def test_a_run_that_cannot_renew_its_right_ends(
    recovering: Recovering, empty: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{LOCK}._RENEW_SECONDS", 0.01)
    monkeypatch.setattr(f"{LOCK}._HELD_SECONDS", 0.05)
    async with recovering.instance(empty) as instance:
        with pytest.raises(RecoveryRefused, match="the right to recover this instance was lost"):
            async with locked(Unreachable(recovering, empty, instance, 1_000_000)):
                await asyncio.Event().wait()


async def test_a_run_that_was_overtaken_lifts_no_fence(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    await live(past, world, 3)
    await recovering.archive_all(world.stores)
    async with recovering.instance(empty) as instance:
        run = RedisRecovery(instance, recovering.topology(empty), recovering.guard(empty), None)
        assert await run.lock("first")
        await run.begin("ab" * 16, "it is being recovered")
        await instance.call("SET", LOCK_KEY, "second", "PX", 60_000)
        with pytest.raises(RecoveryRefused, match="another recovery of this instance has begun"):
            await run.finish("ab" * 16, [])
        assert await read_fingerprint(instance) is None
        mark, _ = await read_fence(instance)
        assert mark.fenced
        await instance.call("DEL", LOCK_KEY)
    assert (await recovering.recover(empty, Loss.ACCEPTED)).done
