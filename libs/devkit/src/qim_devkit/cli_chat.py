"""`qim chat`: a chat in the terminal, through the development gateway."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from qim_client import ActorClient, GatewayClient
from qim_client.namebook import FILE_NAME
from qim_devkit.cli_session import Session

WRONG_USAGE = 2


def chat(
    context: typer.Context,
    conversation: Annotated[
        str | None,
        typer.Argument(metavar="[GROUP]", help="A group, or @PERSON. Default: the newest conversation."),
    ] = None,
) -> None:
    """Chat in this terminal: your conversations, and one of them live."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        typer.echo("qim chat needs a terminal; in scripts use qim send, history, list and mailbox", err=True)
        raise typer.Exit(WRONG_USAGE)
    # Not above: textual alone would make every other command a quarter slower.
    from qim_devkit.chat.app import ChatApp
    from qim_devkit.chat.feed import GatewayFeed
    from qim_devkit.chat.names import BookNames
    from qim_devkit.chat.terminal import run_in_terminal

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core would write into the window
    session: Session = context.obj
    start = session.conversation(conversation) if conversation is not None else None
    session.remember_names()

    async def talk(client: GatewayClient, actor: ActorClient) -> int:
        names = BookNames(session.directory / FILE_NAME, session.tenant, session.me)
        return await run_in_terminal(ChatApp(GatewayFeed(client, actor), names, start=start))

    if status := session.run_with_client(talk):
        raise typer.Exit(status)
