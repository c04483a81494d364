"""A short story on a suite, seen by two people at once: one is there all the time, one comes late and is removed.

Both chats are real ones, in windows without a terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from textual.pilot import Pilot

from qim_client import ActorClient, GatewayClient, OperatorClient
from qim_client.namebook import NameBook
from qim_common.ids import ConversationId, TenantId, UserId
from qim_devkit.chat.app import ChatApp
from qim_devkit.chat.feed import GatewayFeed
from qim_devkit.chat.names import BookNames
from qim_devkit.chat.widgets import ConversationList, Prompt, Transcript
from qim_devkit.suite import Suite

COLUMNS: Final = 60
ROWS: Final = 26
PATIENCE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Window:
    """One running chat."""

    title: str
    app: ChatApp
    pilot: Pilot[None]

    @property
    def transcript(self) -> str:
        """The open conversation as text."""
        return self.app.query_one(Transcript).text()

    @property
    def visible(self) -> str:
        """What of it is in sight."""
        return self.app.query_one(Transcript).visible_text()

    @property
    def conversations(self) -> str:
        """The list as text."""
        return self.app.query_one(ConversationList).text()

    @property
    def prompt(self) -> Prompt:
        """The input line."""
        return self.app.query_one(Prompt)

    @property
    def status(self) -> str:
        """The status line."""
        return str(self.app.query_one("#status").render())

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until this holds. Raises TimeoutError after half a minute, saying what was seen."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    await self.pilot.pause()
        except TimeoutError:
            seen = f"{self.conversations}\n\n{self.transcript}\n\n{self.prompt.placeholder}\n{self.status}"
            raise TimeoutError(f"{self.title} shows:\n{seen}") from None

    async def shows(self, words: str) -> None:
        """Wait until the open conversation has these words."""
        await self.until(lambda: words in self.transcript)

    async def type(self, text: str) -> None:
        """Write a line and press Enter."""
        self.prompt.value = text
        await self.pilot.press("enter")


class Town:
    """People, groups and chats of one suite."""

    def __init__(self, suite: Suite, gateway: GatewayClient, backend: OperatorClient) -> None:
        self.backend = backend
        self._gateway = gateway
        self._names = suite.paths.root / "names.json"
        self._book = NameBook(self._names)
        self._tenant = TenantId(suite.tenants[0])

    def person(self, name: str) -> UserId:
        """Somebody by name."""
        return self._book.user(name)

    def group(self, name: str) -> ConversationId:
        """A group by name."""
        return self._book.group(name)

    def acting(self, name: str, device: str = "") -> ActorClient:
        """Calls of somebody, on the person's first device or a named one."""
        named = self._book.device(device) if device else None
        return self._gateway.as_actor(self._tenant, self.person(name), named)

    async def create(self, group: str, owner: str, *members: str) -> None:
        """A group with these people from the start."""
        await self.acting(owner).create_group([self.person(name) for name in members], group=self.group(group))

    async def say(self, name: str, group: str, text: str) -> None:
        """Somebody without a window writes."""
        await self.acting(name).send_to(self.group(group), text.encode())

    async def add(self, group: str, *names: str, by: str) -> None:
        """Somebody brings people in, by way of the back end."""
        people = [self.person(name) for name in names]
        await self.backend.add_members(self.group(group), people, initiator=self.person(by))

    async def remove(self, group: str, *names: str, by: str) -> None:
        """Somebody puts people out, by way of the back end."""
        people = [self.person(name) for name in names]
        await self.backend.remove_members(self.group(group), people, initiator=self.person(by))

    @asynccontextmanager
    async def chat(self, name: str, group: str, *, device: str = "") -> AsyncIterator[Window]:
        """`qim --as NAME chat GROUP`, once it is live."""
        actor = self.acting(name, device)
        self._book.save()
        names = BookNames(self._names, self._tenant, actor.actor.user)
        start = (self.group(group), None)
        app = ChatApp(GatewayFeed(self._gateway, actor), names, start=start, times=False)
        async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
            window = Window(f"qim --as {name} chat {group}", app, pilot)
            await window.until(lambda: app.state.live and app.state.view and app.state.view.loaded)
            yield window


@asynccontextmanager
async def town(suite: Suite) -> AsyncIterator[Town]:
    """A town on a suite that runs."""
    async with (
        GatewayClient(suite.addresses["writer"], suite.addresses["session"], suite.gateway_files()) as gateway,
        OperatorClient(suite.addresses["admin"], suite.backend_files(), TenantId(suite.tenants[0])) as backend,
    ):
        yield Town(suite, gateway, backend)


async def tell(there: Town, draw: Callable[[Window, Window], Awaitable[None]]) -> None:
    """Play the story and call `draw` with both windows at its end."""
    await there.create("hikers", "ana", "ben")
    await there.create("cooks", "eva", "ana", "dana")
    async with AsyncExitStack() as windows:
        ana = await windows.enter_async_context(there.chat("ana", "hikers"))
        await ana.type("Saturday, the ridge? At eight?")
        await ana.shows("the ridge")
        await there.say("ben", "hikers", "Yes! I bring the map.")
        await ana.shows("I bring the map")
        await there.add("hikers", "dana", by="ana")
        await ana.shows("ana added dana")
        dana = await windows.enter_async_context(there.chat("dana", "hikers"))
        await dana.type("Hello! What did I miss?")
        await ana.shows("What did I miss")
        await there.say("ben", "hikers", "The map. Bring boots.")
        await dana.shows("Bring boots")
        await there.say("eva", "cooks", "Soup at seven")
        await there.say("eva", "cooks", "Bring bread")
        await there.remove("hikers", "dana", by="ana")
        await dana.shows("ana removed dana")
        await there.say("ben", "hikers", "Now it is the two of us.")
        await ana.shows("the two of us")
        await ana.type("At eight, then.")
        await ana.shows("At eight, then")
        for window in (ana, dana):
            await window.until(partial(_is_settled, window))
        await draw(ana, dana)


def _is_settled(window: Window) -> bool:
    state = window.app.state
    return state.total_unread == 2 and not state.pending and "Bring bread" in window.conversations
