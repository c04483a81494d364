"""`qimctl membership` and `qimctl group` as a process: what it prints, as a table and as JSON, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.admin.conftest import named_group, qimctl

from qim_client import GatewayClient
from qim_client.names import user_id
from qim_common.ids import show
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

ANA, BEN, CARA = (user_id(name) for name in ("ana", "ben", "cara"))


async def test_people_are_added_by_name_and_by_uuid_and_shown_by_name(
    gateway: GatewayClient, admin_suite: Suite
) -> None:
    await named_group(gateway, "qimctl-names")
    untyped = show(user_id("somebody whose name is never typed"))
    added = await qimctl(admin_suite, f"membership add qimctl-names ben {untyped}")
    assert added.code == 0, added.err
    assert added.out == "added 2 of 2 people, qimctl-names: version 2, seq 1, 3 members\n"
    listed = await qimctl(admin_suite, "group members qimctl-names")
    assert {"ben", untyped} <= {line.split()[0] for line in listed.out.splitlines()}
    shown = await qimctl(admin_suite, "group show qimctl-names")
    assert "membership version 2" in shown.lines


async def test_json_is_complete_and_has_uuids(gateway: GatewayClient, admin_suite: Suite) -> None:
    group = await named_group(gateway, "qimctl-json", BEN)
    changed = (await qimctl(admin_suite, "membership remove qimctl-json ben --output json")).json
    (call,) = changed["calls"]
    assert (changed["group"], changed["people"], changed["changed_count"]) == (show(group), 1, 1)
    assert {key: call[key] for key in ("group", "membership_version", "seq", "member_count", "changed_count")} == {
        "group": show(group),
        "membership_version": 2,
        "seq": 1,
        "member_count": 1,
        "changed_count": 1,
    }
    members = (await qimctl(admin_suite, f"-o json group members {show(group)}")).json
    assert members == {
        "group": show(group),
        "membership_version": 2,
        "member_count": 1,
        "members": [{"user": show(ANA), "role": "owner", "joined_at": 0, "state": "member", "left_at": 0}],
    }
    details = (await qimctl(admin_suite, f"group show {show(group)} -o json")).json
    assert (details["owner"], details["head_seq"], details["settings"]["newcomer"]) == (show(ANA), 1, "since_join")


async def test_a_file_is_split_into_calls_of_1000(gateway: GatewayClient, admin_suite: Suite, tmp_path: Path) -> None:
    await named_group(gateway, "qimctl-file")
    people = tmp_path / "people.txt"
    people.write_text("# 2,100 people, one of them twice\n" + "".join(f"p{n}\n" for n in range(2100)) + "p7\n")
    added = await qimctl(admin_suite, f"membership add qimctl-file --file {people} --output json")
    assert [call["changed_count"] for call in added.json["calls"]] == [1000, 1000, 100]
    assert [call["seq"] for call in added.json["calls"]] == [1, 2, 3]
    listed = await qimctl(admin_suite, "group members qimctl-file --output json")
    assert listed.json["member_count"] == 2101
    removed = await qimctl(admin_suite, "membership remove qimctl-file -f -", stdin="p1\np2\n")
    assert removed.out == "removed 2 of 2 people, qimctl-file: version 5, seq 4, 2,099 members\n"


async def test_a_refusal_names_its_reason_and_ends_with_1(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-refused", BEN)
    refused = await qimctl(admin_suite, "membership remove qimctl-refused ana")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("OWNER_CANNOT_LEAVE: ")
    initiator = await qimctl(admin_suite, "membership add qimctl-refused cara --initiator ana -o json")
    assert initiator.code == 1
    error = json.loads(initiator.err)["error"]
    assert (error["reason"], error["fields"][0]["field"]) == ("INVALID_ARGUMENT", "initiator_user_id")


async def test_an_unknown_group_and_a_foreign_tenant_are_refused(admin_suite: Suite) -> None:
    unknown = await qimctl(admin_suite, "group show qimctl-nowhere")
    assert (unknown.code, unknown.err.split(":")[0]) == (1, "PERMISSION_DENIED")
    foreign = await qimctl(admin_suite, "group show qimctl-nowhere --tenant 9")
    assert (foreign.code, foreign.err.split(":")[0]) == (1, "TENANT_NOT_ALLOWED")


async def test_what_was_done_before_a_refusal_is_reported_with_it(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-partly", BEN, *(user_id(f"p{n}") for n in range(998)))
    # The owner is in the second call of two, and Ben remains.
    people = "".join(f"p{n}\n" for n in range(1000)) + "ana\n"
    ended = await qimctl(admin_suite, "membership remove qimctl-partly -f - -o json", stdin=people)
    assert ended.code == 1
    assert [call["changed_count"] for call in ended.json["calls"]] == [998]
    assert json.loads(ended.err)["error"]["reason"] == "OWNER_CANNOT_LEAVE"
