"""Between the feed and what a chat knows: takes events, reads anew, acknowledges, and carries out commands.

One task takes events and only folds them; another reads whatever has become stale, each thing once however many events
said so. What fails for a moment stays stale and is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from qim_client import DeviceCursor, LiveEvent, Outgoing
from qim_client.live_events import Delivered, FlagsChanged, ReadMarked, ResyncRequired, StateChanged
from qim_client.presentation import explain
from qim_client.words import NameOf
from qim_common.errors import PermissionDenied, QimError
from qim_common.ids import ConversationId, UserId
from qim_devkit.chat import model
from qim_devkit.chat.commands import Command
from qim_devkit.chat.feed import Feed, Link
from qim_devkit.chat.lines import closed_words
from qim_devkit.chat.model import ChatState, Need, Pending

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
"""Seconds until what could not be read is read again; it grows while that fails."""

MANY_ENTRIES: Final = 50
"""Above so many stale entries the list is read instead."""


class Controller:
    """One chat. `run` it; everything else is called meanwhile, from the same event loop.

    Args:
        changed: called after each change of `state`.
        name_of: a person's name, for refusals.
    """

    def __init__(self, feed: Feed, *, changed: Callable[[], None], name_of: NameOf) -> None:
        self.state = ChatState(me=feed.actor.user)
        self._feed = feed
        self._changed = changed
        self._name_of = name_of
        self._present = True
        self._seen_to: int | None = 0
        self._wake = asyncio.Event()
        self._wake.set()
        self._stale = Need.LIST
        self._entries: set[ConversationId] = set()
        self._cursors: dict[ConversationId, DeviceCursor] = {}
        self._marked: tuple[ConversationId, int] | None = None
        self._unsent: Pending | None = None
        self._order = asyncio.Lock()

    async def run(self) -> None:
        """Keep up with the feed until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="qim-chat-follow")
            group.create_task(self._keep_up(), name="qim-chat-keep-up")

    def set_present(self, present: bool) -> None:
        """Whether the person sees what is shown; only then it is marked read."""
        self._present = present
        self._wake.set()

    def saw(self, conversation: ConversationId, seen_to: int | None) -> None:
        """Up to which seq the conversation is in sight; None: the newest always is. So far it is marked read."""
        if not self.state.is_open(conversation) or self._seen_to == seen_to:
            return
        self._seen_to = seen_to
        if self.state.to_mark(seen_to):
            self._wake.set()

    def open(self, conversation: ConversationId, peer: UserId | None = None) -> None:
        """Show another conversation; `peer` where it may not exist yet."""
        self._seen_to = 0
        self._set(model.opened(self.state, conversation, peer))
        self._note(conversation, Need.VIEW | Need.ENTRY)

    def step(self, places: int) -> None:
        """Show the conversation so many places below (or above) the open one."""
        target = self.state.beside(places)
        if target is not None:
            self.open(target)

    def tell(self, words: str) -> None:
        """Show one line."""
        self._set(replace(self.state, status=words))

    def toggle_hidden(self) -> None:
        """List hidden conversations, or not."""
        self._set(replace(self.state, show_hidden=not self.state.show_hidden))

    async def older(self) -> None:
        """Read the page before what is shown, if there is one."""
        view = self.state.view
        if view is None or not view.older_from:
            return
        async with self._told():
            page = await self._feed.history(view.conversation, view.older_from)
            self._set(model.with_older(self.state, view.conversation, page))

    async def send(self, text: str) -> bool:
        """Send to the open conversation; False: it was not confirmed, and the same text once more has the same id."""
        view = self.state.view
        if view is None or not self.state.may_send():
            self.tell(closed_words(self.state, self._name_of))
            return False
        peer, body = view.peer if self.state.open_entry is None else None, text.encode()
        item = Outgoing(self._feed.actor, body, conversation=None if peer else view.conversation, peer=peer)
        pending = Pending(view.conversation, item)
        before = self._unsent
        if before is not None and before.conversation == view.conversation and before.item.body == body:
            pending = before
        self._set(model.sending(self.state, pending))
        self._unsent = pending
        async with self._order, self._told():
            sent = await self._feed.send(pending.item)
            self._set(model.with_sent(self.state, pending, sent))
            self._unsent = None if self._unsent is pending else self._unsent
            self._note(sent.conversation, Need.ENTRY if self.state.open_entry else Need.ENTRY | Need.VIEW)
            return True
        self._set(model.not_sent(self.state, pending))
        return False

    async def perform(self, command: Command) -> None:
        """Carry out a command on the open conversation; those of the window itself are not among them."""
        if self.state.view is None:
            self.tell("choose a conversation first")
            return
        work: dict[Command, Callable[[ConversationId], Awaitable[str]]] = {
            Command.LEAVE: self._leave,
            Command.CLEAR: self._clear,
            Command.READ: self._read,
            Command.HIDE: self._hide,
            Command.MUTE: self._mute,
        }
        conversation = self.state.view.conversation
        async with self._told():
            self.tell(await work[command](conversation))
            self._note(conversation, Need.ENTRY)

    async def _leave(self, conversation: ConversationId) -> str:
        await self._feed.leave(conversation)
        self._note(conversation, Need.VIEW)
        return "you left"

    async def _clear(self, conversation: ConversationId) -> str:
        point = await self._feed.clear(conversation)
        self._note(conversation, Need.VIEW)
        return f"cleared for you up to {point}, on all your devices"

    async def _read(self, conversation: ConversationId) -> str:
        mark = await self._feed.mark_read(conversation, None)
        self._set(model.with_read(self.state, conversation, mark))
        return f"read up to {mark.read_seq}"

    async def _hide(self, conversation: ConversationId) -> str:
        entry = self.state.open_entry
        found = await self._feed.set_flags(conversation, hidden=not (entry and entry.hidden))
        self._set(model.with_entries(self.state, [found]))
        return "hidden until somebody writes" if found.hidden else "no longer hidden"

    async def _mute(self, conversation: ConversationId) -> str:
        entry = self.state.open_entry
        found = await self._feed.set_flags(conversation, muted=not (entry and entry.muted))
        self._set(model.with_entries(self.state, [found]))
        return "muted" if found.muted else "no longer muted"

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._feed.events()) as events:
            async for event in events:
                if isinstance(event, Link):
                    words = one_line(event.trouble) if event.trouble else ""
                    self._set(replace(self.state, live=self.state.live and not words, trouble=words))
                else:
                    self._take(event)

    def _take(self, event: LiveEvent) -> None:
        state, need = model.with_event(self.state, event)
        self._set(state)
        if isinstance(event, Delivered | ResyncRequired):
            self._cursors[event.conversation] = event.cursor
        if isinstance(event, Delivered | ResyncRequired | StateChanged | ReadMarked | FlagsChanged):
            self._note(event.conversation, need)
        else:
            self._stale |= need
            self._wake.set()

    def _note(self, conversation: ConversationId, need: Need) -> None:
        if Need.ENTRY in need:
            self._entries.add(conversation)
        if Need.VIEW in need and self.state.is_open(conversation):
            self._stale |= Need.VIEW
        self._wake.set()

    async def _keep_up(self) -> None:
        complaint, delay = "", FIRST_DELAY
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._read_stale()
            except QimError as error:
                asyncio.get_running_loop().call_later(delay, self._wake.set)
                delay = min(2 * delay, LONGEST_DELAY)
                complaint = one_line(error)
                self.tell(complaint)
            else:
                if complaint and self.state.status == complaint:
                    self.tell("")
                complaint, delay = "", FIRST_DELAY

    async def _read_stale(self) -> None:
        """Everything that is stale; what fails stays so."""
        cursors, self._cursors = self._cursors, {}
        try:
            if len(self._entries) > MANY_ENTRIES:
                self._stale |= Need.LIST
            if Need.LIST in self._stale:
                await self._read_list()
            if Need.VIEW in self._stale:
                await self._read_view()
            await self._mark()
            while self._entries:
                await self._read_entry(self._entries.pop())
            await self._mark()
            total = await self._feed.total_unread()
            self._set(replace(self.state, total_unread=total))
        except QimError:
            self._cursors = {**cursors, **self._cursors}
            raise
        if cursors:
            await self._feed.acknowledge(list(cursors.values()))

    async def _read_list(self) -> None:
        self._stale &= ~Need.LIST
        self._entries.clear()
        try:
            token = ""
            while True:
                page = await self._feed.conversations(token)
                self._set(model.with_entries(self.state, page.conversations))
                if not (token := page.next_page_token):
                    return
        except QimError:
            self._stale |= Need.LIST
            raise

    async def _read_view(self) -> None:
        self._stale &= ~Need.VIEW
        view = self.state.view
        if view is None:
            return
        try:
            visible = await self._feed.visible(view.conversation)
            page = await self._feed.history(view.conversation)
        except PermissionDenied:
            self._set(model.with_history(self.state, view.conversation, None, None))
        except QimError:
            self._stale |= Need.VIEW
            raise
        else:
            self._set(model.with_history(self.state, view.conversation, visible, page))

    async def _read_entry(self, conversation: ConversationId) -> None:
        try:
            entry = await self._feed.conversation(conversation)
        except PermissionDenied:
            self._set(model.without_entry(self.state, conversation))
        except QimError:
            self._entries.add(conversation)
            raise
        else:
            self._set(model.with_entries(self.state, [entry]))

    async def _mark(self) -> None:
        view, seq = self.state.view, self.state.to_mark(self._seen_to)
        if view is None or not seq or not self._present or self._marked == (view.conversation, seq):
            return
        with contextlib.suppress(PermissionDenied):
            mark = await self._feed.mark_read(view.conversation, seq)
            self._set(model.with_read(self.state, view.conversation, mark))
        self._marked = (view.conversation, seq)

    def _set(self, state: ChatState) -> None:
        if state is not self.state:
            self.state = state
            self._changed()

    @contextlib.asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """A refusal inside is shown on the status line."""
        try:
            yield
        except QimError as error:
            self.tell(one_line(error))


def one_line(error: QimError) -> str:
    """A refusal on one line: its reason, what happened, what to do."""
    return " ".join(line.strip() for line in explain(error).lines())
