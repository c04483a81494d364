"""What one run of `qim` knows: the configuration, for whom it acts, the names seen so far, and how refusals end it."""

from __future__ import annotations

import asyncio
import dataclasses
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console, RenderableType

from qim_client.actor import ActorClient
from qim_client.config import ClientConfig, ClientConfigError, GatewayProfile, OperatorProfile
from qim_client.gateway import GatewayClient
from qim_client.namebook import FILE_NAME, NameBook
from qim_client.names import DIRECT_PREFIX, as_uuid
from qim_client.presentation import CONFIGURATION, OutputFormat, Refusal, as_json, explain, json_text, printable
from qim_common.errors import InvalidArgument, QimError, Reason
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId
from qim_common.start import StartRefusedError
from qim_devkit.cli_program import program

Answer = TypeVar("Answer")


class Session:
    """One run. Answers go to stdout, refusals to stderr; both are JSON with OutputFormat.JSON.

    What was typed is turned into ids by methods that raise typer.BadParameter.
    """

    def __init__(
        self,
        *,
        config: Path | None,
        me: str | None,
        device: str | None,
        tenant: int | None,
        output: OutputFormat,
        timeout: float,
    ) -> None:
        self.output = output
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._config = config
        self._me = me
        self._device = device
        self._tenant = tenant
        self._timeout = timeout
        self._loaded: tuple[ClientConfig, NameBook] | None = None
        self._typed_name: str | None = None

    @property
    def directory(self) -> Path:
        """Where the client configuration lies, and what the command line remembers."""
        return self._load()[0].path.parent

    @property
    def profiles(self) -> tuple[GatewayProfile, OperatorProfile]:
        """How to act for end users and as an operator; a configuration without one of them ends the run."""
        try:
            return self._profile(), self._load()[0].require_operator()
        except ClientConfigError as error:
            self.fail(Refusal(CONFIGURATION, printable(str(error)), (), ""))

    @property
    def tenant(self) -> TenantId:
        """The tenant in which the calls act."""
        return TenantId(self._tenant or self._profile().tenant)

    @property
    def me(self) -> UserId:
        """The end user for whom the calls are made."""
        if not self._me:
            raise typer.BadParameter("say for whom: --as NAME, or the environment variable QIM_AS", param_hint="--as")
        return self._parsed(lambda: self._book().user(self._me or "", "--as"))

    def user(self, text: str) -> UserId:
        """The person that was typed; `@` before the name is allowed."""
        return self._parsed(lambda: self._book().user(text.removeprefix("@"), "person"))

    def group(self, text: str) -> ConversationId:
        """The group that was typed."""
        return self._parsed(lambda: self._book().group(text, "group"))

    def conversation(self, text: str) -> tuple[ConversationId, UserId | None]:
        """The conversation that was typed, and the other person when it was `@PERSON`."""
        if not text.startswith(DIRECT_PREFIX) and as_uuid(text) is None:
            self._typed_name = text
        return self._parsed(lambda: self._book().conversation(text, self.tenant, self.me))

    def name_of(self, user: bytes) -> str:
        """A person as people read it, safe on a terminal."""
        return printable(self._book().show_user(user))

    def name_of_conversation(self, conversation: bytes) -> str:
        """A conversation as people read it, safe on a terminal."""
        return printable(self._book().show_conversation(conversation, self.tenant, self.me))

    def run(self, work: Callable[[ActorClient], Awaitable[Answer]]) -> Answer:
        """The result of `work` for the end user; a refusal is printed and ends the run with exit code 1."""
        return self.run_with_client(lambda _, actor: work(actor))

    def run_with_client(self, work: Callable[[GatewayClient, ActorClient], Awaitable[Answer]]) -> Answer:
        """The same for work that needs the gateway's client too."""
        profile, me = self._profile(), self.me
        device = self._device_id(me)

        async def connected() -> Answer:
            async with GatewayClient.from_profile(profile, timeout=self._timeout) as client:
                return await work(client, client.as_actor(self.tenant, me, device))

        try:
            answer = asyncio.run(connected())
        except QimError as error:
            self.fail(self.refusal(error))
        except StartRefusedError as error:
            self.fail(Refusal(CONFIGURATION, str(error), (), "`make up` writes certificates anew."))
        self.remember_names()
        return answer

    def refusal(self, error: QimError) -> Refusal:
        """A refusal as `qim` shows it: a name without `@` stands for a group, also where a person was meant."""
        found = explain(error)
        if error.reason != Reason.PERMISSION_DENIED or self._typed_name is None:
            return found
        name = printable(self._typed_name)
        hint = f"{found.hint} {name} is the group of that name; the person is {DIRECT_PREFIX}{name}."
        return dataclasses.replace(found, hint=hint)

    def again(self, *words: str) -> str:
        """A command line that can be pasted: this run's program and person, configuration and tenant, then `words`."""
        named = (("--as", self._me), ("--config", self._config), ("--tenant", self._tenant))
        options = [part for option, value in named if value is not None for part in (option, str(value))]
        return printable(f"{program('qim')} {shlex.join([*options, *words])}")

    def remember_names(self) -> None:
        """Keep the names that were typed, so that ids in later answers are shown by name."""
        self._book().save()

    def show(self, answer: Any, draw: Callable[[], list[RenderableType]]) -> None:
        """Print `answer` as JSON, or what `draw` makes of it."""
        if self.output is OutputFormat.JSON:
            self._console.print(json_text(as_json(answer), indent=2))
            return
        for part in draw():
            self._console.print(part)

    def fail(self, refusal: Refusal) -> NoReturn:
        """Print a refusal on stderr and end the run with exit code 1."""
        if self.output is OutputFormat.JSON:
            self._errors.print(json_text(refusal.as_json()))
        else:
            for line in refusal.lines():
                self._errors.print(line)
        raise typer.Exit(1)

    def _device_id(self, me: UserId) -> DeviceId:
        typed = self._device
        return DeviceId(me) if typed is None else self._parsed(lambda: self._book().device(typed, "--device"))

    def _profile(self) -> GatewayProfile:
        try:
            return self._load()[0].require_gateway()
        except ClientConfigError as error:
            self.fail(Refusal(CONFIGURATION, printable(str(error)), (), ""))

    def _book(self) -> NameBook:
        return self._load()[1]

    def _load(self) -> tuple[ClientConfig, NameBook]:
        if self._loaded is None:
            try:
                config = ClientConfig.load(self._config)
                self._loaded = (config, NameBook(config.path.parent / FILE_NAME))
            except (ClientConfigError, InvalidArgument) as error:
                self.fail(Refusal(CONFIGURATION, printable(str(error)), (), ""))
        return self._loaded

    def _parsed(self, parse: Callable[[], Answer]) -> Answer:
        try:
            return parse()
        except InvalidArgument as error:
            raise typer.BadParameter(printable(error.message)) from None
