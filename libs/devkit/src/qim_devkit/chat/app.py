"""The window of `qim chat`: the list at the left, the open conversation at the right, input and status below."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.theme import Theme
from textual.widgets import Static

from qim_client import Conversation, MemberState
from qim_client.presentation import listed, printable
from qim_client.words import seqs
from qim_common.ids import ConversationId, UserId
from qim_devkit.chat.commands import Command, Text, Unknown, parse
from qim_devkit.chat.controller import Controller
from qim_devkit.chat.feed import Feed
from qim_devkit.chat.help_page import HelpPage
from qim_devkit.chat.lines import closed_words, lines
from qim_devkit.chat.model import ChatState
from qim_devkit.chat.names import Names
from qim_devkit.chat.widgets import ConversationList, Prompt, Transcript

THEME: Final = Theme(
    name="qim",
    primary="#7aa2f7",
    secondary="#bb9af7",
    warning="#e0af68",
    error="#f7768e",
    success="#9ece6a",
    foreground="#c0caf5",
    background="#1a1b26",
    surface="#1a1b26",
    panel="#3b4261",
    dark=True,
)


class ChatApp(App[None]):
    """One chat of one person.

    Args:
        feed: what to ask, and what happens.
        start: the conversation to open, with the other person where it may not exist yet; None: the newest.
        times: whether messages show when they were sent.
    """

    CSS = """
    Screen { layout: vertical; }
    #panes { height: 1fr; }
    #conversations { width: 34; border: round $panel; padding: 0; overflow-x: hidden; }
    #right { width: 1fr; }
    #transcript { height: 1fr; border: round $panel; overflow-x: hidden; }
    #conversations, #transcript { border-title-color: $primary; border-subtitle-color: $foreground 60%;
      overflow-y: scroll; scrollbar-size-vertical: 1; scrollbar-color: $panel; scrollbar-background: $background; }
    #prompt { height: 3; border: round $primary; }
    #prompt.-closed { border: round $warning 60%; }
    #status { height: 1; padding: 0 1; color: $foreground 70%;
      text-wrap: nowrap; text-overflow: ellipsis; }
    #status.-trouble { color: $error; }
    Screen.-narrow #panes { layout: vertical; }
    Screen.-narrow #conversations { width: 1fr; height: 37%; min-height: 4; max-height: 14; }
    Screen.-narrow.-low #conversations { display: none; }
    HelpPage { align: center middle; background: $background 60%; }
    #help { width: 92; max-width: 100%; height: auto; max-height: 100%; border: round $primary; padding: 0 2;
      scrollbar-size-vertical: 1; scrollbar-color: $panel; scrollbar-background: $background; }
    #help Static { width: 100%; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide")]  # noqa: RUF012  textual reads it so
    VERTICAL_BREAKPOINTS = [(0, "-low"), (14, "-high")]  # noqa: RUF012  textual reads it so
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", priority=True, show=False),
        Binding("down", "step(1)", priority=True, show=False),
        Binding("pageup", "page(-1)", priority=True, show=False),
        Binding("pagedown", "page(1)", priority=True, show=False),
        Binding("f1", "help", show=False),
        Binding("ctrl+q", "quit", priority=True, show=False),
    ]

    def __init__(
        self,
        feed: Feed,
        names: Names,
        *,
        start: tuple[ConversationId, UserId | None] | None = None,
        times: bool = True,
    ) -> None:
        super().__init__()
        self.controller = Controller(feed, changed=self._redraw_soon, name_of=names.person)
        self._names = names
        self._start = start
        self._times = times
        self._redraw = False
        self._focused = True
        self._reads_help = False
        self._drawn: ChatState | None = None

    @property
    def state(self) -> ChatState:
        """What the chat knows."""
        return self.controller.state

    def compose(self) -> ComposeResult:
        """See textual."""
        with Horizontal(id="panes"):
            yield ConversationList(self._names, id="conversations")
            with Vertical(id="right"):
                yield Transcript(times=self._times, id="transcript")
        yield Prompt(id="prompt")
        yield Static(id="status", markup=False)

    def on_mount(self) -> None:
        """Begin."""
        self.register_theme(THEME)
        self.theme = THEME.name
        self.query_one("#conversations").border_title = Content(self._names.person(self.state.me))
        self.query_one(Prompt).focus()
        if self._start is not None:
            self.controller.open(*self._start)
        self._keep_up()
        self._redraw_soon()

    @work
    async def _keep_up(self) -> None:
        await self.controller.run()

    def _redraw_soon(self) -> None:
        """Draw once for all changes until then."""
        if not self._redraw and self.is_running:
            self._redraw = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        self._redraw = False
        state, before = self.state, self._drawn
        if state.view is None and self._start is None and (newest := state.beside(0)) is not None:
            self.controller.open(newest)
            return
        self._drawn = state
        view = state.view
        conversations = self.query_one(ConversationList)
        conversations.show(state.listed(), view.conversation if view else None)
        conversations.border_subtitle = f"{state.total_unread:,} unread" if state.total_unread else ""
        transcript = self.query_one(Transcript)
        moved = view is not None and (
            before is None or before.view is None or not before.is_open(view.conversation) or not before.view.loaded
        )
        transcript.show(lines(state, self._names.person), follow=moved)
        # Content, not str: a name is no markup.
        transcript.border_title = Content(self._names.conversation(view.conversation) if view else "")
        transcript.border_subtitle = _rights(state, state.open_entry)
        self.query_one(Prompt).close(closed_words(state, self._names.person))
        status = self.query_one("#status", Static)
        status.set_class(bool(state.trouble), "-trouble")
        light = "● live" if state.live else "○ connecting" if not state.trouble else "○ reconnecting"
        status.update("  ".join(part for part in (light, state.status or state.trouble) if part))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """See textual: the help page has the arrows to itself."""
        return not (self._reads_help and action in ("step", "page"))

    def action_step(self, places: int) -> None:
        """Another conversation."""
        self.controller.step(places)

    def action_page(self, direction: int) -> None:
        """Scroll."""
        self.query_one(Transcript).page(direction)

    def action_help(self) -> None:
        """The help page. Behind it nothing is in sight."""
        if not self._reads_help:
            self._attend(reads_help=True)
            self.push_screen(HelpPage(), lambda _: self._attend(reads_help=False))

    @on(Transcript.Looked)
    def _looked(self, message: Transcript.Looked) -> None:
        view = self._drawn.view if self._drawn else None
        if view is not None:
            self.controller.saw(view.conversation, message.transcript.seen_to())

    @on(Transcript.TopReached)
    @work(exclusive=True, group="older")
    async def _older(self) -> None:
        await self.controller.older()

    @on(ConversationList.Chosen)
    def _choose(self, message: ConversationList.Chosen) -> None:
        self.controller.open(message.conversation)

    @on(Prompt.Submitted)
    def _submitted(self, message: Prompt.Submitted) -> None:
        match parse(message.value):
            case Text(text):
                self._send(text)
            case Unknown(word):
                shown = printable(word)
                self.controller.tell(f"/{shown} is no command: /help lists them, //{shown} sends it")
                self._give_back(message.value)
            case Command.QUIT:
                self.exit()
            case Command.HELP:
                self.action_help()
            case Command.HIDDEN:
                self.controller.toggle_hidden()
            case Command() as command:
                self._perform(command)
            case None:
                pass

    @work
    async def _send(self, text: str) -> None:
        transcript = self.query_one(Transcript)
        transcript.show(transcript.lines, follow=True)
        if not await self.controller.send(text) and self.state.may_send():
            self._give_back(text)

    def _give_back(self, text: str) -> None:
        """What was typed, for mending, unless something else has been typed since."""
        prompt = self.query_one(Prompt)
        if not prompt.value:
            prompt.value = text
            prompt.cursor_position = len(text)

    @work
    async def _perform(self, command: Command) -> None:
        await self.controller.perform(command)

    def on_app_blur(self, _: events.AppBlur) -> None:
        """Nobody looks: nothing is marked read."""
        self._attend(focused=False)

    def on_app_focus(self, _: events.AppFocus) -> None:
        """Somebody looks again."""
        self._attend(focused=True)

    def _attend(self, *, focused: bool | None = None, reads_help: bool | None = None) -> None:
        self._focused = self._focused if focused is None else focused
        self._reads_help = self._reads_help if reads_help is None else reads_help
        self.controller.set_present(self._focused and not self._reads_help)


def _rights(state: ChatState, entry: Conversation | None) -> str:
    """What the person may read, for the border of the open conversation."""
    if entry is None or state.view is None or not state.view.loaded:
        return ""
    visible = state.view.visible
    stretches = [seqs(item) for item in visible.ranges] if visible else []
    if entry.state is not MemberState.MEMBER:
        return f"{entry.state.name} · you see {listed(stretches, at_most=3) or 'nothing'}"
    if visible is None:
        return ""
    newest = visible.ranges[-1].first if visible.ranges else visible.earliest_available_seq
    return f"you see {listed([*stretches[:-1], f'from {newest} on'], at_most=3)}"
