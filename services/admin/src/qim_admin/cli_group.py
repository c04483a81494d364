"""`qimctl group`: look at a group, set it, hand it over, clear it, freeze it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from qim_admin.cli_session import Session, plain
from qim_admin.words import settings_rows
from qim_client import GroupDetails, GroupSettings, Member, OperatorClient
from qim_client.operators import MAX_PAGE
from qim_client.values import MAX_SEQ
from qim_client.words import NEWCOMER_FORMS, Leaver, Rejoin, parse_newcomer
from qim_common.errors import InvalidArgument
from qim_common.ids import ConversationId

group_app = typer.Typer(help="Look at a group, set it, hand it over, clear it, freeze it.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
_Change: TypeAlias = Callable[[OperatorClient, ConversationId], Awaitable[GroupDetails]]


@group_app.command("show")
def show_group(context: typer.Context, group: GroupArgument) -> None:
    """Show a group: owner, counts, versions, settings."""
    session: Session = context.obj
    target = session.group(group)
    details = session.run(lambda client: client.get_group(target))
    session.show(details, lambda: [details_table(session, details)])


@group_app.command("members")
def show_members(context: typer.Context, group: GroupArgument) -> None:
    """List all present members."""
    session: Session = context.obj
    target = session.group(group)

    async def read(client: OperatorClient) -> tuple[list[Member], int]:
        members: list[Member] = []
        token = ""
        while True:
            page = await client.list_members(target, page_size=MAX_PAGE, page_token=token)
            members += page.members
            if not (token := page.next_page_token):
                return members, page.membership_version

    members, version = session.run(read)
    table = Table("user", "role", "since seq", box=None, pad_edge=False)
    for member in members:
        table.add_row(plain(session.show_user(member.user)), member.role.name.lower(), str(member.joined_at + 1))
    words = f"{len(members):,} members of {session.show_group(target)} at version {version}"
    document = {"group": target, "membership_version": version, "member_count": len(members), "members": members}
    session.show(document, lambda: [table, Text(words)])


@group_app.command("set")
def set_group(
    context: typer.Context,
    group: GroupArgument,
    newcomer: Annotated[
        str | None, typer.Option("--newcomer", metavar=NEWCOMER_FORMS, help="What newcomers may read.")
    ] = None,
    rejoin: Annotated[Rejoin | None, typer.Option("--rejoin", help="What returning people may read.")] = None,
    leaver: Annotated[Leaver | None, typer.Option("--leaver", help="What leavers may read.")] = None,
    broadcast_max: Annotated[
        int | None,
        typer.Option(
            "--broadcast-max",
            metavar="N",
            min=0,
            max=500,
            help="Events go to all up to this many members. 0: the deployment's bound.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, max=100_000, help="The most members. 0: the deployment's."),
    ] = None,
    retention_days: Annotated[
        int | None,
        typer.Option("--retention-days", metavar="N", min=0, max=36_500, help="Messages go after this. 0: never."),
    ] = None,
) -> None:
    """Change the settings that are named; the others stay. What stays show is fixed when they begin and end."""
    session: Session = context.obj
    named: dict[str, object] = {
        "rejoin": rejoin.history if rejoin else None,
        "leaver": leaver.history if leaver else None,
        "broadcast_max_members": broadcast_max,
        "member_limit": limit,
        "retention_days": retention_days,
    }
    if newcomer is not None:
        try:
            named["newcomer"], named["last_n"] = parse_newcomer(newcomer, "--newcomer")
        except InvalidArgument as error:
            raise typer.BadParameter(error.message) from None
    named = {name: value for name, value in named.items() if value is not None}
    if not named:
        raise typer.BadParameter("name at least one setting, such as --newcomer all", param_hint="OPTION")

    async def change(client: OperatorClient, target: ConversationId) -> GroupDetails:
        present = (await client.get_group(target)).settings
        settings: GroupSettings = dataclasses.replace(present, **named)  # type: ignore[arg-type]
        return await client.update_group_settings(target, settings)

    _changed(session, group, change, lambda details: [details_table(session, details)])


@group_app.command("owner")
def set_owner(
    context: typer.Context,
    group: GroupArgument,
    user: Annotated[str, typer.Argument(metavar="USER", help="A member.")],
) -> None:
    """Make a member the owner."""
    session: Session = context.obj
    owner = session.user(user)
    _changed(
        session,
        group,
        lambda client, target: client.transfer_ownership(target, owner),
        lambda details: [Text(f"{session.show_group(details.group)}: {_owner(session, details)} is the owner")],
    )


@group_app.command("clear")
def clear(
    context: typer.Context,
    group: GroupArgument,
    up_to: Annotated[
        int | None,
        typer.Option("--up-to", metavar="SEQ", min=1, max=MAX_SEQ, help="This seq included. Default: everything."),
    ] = None,
) -> None:
    """Clear the history for everybody; it does not come back."""
    session: Session = context.obj
    _changed(
        session,
        group,
        lambda client, target: client.clear_group_history(target, up_to_seq=up_to or 0),
        lambda details: [Text(f"{session.show_group(details.group)}: cleared for all up to {details.group_floor_seq}")],
    )


@group_app.command("freeze")
def freeze(context: typer.Context, group: GroupArgument) -> None:
    """Stop sends, joins and end users' group changes; leaving, removal and reading go on."""
    _freeze(context.obj, group, frozen=True)


@group_app.command("unfreeze")
def unfreeze(context: typer.Context, group: GroupArgument) -> None:
    """End a freeze."""
    _freeze(context.obj, group, frozen=False)


def details_table(session: Session, details: GroupDetails) -> Table:
    """A group, one fact a line."""
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    settings = details.settings
    rows: list[tuple[str, str]] = [
        ("group", session.show_group(details.group)),
        ("owner", _owner(session, details)),
        ("members", f"{details.member_count:,}" + (f" of {settings.member_limit:,}" if settings.member_limit else "")),
        ("membership version", str(details.membership_version)),
        ("head", str(details.head_seq)),
        ("floor", str(details.group_floor_seq)),
        ("frozen", "yes" if details.frozen else "no"),
        *settings_rows(settings),
        ("revision, generation", f"{details.revision}, {details.generation}"),
    ]
    for name, value in rows:
        table.add_row(name, plain(value))
    return table


def _freeze(session: Session, group: str, *, frozen: bool) -> None:
    _changed(
        session,
        group,
        lambda client, target: client.freeze_group(target, frozen=frozen),
        lambda details: [
            Text(f"{session.show_group(details.group)}: {'frozen' if details.frozen else 'not frozen'}"),
        ],
    )


def _changed(
    session: Session, group: str, change: _Change, draw: Callable[[GroupDetails], list[Table] | list[Text]]
) -> None:
    target = session.group(group)
    details = session.run(lambda client: change(client, target))
    session.show(details, lambda: draw(details))


def _owner(session: Session, details: GroupDetails) -> str:
    return "nobody, the group is empty" if details.owner is None else session.show_user(details.owner)
