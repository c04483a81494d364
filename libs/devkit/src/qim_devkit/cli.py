"""`qim`: the developers' command line. It acts for an end user through the development gateway's certificate.

Names stand for ids that are derived from them (qim_client.names); `make up` has to run. See `qim --help`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from qim_client import (
    ActorClient,
    Conversation,
    DeviceCursor,
    Direction,
    MailboxPage,
    Outgoing,
)
from qim_client.names import NameKind, derived_id, parse_name
from qim_client.presentation import OutputFormat, as_json, hoist_options
from qim_client.values import MAX_SEQ
from qim_client.words import counted
from qim_common.errors import InvalidArgument
from qim_common.ids import MAX_TENANT, show
from qim_devkit import cli_drawing as drawing
from qim_devkit.cli_chat import chat
from qim_devkit.cli_group import GroupArgument, UpToOption, group_app
from qim_devkit.cli_session import Session
from qim_devkit.importing.command import import_history

GLOBAL_OPTIONS: Final = frozenset({"--as", "--config", "--device", "--tenant", "--output", "-o", "--timeout"})

app = typer.Typer(
    name="qim",
    help="Act for an end user, for developers. Names stand for ids derived from them; a UUID is taken as it is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(group_app, name="group")
app.command("chat")(chat)
app.command("import")(import_history)

ConversationArgument = Annotated[
    str, typer.Argument(metavar="CONVERSATION", help="A group, or @PERSON for the direct conversation.")
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most this many.")]


def show_version(asked: bool) -> None:
    """Print the version and end the run."""
    if asked:
        typer.echo(f"qim {version('qim-devkit')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    me: Annotated[
        str | None, typer.Option("--as", metavar="NAME", envvar="QIM_AS", help="The end user to act for.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="The device. Default: one with the user's id.")
    ] = None,
    tenant: Annotated[
        int | None,
        typer.Option("--tenant", metavar="N", min=1, max=MAX_TENANT, help="Default: the configuration's."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The client configuration. Default: $QIM_CONFIG, .qim/client.toml.")
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="How answers are printed.")
    ] = OutputFormat.TABLE,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, max=600, help="For one call with its retries."),
    ] = 10.0,
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What holds for every command; these options may stand anywhere."""
    context.obj = Session(config=config, me=me, device=device, tenant=tenant, output=output, timeout=timeout)


@app.command("send")
def send(
    context: typer.Context,
    conversation: ConversationArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The body; - reads it from stdin.")],
) -> None:
    """Send a message to a group or a person."""
    session: Session = context.obj
    target, peer = session.conversation(conversation)
    body = (sys.stdin.read() if text == "-" else text).encode()
    sent = session.run(
        lambda actor: actor.send(Outgoing(actor.actor, body, conversation=None if peer else target, peer=peer))
    )
    words = f"{session.name_of_conversation(sent.conversation)}: seq {sent.seq} at version {sent.membership_version}"
    session.show(sent, lambda: [Text(words)])


@app.command("history")
def history(
    context: typer.Context,
    conversation: ConversationArgument,
    from_seq: Annotated[
        int, typer.Option("--from", metavar="SEQ", min=0, help="Inclusive. Default: the newest messages.")
    ] = 0,
    older: Annotated[bool, typer.Option("--older", help="From that seq backwards instead of onwards.")] = False,
    limit: LimitOption = 20,
) -> None:
    """Read what you may see, oldest first: the newest messages, or those around a seq."""
    session: Session = context.obj
    target, _ = session.conversation(conversation)
    direction = Direction.OLDER if older or not from_seq else Direction.NEWER
    page = drawing.oldest_first(
        session.run(lambda actor: actor.pull_history(target, from_seq=from_seq, direction=direction, limit=limit))
    )
    more = ["--from", str(page.next_from_seq), *(["--older"] if direction is Direction.OLDER else [])]
    hint = f"more: {session.again('history', conversation, *more)}" if page.next_from_seq else "that is all"
    session.show(page, lambda: [drawing.messages_table(page.messages, session.name_of), Text(hint, style="dim")])


@app.command("leave")
def leave(context: typer.Context, group: GroupArgument) -> None:
    """Leave a group; leaving twice changes nothing."""
    session: Session = context.obj
    target = session.group(group)
    left = session.run(lambda actor: actor.leave_group(target))
    words = f"left {session.name_of_conversation(left.group)} with seq {left.member.left_at}"
    session.show(left, lambda: [Text(words)])


@app.command("list")
def list_conversations(context: typer.Context, limit: LimitOption = 50) -> None:
    """Your conversations, newest activity first, with unread."""
    session: Session = context.obj

    async def read(actor: ActorClient) -> list[Conversation]:
        page = await actor.list_conversations(page_size=limit)
        return list(page.conversations)

    found = session.run(read)
    session.show(
        {"conversations": found},
        lambda: [drawing.conversations_table(found, session.name_of, session.name_of_conversation)],
    )


@app.command("read")
def mark_read(
    context: typer.Context,
    conversation: ConversationArgument,
    seq: Annotated[int | None, typer.Argument(metavar="SEQ", min=1, max=MAX_SEQ, help="Default: everything.")] = None,
) -> None:
    """Mark messages read, up to a seq; the mark only moves forward."""
    session: Session = context.obj
    target, _ = session.conversation(conversation)
    read = session.run(lambda actor: actor.mark_read(target, seq))
    words = f"{session.name_of_conversation(target)}: read up to {read.read_seq}, {read.unread_count} unread"
    session.show({"conversation": target, **as_json(read)}, lambda: [Text(words)])


@app.command("clear")
def clear(context: typer.Context, conversation: ConversationArgument, up_to: UpToOption = None) -> None:
    """Clear what you see, on all your devices; others keep theirs."""
    session: Session = context.obj
    target, _ = session.conversation(conversation)
    point = session.run(lambda actor: actor.clear_history(target, up_to_seq=up_to or 0))
    words = f"{session.name_of_conversation(target)}: cleared for you up to {point}"
    session.show({"conversation": target, "own_clear_seq": point}, lambda: [Text(words)])


@app.command("mailbox")
def mailbox(
    context: typer.Context,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge what is shown: it does not come again.")] = False,
    limit: LimitOption = 100,
) -> None:
    """What was delivered to this device and is not acknowledged."""
    session: Session = context.obj

    async def read(actor: ActorClient) -> MailboxPage:
        page = await actor.pull_mailbox(limit=limit)
        if ack and page.entries:
            newest: dict[bytes, DeviceCursor] = {entry.conversation: entry.cursor for entry in page.entries}
            await actor.pull_mailbox(ack=list(newest.values()), limit=1)
        return page

    page = session.run(read)
    state = "acknowledged" if ack else "not acknowledged"
    words = f"{counted(len(page.entries), 'entry', 'entries')}, {state}" + (", and there is more" if page.more else "")
    session.show(
        page,
        lambda: [
            drawing.mailbox_table(page.entries, session.name_of, session.name_of_conversation),
            Text(words, style="dim"),
        ],
    )


@app.command("visible")
def visible(context: typer.Context, conversation: ConversationArgument) -> None:
    """Which seqs you may read, and the stays that say so."""
    session: Session = context.obj
    target, _ = session.conversation(conversation)
    answer = session.run(lambda actor: actor.get_visible_range(target))
    session.show(answer, lambda: [*drawing.visible_lines(answer)])


@app.command("id")
def show_id(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    kind: Annotated[NameKind | None, typer.Option("--kind", help="Print only this id.")] = None,
) -> None:
    """Print the ids that a name stands for, as a person, a group and a device."""
    session: Session = context.obj
    try:
        name = parse_name(name, "name")
    except InvalidArgument as error:
        raise typer.BadParameter(error.message) from None
    found = {str(item): show(derived_id(item, name)) for item in ([kind] if kind else NameKind)}
    lines = [found[kind]] if kind else [f"{item:<6} {value}" for item, value in found.items()]
    session.show({"name": name, **found}, lambda: [Text(line) for line in lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `qim`; exit code 0, 1 for a refusal, 2 for wrong usage."""
    given = sys.argv[1:] if arguments is None else arguments
    app(hoist_options(given, GLOBAL_OPTIONS), prog_name="qim")


if __name__ == "__main__":
    main()
