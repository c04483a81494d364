"""`qimctl explain` and `qimctl timeline` as a process: sentences, drawings, pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from tests.integration.admin.conftest import named_group, qimctl

from qim_client import GatewayClient, OperatorClient
from qim_client.names import group_id, user_id
from qim_common.ids import TenantId, show
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server

TENANT = TenantId(1)
BEN, CARA = (user_id(name) for name in ("ben", "cara"))


async def test_a_decision_is_one_sentence_and_its_fields(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-why", BEN, messages=2)
    await gateway.as_actor(TENANT, BEN).leave_group(group_id("qimctl-why"))
    line = "explain --group qimctl-why --user ben --seq 3"
    said = (await qimctl(admin_suite, line)).lines
    assert said[0].startswith("Hidden in the history: seq 3 is the event")
    assert {
        "may read it now no",
        "was delivered yes",
        "decided by leave_event",
        "stay there from the start, history 1 to 2, left with 3",
        "own clear point none",
        "group's floor none",
        "newcomers read, now since-join",
    } <= set(said)
    document = (await qimctl(admin_suite, f"{line} --output json")).json
    assert (document["seq"], document["visible"], document["delivered"]) == (3, False, True)
    assert (document["cause"], document["stay"]["left_at"]) == ("leave_event", 3)
    assert document["sentence"] == said[0]


async def test_a_timeline_tells_who_did_what_and_draws_the_stays(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-line", BEN, messages=2)
    for line in (
        "membership remove qimctl-line ben",
        "group set qimctl-line --newcomer all",
        "membership add qimctl-line cara",
        "group freeze qimctl-line",
    ):
        await qimctl(admin_suite, line)
    drawn = await qimctl(admin_suite, "timeline --group qimctl-line")
    assert any(line.endswith("ben was removed by an operator") for line in drawn.lines)
    assert any(line.endswith("frozen, by operator dev-operator") for line in drawn.lines)
    rows = {line.split()[0]: line.split()[1] for line in drawn.lines if "█" in line and "may read" not in line}
    assert rows["cara"][0] == "▂"
    assert rows["ben"].endswith("R")
    assert drawn.lines[1] == "head 4, no floor, version 3, 2 members, frozen"

    one = await qimctl(admin_suite, "timeline --group qimctl-line --user ben")
    assert "stay 1: there from the start, history 1 to 2, removed with 3" in one.lines
    never = await qimctl(admin_suite, "timeline --group qimctl-line --user dora")
    assert never.lines[-1] == "the person never was in the group"


async def test_a_timeline_as_json_has_everything(gateway: GatewayClient, admin_suite: Suite) -> None:
    await named_group(gateway, "qimctl-line-json", BEN, messages=2)
    await qimctl(admin_suite, "membership add qimctl-line-json cara")
    document = (await qimctl(admin_suite, "timeline --group qimctl-line-json -o json --people 2")).json
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
    await named_group(gateway, "qimctl-picture", BEN, messages=2)
    await qimctl(admin_suite, "membership remove qimctl-picture ben")
    printed = await qimctl(admin_suite, "timeline --group qimctl-picture --output svg")
    assert Xml.fromstring(printed.out).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - made here
    assert "ben was removed by an operator" in printed.out
    file = tmp_path / "ticket.svg"
    line = f"timeline --group qimctl-picture --user ben --output svg --file {file}"
    assert (await qimctl(admin_suite, line)).out == ""
    assert "removed with seq 3" in file.read_text(encoding="utf-8")
    nowhere = await qimctl(admin_suite, line.replace(str(file), str(tmp_path / "no" / "x.svg")))
    assert (nowhere.code, "cannot be written" in nowhere.err) == (2, True)


async def test_of_a_large_group_the_newest_are_drawn_and_the_rest_is_told(
    gateway: GatewayClient, admin_suite: Suite
) -> None:
    group = await named_group(gateway, "qimctl-crowd", *(user_id(f"c{number}") for number in range(500)))
    async with OperatorClient(admin_suite.addresses["admin"], admin_suite.operator_files(), TENANT) as operator:
        for start in range(0, 100, 20):
            await operator.remove_members(group, [user_id(f"c{number}") for number in range(start, start + 20)])
    drawn = await qimctl(admin_suite, "timeline --group qimctl-crowd --people 25 --events 2", columns=100)
    assert max(len(line) for line in drawn.out.splitlines()) <= 100
    rows = [line for line in drawn.out.splitlines() if line.endswith("R")]
    assert len(rows) == 25
    assert drawn.lines[-2:] == [
        "4 earlier events and changes are not listed; --events N lists more",
        "75 other people of earlier events are not drawn; --people N draws more, --user USER one",
    ]
