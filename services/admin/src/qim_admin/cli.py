"""`qimctl`: the operators' command line. It works without options after `make up`; see `qimctl --help`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.text import Text

from qim_admin import cli_fence, cli_questions, cli_recover
from qim_admin.cli_group import GroupArgument, group_app
from qim_admin.cli_retention import retention_app
from qim_admin.cli_schema import schema_app
from qim_admin.cli_session import Output, Session, chunks, refusal
from qim_client import MembershipResult, OperatorClient
from qim_client.operators import MAX_PEOPLE
from qim_client.presentation import hoist_options
from qim_client.words import Leaver
from qim_common.errors import QimError
from qim_common.ids import MAX_TENANT, ConversationId, UserId

_Call: TypeAlias = Callable[[OperatorClient, Sequence[UserId]], Awaitable[MembershipResult]]
GLOBAL_OPTIONS: Final = frozenset({"--config", "--tenant", "--output", "-o", "--timeout"})

app = typer.Typer(
    name="qimctl",
    help="Look after groups as an operator, over mTLS. Ids are UUIDs; after `make up` names stand for them too.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
membership = typer.Typer(help="Add and remove members.", no_args_is_help=True)
app.add_typer(membership, name="membership")
app.add_typer(group_app, name="group")
app.add_typer(schema_app, name="schema")
app.add_typer(retention_app, name="retention")
app.command("explain")(cli_questions.explain)
app.command("timeline")(cli_questions.timeline)
app.command("recover")(cli_recover.recover)
app.command("fence")(cli_fence.fence)

UsersArgument = Annotated[list[str] | None, typer.Argument(metavar="USER", help="Ids of people.")]
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="One id a line, # begins a comment, - is stdin; split by 1,000.")
]
InitiatorOption = Annotated[
    str | None, typer.Option("--initiator", help="The end user who asked for it. For certificates of back ends only.")
]


def show_version(asked: bool) -> None:
    """Print the version and end the run."""
    if asked:
        typer.echo(f"qimctl {version('qim-admin')}")
        raise typer.Exit


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
        Output, typer.Option("--output", "-o", help="How answers are printed; svg for a timeline.")
    ] = Output.TABLE,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, max=600, help="For one call with its retries."),
    ] = 10.0,
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What holds for every command; these options may stand anywhere."""
    if output is Output.SVG and context.invoked_subcommand != "timeline":
        raise typer.BadParameter("a picture is made of a timeline only", param_hint="--output")
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
        Leaver | None, typer.Option("--leaver-history", help="What they may read. Default: the group's.")
    ] = None,
) -> None:
    """Remove people. One event per 1,000 people; those who are out already make none."""
    session: Session = context.obj
    target, people, by = session.group(group), _people(session, users, file), _user(session, initiator, "--initiator")
    policy = leaver_history.history if leaver_history else None

    async def call(client: OperatorClient, part: Sequence[UserId]) -> MembershipResult:
        return await client.remove_members(target, part, initiator=by, leaver_history=policy)

    _change(session, target, people, "removed", call)


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
    if results or session.output is Output.TABLE:
        document = {"group": group, "people": len(people), "changed_count": changed, "calls": results}
        session.show(document, lambda: [Text(_result_words(session, verb, len(people), result)) for result in results])
    if failure:
        session.fail(refusal(failure[0]))


def _result_words(session: Session, verb: str, people: int, result: MembershipResult) -> str:
    seq = f"seq {result.seq}" if result.seq else "no event, there was nothing to change"
    return (
        f"{verb} {result.changed_count:,} of {people:,} people, {session.show_group(result.group)}: "
        f"version {result.membership_version}, {seq}, {result.member_count:,} members"
    )


def _people(session: Session, users: Sequence[str] | None, file: Path | None) -> list[UserId]:
    people = [session.user(text) for text in users or ()]
    if file is not None:
        people += session.users_in(file)
    if not people:
        raise typer.BadParameter("name people, or a --file with one id a line", param_hint="USER")
    return list(dict.fromkeys(people))


def _user(session: Session, text: str | None, option: str) -> UserId | None:
    return None if text is None else session.user(text, option)


if __name__ == "__main__":
    main()
