"""`qim` and `qimctl` against the suite as `make up` starts it: a developer's first quarter of an hour."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.command_lines import Ended, run_program
from tests.support.valkey import require_valkey

from qim_client.names import group_id, user_id
from qim_common.ids import show
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("project") / ".qim") as running:
        yield running


async def run(suite: Suite, line: str, *more: str, who: str = "ana") -> Ended:
    """A command line, in a directory below the one that holds `.qim/`; `more` are arguments with spaces."""
    program, *arguments = line.split()
    directory = suite.paths.root.parent / "below"
    await asyncio.to_thread(Path.mkdir, directory, exist_ok=True)
    return await run_program(program, *arguments, *more, environment={"QIM_AS": who}, directory=directory)


async def listed_with_head(suite: Suite, who: str, conversation: str, head: int) -> dict[str, Any]:
    """The list's entry once it has this head: the list follows the log, it is not in the commit's path."""
    async with asyncio.timeout(20):
        while True:
            entries = (await run(suite, "qim list -o json", who=who)).json["conversations"]
            for entry in entries:
                if (entry["conversation"], entry["head_seq"]) == (conversation, head):
                    return dict(entry)


async def test_the_hikers_from_creation_to_mailbox(suite: Suite) -> None:
    created = await run(suite, "qim --as ana group create hikers ben cara --newcomer last:1", who="")
    assert (created.code, created.out) == (0, "hikers: 3 members, version 1\n"), created.err
    assert (await run(suite, "qim send hikers", "Good morning :sun:")).out == "hikers: seq 1 at version 1\n"
    assert (await run(suite, "qim leave hikers", who="ben")).out == "left hikers with seq 2\n"
    added = await run(suite, "qimctl membership add hikers dora")
    assert added.out == "added 1 of 1 people, hikers: version 3, seq 3, 3 members\n"

    history = await run(suite, "qim history hikers")
    said = [line.split(" ", 3)[3] for line in history.lines[1:4]]
    assert said == ["ana Good morning :sun:", "· ben left", "· dora was added by an operator"]
    assert "visible: 2 to 3 (2 seqs)" in (await run(suite, "qim visible hikers --as dora")).lines
    members = await run(suite, "qim group members hikers --output json")
    assert {member["user"] for member in members.json["members"]} == {show(user_id(n)) for n in ("ana", "cara", "dora")}

    entry = await listed_with_head(suite, "ben", show(group_id("hikers")), 1)
    assert (entry["state"], entry["unread_count"], entry["preview"]["text"]) == ("left", 1, "Good morning :sun:")
    listed = await run(suite, "qim list", who="ben")
    assert any(line.startswith("hikers (left) 1 1 ") for line in listed.lines)

    mailbox = await run(suite, "qim mailbox --ack", who="ben")
    assert [line.split(" ", 2)[1:] for line in mailbox.lines[1:3]] == [
        ["1", "ana Good morning :sun:"],
        ["2", "· ben left"],
    ]
    assert (await run(suite, "qim mailbox", who="ben")).lines[-1] == "0 entries, not acknowledged"


async def test_a_direct_conversation_by_the_persons_name(suite: Suite) -> None:
    assert (await run(suite, "qim send @eve hello", who="dan")).out == "@eve: seq 1 at version 1\n"
    history = await run(suite, "qim history @dan", who="eve")
    assert history.lines[1].endswith("dan hello")


async def test_a_long_history_is_read_in_pages(suite: Suite) -> None:
    await run(suite, "qim group create pages", who="fay")
    for number in range(1, 4):
        await run(suite, f"qim send pages number{number}", who="fay")
    newest = await run(suite, "qim history pages --limit 2", who="fay")
    assert [line.split()[0] for line in newest.lines[1:3]] == ["2", "3"]
    assert newest.lines[3].endswith("/qim --as fay history pages --from 1 --older")
    onwards = await run(suite, "qim history pages --from 2 --limit 1", who="fay")
    assert onwards.lines[1].split()[0] == "2"
    assert onwards.lines[2].endswith("/qim --as fay history pages --from 3")


async def test_text_of_others_cannot_steer_the_terminal(suite: Suite) -> None:
    await run(suite, "qim group create evil", who="gus")
    await run(suite, "qim send evil", "\x1b[2Jgone\nnext", who="gus")
    history = await run(suite, "qim history evil", who="gus")
    assert "\x1b" not in history.out
    assert "·[2Jgone⏎next" in history.out
    assert (await run(suite, "qim history evil -o json", who="gus")).json["messages"][0]["text"] == "\x1b[2Jgone\nnext"


async def test_a_refusal_names_its_reason_and_ends_with_1(suite: Suite) -> None:
    unknown = await run(suite, "qim send nowhere hello", who="hal")
    assert (unknown.code, unknown.out, unknown.err.split(":")[0]) == (1, "", "PERMISSION_DENIED")
    again = [await run(suite, "qim group create mine", who="hal") for _ in range(2)]
    assert [ended.code for ended in again] == [0, 1]
    assert again[1].err.startswith("GROUP_ALREADY_EXISTS: ")
    error = json.loads((await run(suite, "qim leave nowhere -o json", who="hal")).err)["error"]
    assert error["reason"] == "PERMISSION_DENIED"


async def test_the_owner_clears_and_hands_over_and_everybody_clears_their_own(suite: Suite) -> None:
    await run(suite, "qim group create cleared ben cara", who="ivy")
    for number in range(1, 5):
        await run(suite, f"qim send cleared number{number}", who="ivy")
    refused = await run(suite, "qim group clear cleared", who="ben")
    assert (refused.code, refused.err.split(":")[0]) == (1, "PERMISSION_DENIED")
    assert (
        await run(suite, "qim group clear cleared --up-to 1", who="ivy")
    ).out == "cleared: cleared for all up to 1\n"
    assert (await run(suite, "qim clear cleared --up-to 3", who="ben")).out == "cleared: cleared for you up to 3\n"
    assert "visible: 4 (1 seq)" in (await run(suite, "qim visible cleared", who="ben")).lines
    assert "visible: 2 to 4 (3 seqs)" in (await run(suite, "qim visible cleared", who="cara")).lines
    handed = await run(suite, "qim group owner cleared ben", who="ivy")
    assert (handed.code, handed.out) == (0, "cleared: ben is the owner\n")
    assert (await run(suite, "qim group clear cleared -o json", who="ben")).json["group_floor_seq"] == 4


async def test_messages_are_marked_read_up_to_a_seq_and_then_all(suite: Suite) -> None:
    await run(suite, "qim group create marked kim", who="jon")
    for number in range(1, 4):
        await run(suite, f"qim send marked number{number}", who="jon")
    assert (await run(suite, "qim read marked 1", who="kim")).out == "marked: read up to 1, 2 unread\n"
    assert (await run(suite, "qim read marked", who="kim")).out == "marked: read up to 3, 0 unread\n"
    assert (await run(suite, "qim read marked 1 -o json", who="kim")).json == {
        "conversation": show(group_id("marked")),
        "read_seq": 3,
        "unread_count": 0,
    }
    assert (await run(suite, "qim read nowhere", who="kim")).err.startswith("PERMISSION_DENIED")
