"""`qimctl` as a process against the running suite: what it prints, as a table and as JSON, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from tests.support.command_lines import Ended, run_program

from qim_client import GatewayClient, OperatorClient
from qim_client.names import group_id, user_id
from qim_common.ids import ConversationId, TenantId, UserId, show
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN, CARA = (user_id(name) for name in ("ana", "ben", "cara"))


async def qimctl(suite: Suite, *arguments: str, stdin: str = "") -> Ended:
    return await run_program(
        "qimctl", *arguments, environment={"QIM_CONFIG": str(suite.paths.client_config)}, stdin=stdin
    )


async def new_group(gateway: GatewayClient, name: str, *members: UserId, messages: int = 0) -> ConversationId:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group(members, group=group_id(name))).group
    for number in range(messages):
        await ana.send_to(group, b"%d" % number)
    return group


async def test_people_are_added_by_name_and_by_uuid_and_shown_by_name(
    gateway: GatewayClient, admin_suite: Suite
) -> None:
    await new_group(gateway, "qimctl-names")
    added = await qimctl(admin_suite, "membership", "add", "qimctl-names", "ben", show(CARA))
    assert added.code == 0, added.err
    assert added.out == "added 2 of 2 people, qimctl-names: version 2, seq 1, 3 members\n"
    listed = await qimctl(admin_suite, "group", "members", "qimctl-names")
    assert {"ben", show(CARA)} <= {line.split()[0] for line in listed.out.splitlines()}
    shown = await qimctl(admin_suite, "group", "show", "qimctl-names")
    assert "membership version 2" in shown.lines


async def test_json_is_complete_and_has_uuids(gateway: GatewayClient, admin_suite: Suite) -> None:
    group = await new_group(gateway, "qimctl-json", BEN)
    changed = (await qimctl(admin_suite, "membership", "remove", "qimctl-json", "ben", "--output", "json")).json
    (call,) = changed["calls"]
    assert (changed["group"], changed["people"], changed["changed_count"]) == (show(group), 1, 1)
    assert {key: call[key] for key in ("group", "membership_version", "seq", "member_count", "changed_count")} == {
        "group": show(group),
        "membership_version": 2,
        "seq": 1,
        "member_count": 1,
        "changed_count": 1,
    }
    members = (await qimctl(admin_suite, "-o", "json", "group", "members", show(group))).json
    assert members == {
        "group": show(group),
        "membership_version": 2,
        "member_count": 1,
        "members": [{"user": show(ANA), "role": "owner", "joined_at": 0, "state": "member", "left_at": 0}],
    }
    details = (await qimctl(admin_suite, "group", "show", show(group), "-o", "json")).json
    assert (details["owner"], details["head_seq"], details["settings"]["newcomer"]) == (show(ANA), 1, "since_join")


async def test_a_file_is_split_into_calls_of_1000(gateway: GatewayClient, admin_suite: Suite, tmp_path: Path) -> None:
    await new_group(gateway, "qimctl-file")
    people = tmp_path / "people.txt"
    people.write_text("# 2,100 people, one of them twice\n" + "".join(f"p{n}\n" for n in range(2100)) + "p7\n")
    added = await qimctl(admin_suite, "membership", "add", "qimctl-file", "--file", str(people), "--output", "json")
    assert [call["changed_count"] for call in added.json["calls"]] == [1000, 1000, 100]
    assert [call["seq"] for call in added.json["calls"]] == [1, 2, 3]
    listed = await qimctl(admin_suite, "group", "members", "qimctl-file", "--output", "json")
    assert listed.json["member_count"] == 2101
    removed = await qimctl(admin_suite, "membership", "remove", "qimctl-file", "-f", "-", stdin="p1\np2\n")
    assert removed.out == "removed 2 of 2 people, qimctl-file: version 5, seq 4, 2,099 members\n"


async def test_a_refusal_names_its_reason_and_ends_with_1(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-refused", BEN)
    refused = await qimctl(admin_suite, "membership", "remove", "qimctl-refused", "ana")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("OWNER_CANNOT_LEAVE: ")
    initiator = await qimctl(
        admin_suite, "membership", "add", "qimctl-refused", "cara", "--initiator", "ana", "-o", "json"
    )
    assert initiator.code == 1
    error = json.loads(initiator.err)["error"]
    assert (error["reason"], error["fields"][0]["field"]) == ("INVALID_ARGUMENT", "initiator_user_id")


async def test_an_unknown_group_and_a_foreign_tenant_are_refused(admin_suite: Suite) -> None:
    unknown = await qimctl(admin_suite, "group", "show", "qimctl-nowhere")
    assert (unknown.code, unknown.err.split(":")[0]) == (1, "PERMISSION_DENIED")
    foreign = await qimctl(admin_suite, "group", "show", "qimctl-nowhere", "--tenant", "9")
    assert (foreign.code, foreign.err.split(":")[0]) == (1, "TENANT_NOT_ALLOWED")


async def test_what_was_done_before_a_refusal_is_reported_with_it(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-partly", BEN, *(user_id(f"p{n}") for n in range(998)))
    # The owner is in the second call of two, and Ben remains.
    people = "".join(f"p{n}\n" for n in range(1000)) + "ana\n"
    ended = await qimctl(admin_suite, "membership", "remove", "qimctl-partly", "-f", "-", "-o", "json", stdin=people)
    assert ended.code == 1
    assert [call["changed_count"] for call in ended.json["calls"]] == [998]
    assert json.loads(ended.err)["error"]["reason"] == "OWNER_CANNOT_LEAVE"


async def test_the_settings_named_are_replaced_and_the_others_stay(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-set")
    first = await qimctl(
        admin_suite, *["group", "set", "qimctl-set", "--newcomer", "last:5", "--leaver", "none", "--limit", "9"]
    )
    assert {"newcomers read last:5", "leavers read none", "members 1 of 9"} <= set(first.lines), first.err
    second = await qimctl(
        admin_suite,
        *[
            "group",
            "set",
            "qimctl-set",
            "--rejoin",
            "all",
            "--retention-days",
            "7",
            "--broadcast-max",
            "3",
            "-o",
            "json",
        ],
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
    third = await qimctl(
        admin_suite, *["group", "set", "qimctl-set", "--newcomer", "since-join", "--limit", "0", "-o", "json"]
    )
    assert (third.json["settings"]["newcomer"], third.json["settings"]["last_n"]) == ("since_join", 0)


async def test_a_group_is_handed_over_cleared_frozen_and_unfrozen(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-state", BEN, messages=3)
    said = [
        (await qimctl(admin_suite, "group", *line.split())).out
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
    cleared = await qimctl(admin_suite, *["group", "clear", "qimctl-state", "-o", "json"])
    assert (cleared.json["group_floor_seq"], cleared.json["frozen"]) == (3, False)
    stranger = await qimctl(admin_suite, *["group", "owner", "qimctl-state", "cara"])
    assert (stranger.code, stranger.err.split(":")[0]) == (1, "NEW_OWNER_NOT_MEMBER")


async def test_a_decision_is_one_sentence_and_its_fields(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-why", BEN, messages=2)
    await gateway.as_actor(TENANT, BEN).leave_group(group_id("qimctl-why"))
    line = ["explain", "--group", "qimctl-why", "--user", "ben", "--seq", "3"]
    said = (await qimctl(admin_suite, *line)).lines
    assert said[0].startswith("Hidden in the history: seq 3 is the event")
    assert {
        "may read it now no",
        "was delivered yes",
        "decided by leave_event",
        "stay joined at 0, history from 0, left at 3 (left)",
        "own clear point none",
        "group's floor none",
        "newcomers read, now since-join",
    } <= set(said)
    document = (await qimctl(admin_suite, *line, "--output", "json")).json
    assert (document["seq"], document["visible"], document["delivered"]) == (3, False, True)
    assert (document["cause"], document["stay"]["left_at"]) == ("leave_event", 3)
    assert document["sentence"] == said[0]


async def test_a_timeline_tells_who_did_what_and_draws_the_stays(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-line", BEN, messages=2)
    for line in (
        "membership remove qimctl-line ben",
        "group set qimctl-line --newcomer all",
        "membership add qimctl-line cara",
        "group freeze qimctl-line",
    ):
        await qimctl(admin_suite, *line.split())
    drawn = await qimctl(admin_suite, *["timeline", "--group", "qimctl-line"])
    assert any(line.endswith("ben was removed by an operator") for line in drawn.lines)
    assert any(line.endswith("frozen, by operator dev-operator") for line in drawn.lines)
    rows = {line.split()[0]: line.split()[1] for line in drawn.lines if "█" in line and "may read" not in line}
    assert rows["cara"][0] == "▂"
    assert rows["ben"].endswith("R")
    assert drawn.lines[1] == "head 4, no floor, version 3, 2 members, frozen"

    one = await qimctl(admin_suite, *["timeline", "--group", "qimctl-line", "--user", "ben"])
    assert "stay 1: joined at 0, history from 0, left at 3 (removed)" in one.lines
    never = await qimctl(admin_suite, *["timeline", "--group", "qimctl-line", "--user", "dora"])
    assert never.lines[-1] == "the person never was in the group"


async def test_a_timeline_as_json_has_everything(gateway: GatewayClient, admin_suite: Suite) -> None:
    await new_group(gateway, "qimctl-line-json", BEN, messages=2)
    await qimctl(admin_suite, *["membership", "add", "qimctl-line-json", "cara"])
    document = (
        await qimctl(admin_suite, *["timeline", "--group", "qimctl-line-json", "-o", "json", "--people", "2"])
    ).json
    assert [(change["op"], change["seq"], change["people"]) for change in document["changes"]] == [
        ("join", 3, [show(CARA)])
    ]
    assert document["people"][0] == {
        "user": show(CARA),
        "stays": [
            {
                "joined_at": 2,
                "history_from": 2,
                "left_at": 0,
                "state": "member",
                "began_version": 2,
                "ended_version": 0,
                "keeps_earlier": False,
                "revoked": False,
            }
        ],
        "visible": [{"first": 3, "last": 3}],
        "own_clear_seq": 0,
    }
    assert (len(document["people"]), document["others_in_events"], document["members_left_out"]) == (2, 0, True)


async def test_a_timeline_becomes_a_picture(gateway: GatewayClient, admin_suite: Suite, tmp_path: Path) -> None:
    await new_group(gateway, "qimctl-picture", BEN, messages=2)
    await qimctl(admin_suite, *["membership", "remove", "qimctl-picture", "ben"])
    printed = await qimctl(admin_suite, *["timeline", "--group", "qimctl-picture", "--output", "svg"])
    assert Xml.fromstring(printed.out).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - made here
    assert "ben was removed by an operator" in printed.out
    file = tmp_path / "ticket.svg"
    line = f"timeline --group qimctl-picture --user ben --output svg --file {file}"
    assert (await qimctl(admin_suite, *line.split())).out == ""
    assert "removed with seq 3" in file.read_text(encoding="utf-8")
    nowhere = await qimctl(admin_suite, *line.replace(str(file), str(tmp_path / "no" / "x.svg")).split())
    assert (nowhere.code, "cannot be written" in nowhere.err) == (2, True)


async def test_of_a_large_group_the_newest_are_drawn_and_the_rest_is_told(
    gateway: GatewayClient, admin_suite: Suite
) -> None:
    group = await new_group(gateway, "qimctl-crowd", *(user_id(f"c{number}") for number in range(500)))
    async with OperatorClient(admin_suite.addresses["admin"], admin_suite.operator_files(), TENANT) as operator:
        for start in range(0, 100, 20):
            await operator.remove_members(group, [user_id(f"c{number}") for number in range(start, start + 20)])
    drawn = await run_program(
        "qimctl",
        *["timeline", "--group", "qimctl-crowd", "--people", "25", "--events", "2"],
        environment={"QIM_CONFIG": str(admin_suite.paths.client_config)},
        columns=100,
    )
    assert max(len(line) for line in drawn.out.splitlines()) <= 100
    rows = [line for line in drawn.out.splitlines() if "R" in line and "removed" not in line and "what" not in line]
    assert len(rows) == 25
    assert drawn.lines[-2:] == [
        "4 earlier events and changes are not listed; --events N lists more",
        "75 other people of earlier events are not drawn; --people N draws more, --user USER one",
    ]
