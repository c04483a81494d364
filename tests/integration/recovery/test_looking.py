"""`qimctl recover --dry-run`, and a run that is refused: whatever is configured, the instance stays as it was."""

from __future__ import annotations

import pytest
from tests.integration.recovery.conftest import BUCKETS, Recovering
from tests.integration.recovery.test_qimctl_recover import recover
from tests.support.chat import ANA, BEN
from tests.support.past import World

from qim_common.positions import Position
from qim_common.redis import read_fingerprint
from qim_common.redis.fence import FENCE_KEY, Fenced, note_good, read_fence
from qim_common.redis.fingerprint import KEY
from qim_devkit.valkey import ValkeyServer
from qim_writer.storage_archive import ArchivePosition

BEHIND = Position(2_000_000_000_000, 1)
"""What the archive has seen of an instance that went back."""


async def met_again(recovering: Recovering, world: World, server: ValkeyServer) -> None:
    """The instance has a past, is of the backend tiered, and lives anew; nobody has compared it yet."""
    group = await world.chat.create(ANA, BEN)
    await world.chat.send(ANA, group)
    await recovering.archive_all(world.stores)
    async with recovering.instance(server) as instance:
        await note_good(instance, (await read_fence(instance))[1])
        await instance.call("HSET", FENCE_KEY, "run_id", "f" * 40)
        await instance.call("HSET", KEY, "backend", "tiered", "installation_id", recovering.installation)


async def went_back(recovering: Recovering, server: ValkeyServer) -> None:
    """The archive has seen more of it."""
    async with recovering.instance(server) as instance:
        fingerprint = await read_fingerprint(instance)
    assert fingerprint is not None
    seen = {bucket: ArchivePosition(fingerprint.log_id, BEHIND) for bucket in range(BUCKETS)}
    await recovering.archive.positions.announce(0, seen)


@pytest.mark.parametrize(
    ("how", "changes", "code", "told"),
    [
        ("--dry-run", {}, 0, "the archive has seen it up to"),
        ("--dry-run", {"QIM_BACKEND": "redis"}, 1, "Are QIM_BACKEND, QIM_INSTALLATION_ID"),
        ("--dry-run", {"QIM_INSTALLATION_ID": "another"}, 1, "Are QIM_BACKEND, QIM_INSTALLATION_ID"),
        ("--yes", {}, 1, "Say --archive-complete"),
        ("--yes --accept-loss", {"QIM_BACKEND": "redis"}, 1, "Are QIM_BACKEND, QIM_INSTALLATION_ID"),
    ],
)
async def test_an_instance_that_went_back_is_still_compared_after_a_look(
    recovering: Recovering,
    world: World,
    valkey: ValkeyServer,
    variables: dict[str, str],
    how: str,
    changes: dict[str, str],
    code: int,
    told: str,
) -> None:
    await met_again(recovering, world, valkey)
    await went_back(recovering, valkey)
    before = await world.stores.everything()

    look = await recover(f"--instance 0 {how}", variables | changes)

    assert look.code == code
    assert told in look.out + look.err
    assert await world.stores.everything() == before
    async with recovering.instance(valkey) as instance:
        await instance.call("HSET", KEY, "backend", "redis", "installation_id", "tests")
        assert isinstance(await recovering.guard(valkey).judge(instance), Fenced)


@pytest.mark.parametrize("how", ["--dry-run", "--accept-loss --yes"])
async def test_an_instance_that_has_all_is_not_noted_as_good_by_a_look(
    recovering: Recovering, world: World, valkey: ValkeyServer, variables: dict[str, str], how: str
) -> None:
    await met_again(recovering, world, valkey)
    before = await world.stores.everything()

    look = await recover(f"--instance 0 {how}", variables)

    assert look.code == 1
    assert "not fenced" in look.err
    assert await world.stores.everything() == before
