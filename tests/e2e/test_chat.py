"""`qim chat` on a whole suite: what one person does is what the others see, and no more than they may."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.chat_pty import in_terminal
from tests.support.valkey import require_valkey

from qim_client import GatewayClient
from qim_client.names import user_id
from qim_common.enums import LeaverHistory
from qim_common.errors import TenantNotAllowed
from qim_common.ids import TenantId
from qim_devkit.chat.feed import GatewayFeed, Link
from qim_devkit.chat.poster import side_by_side
from qim_devkit.chat.story import Town, Window, tell, town
from qim_devkit.suite import Suite

pytestmark = pytest.mark.server


@pytest_asyncio.fixture(scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    require_valkey()
    async with Suite(tmp_path_factory.mktemp("project") / ".qim") as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def there(suite: Suite) -> AsyncIterator[Town]:
    async with town(suite) as place:
        yield place


def marks(window: Window) -> tuple[int, int] | None:
    """The read cursor and unread of the open conversation, as the list has them."""
    entry = window.app.state.open_entry
    return None if entry is None else (entry.read_seq, entry.unread_count)


async def test_what_one_writes_the_other_sees_and_reads(there: Town) -> None:
    await there.create("walkers", "ana", "ben")
    async with there.chat("ana", "walkers") as ana, there.chat("ben", "walkers") as ben:
        await ana.type("Good morning")
        await ben.shows("1        ana  Good morning")
        await ana.shows("1        ana  Good morning")
        await ben.type("Hello ana")
        await ana.shows("2        ben  Hello ana")
        await ana.until(lambda: marks(ana) == (2, 0))
        await ben.until(lambda: marks(ben) == (1, 0))


async def test_a_removal_stops_everything_and_a_rejoin_begins_anew(there: Town) -> None:
    await there.create("riders", "ana", "dana")
    async with there.chat("ana", "riders") as ana, there.chat("dana", "riders") as dana:
        await ana.type("before")
        await dana.shows("before")
        await there.remove("riders", "dana", by="ana")
        await dana.shows("ana removed dana · you see nothing after 1")
        assert dana.prompt.placeholder == "you were removed by ana, so you cannot write here"
        await dana.until(lambda: "REMOVED" in dana.conversations)
        await dana.pilot.press("h", "i", "enter")
        await ana.shows("ana removed dana")
        await ana.type("between")
        await ana.shows("3        ana  between")

        await there.add("riders", "dana", by="ana")
        await dana.shows("you joined with 4 · you see nothing before it")
        await dana.until(lambda: dana.prompt.placeholder == "a message, or /help")
        await ana.type("after")
        await dana.shows("5        ana  after")
        assert "between" not in dana.transcript
        await dana.type("back again")
        await ana.shows("6       dana  back again")


async def test_who_leaves_keeps_what_was_there_and_the_others_are_told(there: Town) -> None:
    await there.create("swimmers", "ana", "dana")
    async with there.chat("ana", "swimmers") as ana, there.chat("dana", "swimmers") as dana:
        await dana.type("my last word")
        await ana.shows("my last word")
        await dana.type("/leave")
        await ana.shows("dana left")
        await dana.shows("dana left · you see nothing after 1")
        await dana.until(lambda: "LEFT" in dana.conversations)
        assert "my last word" in dana.transcript
        await ana.type("/leave")
        await ana.until(lambda: "LEFT" in ana.conversations)


async def test_who_is_removed_without_history_sees_nothing_any_more(there: Town) -> None:
    await there.create("divers", "ana", "dana")
    async with there.chat("dana", "divers") as dana:
        await there.say("ana", "divers", "a secret")
        await dana.shows("a secret")
        await there.backend.remove_members(
            there.group("divers"), [there.person("dana")], leaver_history=LeaverHistory.NONE
        )
        await dana.shows("an operator removed dana · you see nothing of it")
        assert "a secret" not in dana.transcript


async def test_clearing_reaches_ones_other_device_and_nobody_else(there: Town) -> None:
    await there.create("readers", "ana", "ben")
    async with (
        there.chat("ana", "readers") as ana,
        there.chat("ana", "readers", device="phone") as phone,
        there.chat("ben", "readers") as ben,
    ):
        await ben.type("old news")
        for window in (ana, phone):
            await window.shows("old news")
        await ana.type("/clear")
        for window in (ana, phone):
            await window.shows("you cleared everything up to 1")
            assert "old news" not in window.transcript
        await ben.type("fresh news")
        await phone.shows("fresh news")
        assert "old news" in ben.transcript


async def test_read_marks_and_flags_reach_ones_other_device(there: Town) -> None:
    await there.create("cyclists", "eva", "fay")
    await there.create("painters", "eva", "fay")
    async with there.chat("fay", "painters") as laptop:
        await there.say("eva", "cyclists", "one")
        await there.say("eva", "cyclists", "two")
        await laptop.until(lambda: laptop.conversations.splitlines()[0].endswith(" 2"))
        async with there.chat("fay", "cyclists", device="phone") as phone:
            await laptop.until(lambda: laptop.conversations.splitlines()[0] == "cyclists")
            await phone.type("/mute")
            await laptop.until(lambda: "muted" in laptop.conversations)
            await phone.type("/hide")
            await laptop.until(lambda: "cyclists" not in laptop.conversations)
            await there.say("eva", "cyclists", "three")
            await laptop.until(lambda: "eva: three" in laptop.conversations)


async def test_a_refusal_is_told_on_the_status_line(there: Town) -> None:
    await there.create("owners", "ana", "ben")
    async with there.chat("ana", "owners") as ana:
        await ana.type("/leave")
        await ana.until(lambda: "OWNER_CANNOT_LEAVE: " in ana.status)


async def test_who_may_not_attach_is_told_why_and_it_is_tried_again(suite: Suite) -> None:
    async with GatewayClient(suite.addresses["writer"], suite.addresses["session"], suite.gateway_files()) as gateway:
        feed = GatewayFeed(gateway, gateway.as_actor(TenantId(99), user_id("ana")))
        async with asyncio.timeout(30), contextlib.aclosing(feed.events()) as events:
            for _ in range(2):
                event = await anext(events)
                assert isinstance(event, Link)
                assert isinstance(event.trouble, TenantNotAllowed)


async def test_the_story_of_readmes_picture(suite: Suite, there: Town) -> None:
    pictures: list[str] = []

    async def draw(ana: Window, dana: Window) -> None:
        assert "Now it is the two of us." in ana.transcript
        assert "ana removed dana · you see nothing after 5" in dana.transcript
        for hidden in ("the ridge", "the two of us", "At eight"):
            assert hidden not in dana.transcript
        pictures.extend(window.app.export_screenshot(title=window.title) for window in (ana, dana))

    await tell(there, draw)
    assert "qim --as dana chat hikers" in side_by_side(pictures).replace("&#160;", " ")


async def test_a_restart_of_the_session_service_loses_nothing(suite: Suite, there: Town) -> None:
    await there.create("sailors", "ana", "ben")
    async with there.chat("ana", "sailors") as ana:
        await suite.kill("session")
        await there.say("ben", "sailors", "while you were cut off")
        await ana.until(lambda: "reconnecting" in ana.status)
        await suite.restart("session")
        await ana.shows("while you were cut off")
        await ana.until(lambda: "● live" in ana.status)
        await there.say("ben", "sailors", "and now")
        await ana.shows("and now")


@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
async def test_the_command_itself_runs_in_a_terminal_until_quit(
    suite: Suite, there: Town, size: tuple[int, int]
) -> None:
    group = f"skaters-{size[1]}"
    await there.create(group, "ana", "ben")
    for number in range(1, 41):
        await there.say("ben", group, f"round-{number}.")
    async with in_terminal(
        *(sys.executable, "-m", "qim_devkit.cli", "--as", "ana", "chat", group),
        environment={"QIM_CONFIG": str(suite.paths.client_config)},
        size=size,
    ) as terminal:
        await terminal.until(b"round-40.")
        terminal.type(b"/help\r")
        await terminal.until(b"any other key closes")
        terminal.seen.clear()
        terminal.type(b"xy")
        await terminal.until(b"round-40.")
        terminal.type(b"\r/quit\r")
        assert await terminal.status() == 0
        assert b"round-1." not in terminal.seen


async def test_the_command_passes_on_how_the_chat_ended(suite: Suite, there: Town) -> None:
    await there.create("gliders", "ana")
    await there.say("ana", "gliders", "Is there any wind?")
    async with in_terminal(
        *(sys.executable, "-m", "qim_devkit.cli", "--as", "ana", "chat", "gliders"),
        environment={"QIM_CONFIG": str(suite.paths.client_config)},
    ) as terminal:
        await terminal.until(b"any wind?")
        terminal.process.terminate()
        assert await terminal.status() == 128 + signal.SIGTERM
        assert b"\x1b[?1049l" in terminal.seen
