"""What one run of `qimctl` knows: the configuration, what ids may look like, and how refusals end it."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from qim_client.config import ClientConfig, ClientConfigError, OperatorProfile
from qim_client.namebook import FILE_NAME, NameBook
from qim_client.operators import OperatorClient
from qim_client.presentation import CONFIGURATION, Refusal, as_json, explain, json_text, printable
from qim_common.errors import InvalidArgument, QimError, Reason
from qim_common.ids import ConversationId, TenantId, UserId, parse_group, parse_shown, parse_user, show
from qim_common.start import StartRefusedError

Answer = TypeVar("Answer")
NO_SUCH_GROUP: Final = "no such group in this tenant"
CHECK_GROUP: Final = "Check the id and --tenant."


class Output(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"
    SVG = "svg"
    """A picture, of a timeline only."""


class Session:
    """One run. Answers go to stdout, refusals to stderr; both are JSON with Output.JSON."""

    def __init__(self, config: Path | None, tenant: int | None, output: Output, timeout: float) -> None:
        self.output = output
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._config = config
        self._tenant = tenant
        self._timeout = timeout
        self._loaded: tuple[OperatorProfile, NameBook | None] | None = None

    def group(self, text: str) -> ConversationId:
        """The group that was typed. Raises typer.BadParameter."""
        book = self._profile()[1]
        return self._parsed(lambda: book.group(text) if book else parse_group(parse_shown(text, "group"), "group"))

    def user(self, text: str, place: str = "user") -> UserId:
        """The person that was typed. Raises typer.BadParameter naming `place`."""
        book = self._profile()[1]
        return self._parsed(lambda: book.user(text, place) if book else parse_user(parse_shown(text, place), place))

    def users_in(self, file: Path) -> list[UserId]:
        """One person a line; `-` is stdin. Empty lines are skipped, and comments: # at the start or after white space.

        Raises typer.BadParameter naming the line.
        """
        try:
            content = sys.stdin.read() if file == Path("-") else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{file}: cannot be read as text ({error})", param_hint="--file") from None
        return [
            self.user(text, f"{file} line {number}")
            for number, text in enumerate(map(_without_comment, content.splitlines()), 1)
            if text
        ]

    def show_user(self, user: bytes) -> str:
        """A person as people read it."""
        book = self._profile()[1]
        return printable(book.show_user(user)) if book else show(user)

    def show_group(self, group: bytes) -> str:
        """A group as people read it."""
        profile, book = self._profile()
        return printable(book.show_conversation(group, TenantId(profile.tenant))) if book else show(group)

    def run(self, work: Callable[[OperatorClient], Awaitable[Answer]]) -> Answer:
        """The result of `work`; a refusal is printed and ends the run with exit code 1."""
        profile, book = self._profile()

        async def connected() -> Answer:
            tenant = None if self._tenant is None else TenantId(self._tenant)
            async with OperatorClient.from_profile(profile, tenant=tenant, timeout=self._timeout) as client:
                return await work(client)

        try:
            answer = asyncio.run(connected())
        except QimError as error:
            self.fail(refusal(error))
        except StartRefusedError as error:
            self.fail(Refusal(CONFIGURATION, str(error), (), "`make up` writes certificates anew."))
        if book:
            book.save()
        return answer

    def fail(self, refusal: Refusal) -> NoReturn:
        """Print a refusal on stderr and end the run with exit code 1."""
        if self.output is Output.JSON:
            self._errors.print(json_text(refusal.as_json()))
        else:
            for line in refusal.lines():
                self._errors.print(line)
        raise typer.Exit(1)

    def show(self, answer: Any, draw: Callable[[], Sequence[RenderableType]]) -> None:
        """Print `answer` as JSON, or what `draw` makes of it."""
        if self.output is Output.JSON:
            self.console.print(json_text(as_json(answer), indent=2))
            return
        for part in draw():
            self.console.print(part)

    def _profile(self) -> tuple[OperatorProfile, NameBook | None]:
        if self._loaded is None:
            try:
                config = ClientConfig.load(self._config)
                profile = config.require_operator()
                book = NameBook(config.path.parent / FILE_NAME) if profile.development_names else None
            except (ClientConfigError, InvalidArgument) as error:
                self.fail(Refusal(CONFIGURATION, printable(str(error)), (), ""))
            self._loaded = (profile, book)
        return self._loaded

    def _parsed(self, parse: Callable[[], Answer]) -> Answer:
        try:
            return parse()
        except InvalidArgument as error:
            raise typer.BadParameter(printable(error.message)) from None


def refusal(error: QimError) -> Refusal:
    """A refusal as `qimctl` shows it: operators may see every group of a tenant, so what is denied is not there."""
    found = explain(error)
    if error.reason != Reason.PERMISSION_DENIED:
        return found
    return dataclasses.replace(found, message=NO_SUCH_GROUP, hint=CHECK_GROUP)


def chunks(users: Iterable[UserId], size: int) -> list[list[UserId]]:
    """`users`, each once and in their order, in pieces of at most `size`."""
    distinct = list(dict.fromkeys(users))
    return [distinct[at : at + size] for at in range(0, len(distinct), size)]


def _without_comment(line: str) -> str:
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()


def plain(text: str) -> Text:
    """A cell of a table that stays on one line."""
    return Text(text, no_wrap=True)
