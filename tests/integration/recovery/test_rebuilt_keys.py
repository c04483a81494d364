"""What a recovery brings back is what was there: key by key, and answer by answer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.integration.recovery.conftest import BUCKETS, Recovering
from tests.support.past import Past, World, keys_of, sights

from qim_common.ids import ConversationId
from qim_common.keys import BucketKeys
from qim_common.recovery import Loss
from qim_devkit.valkey import ValkeyServer


async def conversations_of(world: World) -> set[ConversationId]:
    """Everything that is stored."""
    keys = await world.stores.call("KEYS", "*:grpmeta")
    return {ConversationId(bytes.fromhex(key.decode().split(":")[2])) for key in keys}


async def live(past: Past, world: World, steps: int) -> None:
    """A past."""
    for _ in range(3):
        await past.begin(world)
    for _ in range(steps):
        await past.step(world)


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is otherwise, in words."""
    names = sorted(before.keys() | after.keys())
    return [
        f"{name}: {before.get(name)!r} -> {after.get(name)!r}" for name in names if before.get(name) != after.get(name)
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_a_lost_instance_comes_back_as_it_was(
    recovering: Recovering, world: World, empty: ValkeyServer, seed: int
) -> None:
    past = Past(random.Random(seed))  # noqa: S311  no secret
    await live(past, world, 60)
    await recovering.archive_all(world.stores)
    await past.trim(world)
    conversations = await conversations_of(world)

    report = await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        assert await conversations_of(recovered) == conversations
        assert report.conversations == len(conversations)
        for conversation in conversations:
            assert differing(await keys_of(world, conversation), await keys_of(recovered, conversation)) == []
        assert differing(await sights(world, conversations), await sights(recovered, conversations)) == []
        for bucket in map(BucketKeys, range(BUCKETS)):
            retained = sorted(await world.stores.call("SMEMBERS", bucket.retained))
            assert sorted(await recovered.stores.call("SMEMBERS", bucket.retained)) == retained
        assert await past.repeated(recovered) == past.answers
        assert differing(await sights(world, conversations), await sights(recovered, conversations)) == []
