"""`qim group`: groups as one of their members sees and keeps them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from qim_client import ActorClient, GroupSettings, Member
from qim_client.values import MAX_SEQ
from qim_client.words import NEWCOMER_FORMS, Leaver, Rejoin, counted, parse_newcomer
from qim_common.errors import InvalidArgument
from qim_devkit import cli_drawing as drawing
from qim_devkit.cli_session import Session

group_app = typer.Typer(help="Create a group, list its members, hand it over, clear it.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]
UpToOption = Annotated[
    int | None,
    typer.Option("--up-to", metavar="SEQ", min=1, max=MAX_SEQ, help="This seq included. Default: everything."),
]


@group_app.command("create")
def create(
    context: typer.Context,
    group: GroupArgument,
    members: Annotated[list[str] | None, typer.Argument(metavar="MEMBER")] = None,
    newcomer: Annotated[
        str, typer.Option("--newcomer", metavar=NEWCOMER_FORMS, help="What newcomers may read.")
    ] = "since-join",
    rejoin: Annotated[Rejoin, typer.Option("--rejoin", help="What returning people may read.")] = Rejoin.LATEST,
    leaver: Annotated[Leaver, typer.Option("--leaver", help="What leavers may read.")] = Leaver.UNTIL_LEFT,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="The most members.")] = 100_000,
) -> None:
    """Create a group that you own, with these members from the start."""
    session: Session = context.obj
    try:
        policy, last_n = parse_newcomer(newcomer, "--newcomer")
    except InvalidArgument as error:
        raise typer.BadParameter(error.message) from None
    settings = GroupSettings(
        newcomer=policy,
        last_n=last_n,
        rejoin=rejoin.history,
        leaver=leaver.history,
        member_limit=limit if limit < 100_000 else 0,
    )
    target, people = session.group(group), [session.user(text) for text in members or ()]
    created = session.run(lambda actor: actor.create_group(people, group=target, settings=settings))
    count = counted(created.member_count, "member", "members")
    words = f"{session.name_of_conversation(created.group)}: {count}, version {created.membership_version}"
    session.show(created, lambda: [Text(words)])


@group_app.command("members")
def members(context: typer.Context, group: GroupArgument) -> None:
    """List all present members, as one of them."""
    session: Session = context.obj
    target = session.group(group)

    async def read(actor: ActorClient) -> list[Member]:
        return [member async for member in actor.members(target)]

    found = session.run(read)
    session.show(
        {"group": target, "member_count": len(found), "members": found},
        lambda: [drawing.members_table(found, session.name_of), Text(counted(len(found), "member", "members"))],
    )


@group_app.command("owner")
def owner(
    context: typer.Context, group: GroupArgument, person: Annotated[str, typer.Argument(metavar="PERSON")]
) -> None:
    """Make another member the owner, as the owner."""
    session: Session = context.obj
    target, successor = session.group(group), session.user(person)
    now = session.run(lambda actor: actor.transfer_ownership(target, successor))
    words = f"{session.name_of_conversation(target)}: {session.name_of(now)} is the owner"
    session.show({"group": target, "owner": now}, lambda: [Text(words)])


@group_app.command("clear")
def clear(context: typer.Context, group: GroupArgument, up_to: UpToOption = None) -> None:
    """Clear the history for everybody, as the owner."""
    session: Session = context.obj
    target = session.group(group)
    floor = session.run(lambda actor: actor.clear_group_history(target, up_to_seq=up_to or 0))
    words = f"{session.name_of_conversation(target)}: cleared for all up to {floor}"
    session.show({"group": target, "group_floor_seq": floor}, lambda: [Text(words)])
