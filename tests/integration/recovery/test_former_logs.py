"""A recovered instance names every identity that its logs ever had: a checkpoint of any of them is a gap."""

from __future__ import annotations

from pathlib import Path

from tests.integration.recovery.conftest import Recovering
from tests.integration.recovery.test_in_place import fingerprint_of
from tests.support.chat import ANA, BEN
from tests.support.past import World

from qim_common.recovery import Loss
from qim_devkit.valkey import ValkeyServer


async def test_after_three_losses_of_the_disk(
    recovering: Recovering, world: World, valkey: ValkeyServer, empty: ValkeyServer, tmp_path: Path
) -> None:
    group = await world.chat.create(ANA, BEN)
    await world.chat.send(ANA, group)
    await recovering.archive_all(world.stores)
    first = await fingerprint_of(recovering, valkey)
    await recovering.recover(empty, Loss.EXCLUDED)
    second = await fingerprint_of(recovering, empty)
    assert second.replaces == (first.log_id,)
    # An archiver announces in between, and knows nothing of it.
    async with recovering.world(empty) as recovered:
        await recovered.chat.send(ANA, group)
        await recovering.archive_all(recovered.stores)

    with ValkeyServer(tmp_path / "third") as server:
        await recovering.recover(server, Loss.ACCEPTED)
        third = await fingerprint_of(recovering, server)
        assert third.replaces == (first.log_id, second.log_id)
    with ValkeyServer(tmp_path / "fourth") as server:
        await recovering.recover(server, Loss.EXCLUDED)
        fourth = await fingerprint_of(recovering, server)
        assert fourth.replaces == (first.log_id, second.log_id, third.log_id)
