"""An import through a running suite: the rules of the format, and every way of being interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.valkey import require_valkey

from qim_client import GatewayClient, GroupSettings, Message, OperatorClient
from qim_client.names import user_id
from qim_common.errors import Reason
from qim_common.ids import ConversationId, TenantId, UserId, uuid7
from qim_devkit.importing.cursor import Cursor, CursorFile
from qim_devkit.importing.importer import IDS_FOR_MS, Importer, ImportStoppedError
from qim_devkit.importing.lines import ImportFileError, Person, survey
from qim_devkit.importing.plan import Plan, take_up
from qim_devkit.suite import Suite

TENANT = TenantId(1)
pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("import") / "suite", services=("writer", "admin")) as running:
        yield running


class Room:
    """One history, its group, and the clients; each test has its own people."""

    def __init__(self, suite: Suite, directory: Path) -> None:
        writer = suite.addresses["writer"]
        self.gateway = GatewayClient(writer, writer, suite.gateway_files(), timeout=10.0)
        self.operator = OperatorClient(suite.addresses["admin"], suite.operator_files(), TENANT, timeout=10.0)
        self.group = ConversationId(b"\x02" + uuid7()[1:])
        self.history = directory / "room.jsonl"
        self.cursor_path = directory / "cursor.json"
        self._place = uuid7().hex()

    def write(self, text: str) -> None:
        """The history: `+1` joins, `-1` leaves, `1` writes; words in order."""
        ops = {"+": "join", "-": "leave"}
        rows = []
        for word in text.split():
            op = ops.get(word[0], "msg")
            body = {"text": word} if op == "msg" else {}
            rows.append(json.dumps({"op": op, "u": int(word.lstrip("+-")), **body}))
        self.history.write_text("\n".join(rows) + "\n")

    def user(self, person: Person) -> UserId:
        return user_id(f"{self._place}-{person}")

    async def run(
        self, *, answered: Callable[[Cursor], None] = lambda cursor: None, ids_ms: int | None = None
    ) -> Cursor:
        """Import, or go on importing; `ids_ms` instead of the time that the cursor has."""
        found = survey(self.history)
        plan = Plan(int(TENANT), "room", "owner", GroupSettings())
        with CursorFile(self.cursor_path) as file:
            cursor = take_up(file, plan, self.history, found, renew_ids=False)
            cursor = cursor if ids_ms is None else replace(cursor, ids_ms=ids_ms)
            importer = Importer(
                self.gateway,
                self.operator,
                file,
                cursor,
                tenant=TENANT,
                group=self.group,
                user_of=self.user,
                answered=answered,
            )
            return await importer.run(self.history, found, self.user("owner"), GroupSettings())

    async def line(self) -> list[str]:
        """What the owner sees: bodies, and `op` for each event."""
        owner = self.gateway.as_actor(TENANT, self.user("owner"))
        found: list[Message] = [message async for message in owner.history(self.group)]
        return [m.event.op.name.lower() if m.event else m.body.decode() for m in reversed(found)]


@pytest_asyncio.fixture
async def room(suite: Suite, tmp_path: Path) -> AsyncIterator[Room]:
    opened = Room(suite, tmp_path)
    async with opened.gateway, opened.operator:
        yield opened


async def test_each_line_does_what_the_format_says(room: Room) -> None:
    room.write("+1 1 1 2 -2 -2 2 +3 3 +3 -1 -9 1")
    cursor = await room.run()
    assert await room.line() == ["join", "1", "1", "2", "leave", "join", "3", "leave", "leave"]
    assert (cursor.line, cursor.done, cursor.refused) == (13, 11, 2)
    details = await room.operator.get_group(room.group)
    assert (details.head_seq, details.member_count, details.owner) == (9, 2, room.user("owner"))


async def test_a_finished_import_does_nothing_more(room: Room) -> None:
    room.write("+1 1 -1")
    first = await room.run()
    assert await room.run() == first
    assert (await room.operator.get_group(room.group)).head_seq == 3


async def test_what_was_added_to_the_history_is_imported_later(room: Room) -> None:
    room.write("+1 1")
    await room.run()
    room.write("+1 1 1 -1 +4")
    await room.run()
    assert await room.line() == ["join", "1", "1", "leave", "join"]


class StopError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("calls", range(1, 8))
async def test_wherever_it_is_interrupted_the_outcome_is_the_same(room: Room, calls: int) -> None:
    room.write("+1 1 1 7 +2 2 -1 1 +1 1 -2")
    seen: list[Cursor] = []

    def interrupt(cursor: Cursor) -> None:
        seen.append(cursor)
        if len(seen) == calls:
            raise StopError

    with pytest.raises(StopError):
        await room.run(answered=interrupt)
    cursor = await room.run()
    assert await room.line() == ["join", "1", "1", "7", "join", "2", "leave", "join", "1", "leave"]
    assert (cursor.done, cursor.refused) == (10, 1)


async def test_calls_that_the_cursor_does_not_know_of_are_not_carried_out_twice(room: Room) -> None:
    """As after a crash between the answer and the cursor: the cursor of an earlier moment is put back."""
    room.write("+1 1 1 +2 2 -1 +3 3")
    kept = room.cursor_path.with_name("kept")
    seen: list[Cursor] = []

    def keep(cursor: Cursor) -> None:
        seen.append(cursor)
        if len(seen) == 3:
            shutil.copy(room.cursor_path, kept)

    await room.run(answered=keep)
    before = await room.line()
    shutil.copy(kept, room.cursor_path)
    await room.run()
    assert await room.line() == before == ["join", "1", "1", "join", "2", "leave", "join", "3"]


async def test_a_refused_line_is_never_tried_again(room: Room) -> None:
    """Person 2 is outside when line 3 is refused; once inside, a second try would succeed."""
    room.write("+2 -2 2 +3 3")

    def interrupt(cursor: Cursor) -> None:
        if cursor.refused:
            raise StopError

    with pytest.raises(StopError):
        await room.run(answered=interrupt)
    await room.operator.add_members(room.group, [room.user(2)])
    await room.run()
    assert await room.line() == ["join", "leave", "join", "join", "3"]


async def test_an_outage_stops_it_before_the_line_and_it_goes_on_afterwards(suite: Suite, room: Room) -> None:
    room.write("+1 1 +2 2")
    await room.run()
    room.write("+1 1 +2 2 -1 2 +1")
    await suite.kill("admin")
    with pytest.raises(ImportStoppedError) as stopped:
        await room.run()
    assert stopped.value.line == 7
    await suite.restart("admin")
    await room.run()
    assert await room.line() == ["join", "1", "join", "2", "leave", "2", "join"]


async def test_ids_get_another_time_when_theirs_is_old(room: Room) -> None:
    room.write("+1 1 -1 +1 1")
    begun = await room.run(ids_ms=1)
    assert begun.ids_ms > IDS_FOR_MS
    assert await room.line() == ["join", "1", "leave", "join", "1"]


async def test_a_group_that_exists_is_left_alone(room: Room) -> None:
    room.write("+1 1")
    await room.run()
    room.cursor_path.unlink()
    with pytest.raises(ImportStoppedError) as stopped:
        await room.run()
    assert (stopped.value.line, stopped.value.cause.reason) == (0, Reason.GROUP_ALREADY_EXISTS)
    assert await room.line() == ["join", "1"]


async def test_more_people_than_a_group_can_begin_with_are_refused(room: Room) -> None:
    room.write(" ".join(f"-{number}" for number in range(1000)))
    with pytest.raises(ImportFileError, match="1,000 people are in the group from the start"):
        await room.run()
