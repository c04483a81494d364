"""`qimctl group`, what changes a group, as a process."""

from __future__ import annotations

import pytest
from tests.integration.admin.conftest import named_group, qimctl

from qim_client import GatewayClient
from qim_client.names import user_id
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

BEN = user_id("ben")


async def test_the_settings_named_are_replaced_and_the_others_stay(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-set")
    first = await qimctl(admin_suite, "group set qimctl-set --newcomer last:5 --leaver none --limit 9")
    assert {"newcomers read last:5", "leavers read none", "members 1 of 9"} <= set(first.lines), first.err
    second = await qimctl(
        admin_suite,
        "group set qimctl-set --rejoin all --retention-days 7 --broadcast-max 3 -o json",
    )
    assert second.json["settings"] == {
        "newcomer": "last_n",
        "last_n": 5,
        "rejoin": "all_stays",
        "leaver": "none",
        "broadcast_max_members": 3,
        "member_limit": 9,
        "retention_days": 7,
    }
    third = await qimctl(admin_suite, "group set qimctl-set --newcomer since-join --limit 0 -o json")
    assert (third.json["settings"]["newcomer"], third.json["settings"]["last_n"]) == ("since_join", 0)


async def test_a_group_is_handed_over_cleared_frozen_and_unfrozen(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-state", BEN, messages=3)
    said = [
        (await qimctl(admin_suite, f"group {line}")).out
        for line in (
            "owner qimctl-state ben",
            "clear qimctl-state --up-to 2",
            "freeze qimctl-state",
            "unfreeze qimctl-state",
        )
    ]
    assert said == [
        "qimctl-state: ben is the owner\n",
        "qimctl-state: cleared for all up to 2\n",
        "qimctl-state: frozen\n",
        "qimctl-state: not frozen\n",
    ]
    cleared = await qimctl(admin_suite, "group clear qimctl-state -o json")
    assert (cleared.json["group_floor_seq"], cleared.json["frozen"]) == (3, False)
    stranger = await qimctl(admin_suite, "group owner qimctl-state cara")
    assert (stranger.code, stranger.err.split(":")[0]) == (1, "NEW_OWNER_NOT_MEMBER")
