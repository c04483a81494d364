"""`qimctl`: the operators' command line. It works without options after `make up`; see `qimctl --help`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from qim_admin.cli_session import Session, chunks
from qim_client import GroupDetails, LeaverHistory, Member, MembershipResult, OperatorClient
from qim_client.operators import MAX_PAGE, MAX_PEOPLE
from qim_client.presentation import OutputFormat, as_json, explain, hoist_options
from qim_common.errors import QimError
from qim_common.ids import MAX_TENANT, ConversationId, UserId

_Call: TypeAlias = Callable[[OperatorClient, Sequence[UserId]], Awaitable[MembershipResult]]
GLOBAL_OPTIONS: Final = frozenset({"--config", "--tenant", "--output", "-o", "--timeout"})
_LEAVER: Final = {"until-left": LeaverHistory.UNTIL_LEFT, "none": LeaverHistory.NONE}

app = typer.Typer(
    name="qimctl",
    help="Look after groups as an operator, over mTLS. Ids are UUIDs; after `make up` names stand for them too.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
membership = typer.Typer(help="Add and remove members.", no_args_is_help=True)
group_app = typer.Typer(help="Look at a group.", no_args_is_help=True)
app.add_typer(membership, name="membership")
app.add_typer(group_app, name="group")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
UsersArgument = Annotated[list[str] | None, typer.Argument(metavar="USER", help="Ids of people.")]
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="One id a line, # begins a comment, - is stdin; split by 1,000.")
]
InitiatorOption = Annotated[
    str | None, typer.Option("--initiator", help="The end user who asked for it. For certificates of back ends only.")
]


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="The client configuration. Default: $QIM_CONFIG, .qim/client.toml.")
    ] = None,
    tenant: Annotated[
        int | None, typer.Option("--tenant", metavar="N", min=1, max=MAX_TENANT, help="Default: the configuration's.")
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="How answers are printed.")
    ] = OutputFormat.TABLE,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, max=600, help="For one call with its retries."),
    ] = 10.0,
) -> None:
    """What holds for every command; these options may stand anywhere."""
    context.obj = Session(config, tenant, output, timeout)


@membership.command("add")
def add(
    context: typer.Context,
    group: GroupArgument,
    users: UsersArgument = None,
    file: FileOption = None,
    initiator: InitiatorOption = None,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Into an empty group: who of them becomes the owner.")
    ] = None,
) -> None:
    """Add people. One event per 1,000 people; those who are in already make none."""
    session: Session = context.obj
    target, people, by = session.group(group), _people(session, users, file), _user(session, initiator, "--initiator")
    head = _user(session, owner, "--owner")
    if head is not None and head not in people[:MAX_PEOPLE]:
        raise typer.BadParameter("must be one of the people added, within the first 1,000", param_hint="--owner")

    async def call(client: OperatorClient, part: Sequence[UserId]) -> MembershipResult:
        return await client.add_members(target, part, initiator=by, owner=head if head in part else None)

    _change(session, target, people, "added", call)


@membership.command("remove")
def remove(
    context: typer.Context,
    group: GroupArgument,
    users: UsersArgument = None,
    file: FileOption = None,
    initiator: InitiatorOption = None,
    leaver_history: Annotated[
        str | None,
        typer.Option("--leaver-history", metavar="until-left|none", help="What they may read. Default: the group's."),
    ] = None,
) -> None:
    """Remove people. One event per 1,000 people; those who are out already make none."""
    session: Session = context.obj
    if leaver_history is not None and leaver_history not in _LEAVER:
        raise typer.BadParameter(f"must be {' or '.join(_LEAVER)}", param_hint="--leaver-history")
    target, people, by = session.group(group), _people(session, users, file), _user(session, initiator, "--initiator")
    policy = _LEAVER[leaver_history] if leaver_history else None

    async def call(client: OperatorClient, part: Sequence[UserId]) -> MembershipResult:
        return await client.remove_members(target, part, initiator=by, leaver_history=policy)

    _change(session, target, people, "removed", call)


@group_app.command("show")
def show_group(context: typer.Context, group: GroupArgument) -> None:
    """Show a group: owner, counts, versions, settings."""
    session: Session = context.obj
    target = session.group(group)
    details = session.run(lambda client: client.get_group(target))
    if session.output is OutputFormat.JSON:
        session.print_json(as_json(details))
    else:
        session.console.print(_details_table(session, details))


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
    if session.output is OutputFormat.JSON:
        session.print_json(
            as_json(
                {
                    "group": target,
                    "membership_version": version,
                    "member_count": len(members),
                    "members": members,
                }
            )
        )
        return
    table = Table("user", "role", "joined at", box=None, pad_edge=False)
    for member in members:
        table.add_row(_cell(session.show_user(member.user)), member.role.name.lower(), str(member.joined_at))
    session.console.print(table)
    session.console.print(f"{len(members):,} members of {session.show_group(target)} at version {version}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `qimctl`; exit code 0, 1 for a refusal, 2 for wrong usage."""
    given = sys.argv[1:] if arguments is None else arguments
    app(hoist_options(given, GLOBAL_OPTIONS), prog_name="qimctl")


def _change(session: Session, group: ConversationId, people: Sequence[UserId], verb: str, call: _Call) -> None:
    results: list[MembershipResult] = []
    failure: list[QimError] = []

    async def work(client: OperatorClient) -> None:
        for part in chunks(people, MAX_PEOPLE):
            try:
                results.append(await call(client, part))
            except QimError as error:
                # What was carried out before stays so, and is reported before the refusal.
                failure.append(error)
                return

    session.run(work)
    changed = sum(result.changed_count for result in results)
    if session.output is OutputFormat.JSON:
        if results or not failure:
            document = {"group": group, "people": len(people), "changed_count": changed, "calls": results}
            session.print_json(as_json(document))
    else:
        for result in results:
            seq = f"seq {result.seq}" if result.seq else "no event, there was nothing to change"
            session.console.print(
                f"{verb} {result.changed_count:,} of {len(people):,} people, {session.show_group(group)}: "
                f"version {result.membership_version}, {seq}, {result.member_count:,} members"
            )
    if failure:
        session.fail(explain(failure[0]))


def _people(session: Session, users: Sequence[str] | None, file: Path | None) -> list[UserId]:
    people = [session.user(text) for text in users or ()]
    if file is not None:
        people += session.users_in(file)
    if not people:
        raise typer.BadParameter("name people, or a --file with one id a line", param_hint="USER")
    return list(dict.fromkeys(people))


def _user(session: Session, text: str | None, option: str) -> UserId | None:
    return None if text is None else session.user(text, option)


def _details_table(session: Session, details: GroupDetails) -> Table:
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    owner = "nobody, the group is empty" if details.owner is None else session.show_user(details.owner)
    settings = details.settings
    newcomers = settings.newcomer.name.lower() + (f" {settings.last_n:,}" if settings.last_n else "")
    rows: list[tuple[str, str]] = [
        ("group", session.show_group(details.group)),
        ("owner", owner),
        ("members", f"{details.member_count:,}" + (f" of {settings.member_limit:,}" if settings.member_limit else "")),
        ("membership version", str(details.membership_version)),
        ("head", str(details.head_seq)),
        ("floor", str(details.group_floor_seq)),
        ("frozen", "yes" if details.frozen else "no"),
        ("newcomers read", newcomers),
        ("returning people read", settings.rejoin.name.lower()),
        ("leavers read", settings.leaver.name.lower()),
        ("revision, generation", f"{details.revision}, {details.generation}"),
    ]
    for name, value in rows:
        table.add_row(name, _cell(value))
    return table


def _cell(text: str) -> Text:
    return Text(text, no_wrap=True)


if __name__ == "__main__":
    main()
