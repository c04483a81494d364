"""Retention by age as operators run it: `qimctl retention run`, the roles, the journal, and what is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
import redis
from tests.integration.admin.conftest import TENANT, Named, named_group, qimctl

from qim.admin.v1 import admin_pb2, admin_pb2_grpc
from qim_client import GatewayClient, OperatorClient
from qim_common import errors
from qim_common.ids import ConversationId, TenantId, show
from qim_common.keys import ConversationKeys
from qim_common.topology import Topology
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

MS_PER_DAY = 86_400_000
DAYS = 7


@pytest.fixture
def valkeys(admin_suite: Suite) -> Iterator[list[Any]]:
    """The suite's instances (untyped clients), in their order."""
    clients = [
        redis.Redis(host=host, port=int(port), protocol=2)
        for host, _, port in (address.rpartition(":") for address in admin_suite.valkey_addresses)
    ]
    yield clients
    for client in clients:
        client.close()


async def aged_group(
    suite: Suite, gateway: GatewayClient, operator: OperatorClient, valkeys: list[Any], name: str
) -> ConversationId:
    """A group with a retention and four messages, three of which are too old."""
    group = await named_group(gateway, name, messages=4)
    settings = (await operator.get_group(group)).settings
    await operator.update_group_settings(group, replace(settings, retention_days=DAYS))
    topology = Topology(suite.valkey_addresses, 256, suite.environment("writer")["QIM_INSTALLATION_ID"])
    bucket = topology.conversation_bucket(TENANT, group)
    keys, valkey = ConversationKeys(TENANT, group, bucket), valkeys[topology.instance_of(bucket)]
    now = int(valkey.time()[0]) * 1000
    valkey.delete(keys.msgts)
    for seq, days in ((1, 9), (2, 8), (3, 8), (4, 1)):
        then = now - days * MS_PER_DAY
        record = valkey.hget(keys.msgrec, str(seq))
        valkey.hset(keys.msgrec, str(seq), record[:8] + struct.pack(">Q", then)[2:] + record[14:])
        valkey.zadd(keys.msgts, {str(seq): then})
    return group


def lines_of(suite: Suite) -> list[dict[str, object]]:
    """The journal's lines about runs."""
    lines = [json.loads(line) for line in suite.log("admin").read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("action") == "RunRetention"]


async def test_a_dry_run_tells_what_goes_and_a_run_takes_it(
    admin_suite: Suite, gateway: GatewayClient, operator: OperatorClient, valkeys: list[Any]
) -> None:
    group = await aged_group(admin_suite, gateway, operator, valkeys, "retention-run")
    would = await qimctl(admin_suite, "retention run --dry-run")
    assert would.code == 0, would.err
    assert f"{show(group)} 7 0 3 3 0" in would.lines
    assert "3 messages of 1 groups and 0 archive partitions would go" in would.out
    assert (await operator.get_group(group)).group_floor_seq == 0

    document = (await qimctl(admin_suite, "retention run -o json")).json
    assert (document["dry_run"], document["unavailable_buckets"], document["clock_ahead_seconds"]) == (False, 0, 0)
    (found,) = (one for one in document["groups"] if one["group"] == show(group))
    assert found == {
        "group": show(group),
        "retention_days": DAYS,
        "group_floor_seq": 0,
        "new_group_floor_seq": 3,
        "message_count": 3,
        "archive_partitions": 0,
    }
    assert (await operator.get_group(group)).group_floor_seq == 3
    (page,) = [page async for page in operator.timeline_pages(group)]
    assert page.state_entries[-1].made_by == "retention"

    again = await qimctl(admin_suite, "retention run")
    assert "0 messages of 0 groups" in again.out


async def test_whoever_has_a_role_may_look_and_moderators_may_run(
    admin_suite: Suite, operator_named: Named, backend: OperatorClient
) -> None:
    before = len(lines_of(admin_suite))
    async with operator_named("vic") as viewer, operator_named("mo") as moderator, operator_named("nora") as nobody:
        await viewer.run_retention(dry_run=True)
        await moderator.run_retention()
        for client, dry_run in ((viewer, False), (nobody, True), (nobody, False)):
            with pytest.raises(errors.RoleNotAllowed):
                await client.run_retention(dry_run=dry_run)
    await backend.run_retention(dry_run=True)
    told = [(line["outcome"], str(line["detail"]).split(",")[0]) for line in lines_of(admin_suite)[before:]]
    assert told == [
        ("OK", "dry run"),
        ("OK", "run"),
        ("ROLE_NOT_ALLOWED", "run"),
        ("ROLE_NOT_ALLOWED", "dry run"),
        ("ROLE_NOT_ALLOWED", "run"),
        ("OK", "dry run"),
    ]


async def test_a_tenant_that_is_not_the_operators_is_refused(admin_suite: Suite) -> None:
    ended = await qimctl(admin_suite, "--tenant 3 retention run --dry-run")
    assert (ended.code, ended.err.split(":")[0]) == (1, "TENANT_NOT_ALLOWED")
    async with OperatorClient(admin_suite.addresses["admin"], admin_suite.operator_files(), TenantId(2)) as other:
        assert (await other.run_retention()).groups == ()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (admin_pb2.RunRetentionRequest(), "INVALID_ARGUMENT"),
        (admin_pb2.RunRetentionRequest(tenant_id=1, page_token="no token"), "PAGE_TOKEN_INVALID"),
        (admin_pb2.RunRetentionRequest(tenant_id=1, dry_run=True, page_token="AAAA" * 100), "PAGE_TOKEN_INVALID"),
    ],
    ids=["no tenant", "no token", "a long token"],
)
async def test_a_bad_request_is_refused(admin_suite: Suite, asked: admin_pb2.RunRetentionRequest, reason: str) -> None:
    files = admin_suite.operator_files()
    credentials = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes())
    async with grpc.aio.secure_channel(admin_suite.addresses["admin"], credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await admin_pb2_grpc.GroupAdminStub(channel).RunRetention(asked, timeout=10)
    assert errors.from_rpc_error(refused.value).reason == reason


@pytest.mark.parametrize("line", ["retention run now", "retention run --dry", "retention run -o svg"])
async def test_wrong_usage_ends_with_2(admin_suite: Suite, line: str) -> None:
    assert (await qimctl(admin_suite, line)).code == 2
