"""`qim import FILE`: the command line of an import."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from qim_client import GatewayClient, GroupDetails, GroupSettings, OperatorClient
from qim_client.names import as_uuid
from qim_client.presentation import CONFIGURATION, Refusal, explain, printable
from qim_client.words import NEWCOMER_FORMS, Leaver, Rejoin, counted, parse_newcomer
from qim_common.errors import InvalidArgument, QimError
from qim_common.ids import UserId
from qim_common.start import StartRefusedError
from qim_devkit.cli_session import Session
from qim_devkit.importing.cursor import Cursor, CursorError, CursorFile
from qim_devkit.importing.importer import Importer, ImportStoppedError
from qim_devkit.importing.lines import ImportFileError, Person, Survey, survey
from qim_devkit.importing.plan import Plan, take_up
from qim_devkit.importing.progress import Bar

IMPORT: Final = "IMPORT"
"""The reason of what an import cannot take up, on the command line; no service answers it."""

GROUP_CHARACTERS: Final = 40
"""Of a group's name: people without a name are called after it, and names have at most 64 characters."""

INTERRUPTED: Final = 130
RESUME: Final = "Run the same command again to go on behind the last answered line."


def import_history(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Joins, leaves and messages as JSON lines.")],
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="A new group. Default: the file's name.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="NAME", help="Never leaves. Default: GROUP-owner.")
    ] = None,
    newcomer: Annotated[
        str, typer.Option("--newcomer", metavar=NEWCOMER_FORMS, help="What newcomers may read.")
    ] = "since-join",
    rejoin: Annotated[Rejoin, typer.Option("--rejoin", help="What returning people may read.")] = Rejoin.LATEST,
    leaver: Annotated[Leaver, typer.Option("--leaver", help="What leavers may read.")] = Leaver.UNTIL_LEFT,
    cursor: Annotated[
        Path | None,
        typer.Option("--cursor", metavar="FILE", help="How far it has come. Default: imports/GROUP.json in .qim."),
    ] = None,
    renew_ids: Annotated[
        bool,
        typer.Option("--renew-ids", help="After REQUEST_TOO_OLD: the line was not carried out, give it a new id."),
    ] = False,
) -> None:
    """Replay a history of joins, leaves and messages into a new group; run it again to resume."""
    session: Session = context.obj
    plan = _plan(session, file, group, owner, newcomer, rejoin, leaver)
    path = cursor or session.directory / "imports" / f"{quote(plan.group, safe='')}.json"
    try:
        history = survey(file)
        with CursorFile(path) as opened:
            begin = take_up(opened, plan, file, history, renew_ids=renew_ids)
            end, details = asyncio.run(_import(session, plan, file, history, opened, begin))
    except (ImportFileError, CursorError) as error:
        session.fail(Refusal(IMPORT, printable(str(error)), (), ""))
    except ImportStoppedError as error:
        refusal = explain(error.cause)
        place = f"line {error.line}" if error.line else "creating the group"
        hint = f"{refusal.hint} {RESUME}".strip()
        session.fail(Refusal(refusal.reason, f"{place}: {refusal.message}", refusal.fields, hint))
    except QimError as error:
        session.fail(explain(error))
    except StartRefusedError as error:
        session.fail(Refusal(CONFIGURATION, printable(str(error)), (), "`make up` writes certificates anew."))
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {RESUME}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    session.remember_names()
    session.show(
        {
            "group": details.group,
            "lines": end.done + end.refused,
            "done": end.done,
            "refused": end.refused,
            "head_seq": details.head_seq,
            "membership_version": details.membership_version,
            "member_count": details.member_count,
        },
        lambda: [Text(_words(plan, end, details))],
    )


def _plan(
    session: Session, file: Path, group: str | None, owner: str | None, newcomer: str, rejoin: Rejoin, leaver: Leaver
) -> Plan:
    name = group or file.stem
    session.group(name)
    if as_uuid(name) is None and len(name) > GROUP_CHARACTERS:
        raise typer.BadParameter(f"has more than {GROUP_CHARACTERS} characters", param_hint="--group")
    try:
        policy, last_n = parse_newcomer(newcomer, "--newcomer")
    except InvalidArgument as error:
        raise typer.BadParameter(error.message) from None
    settings = GroupSettings(newcomer=policy, last_n=last_n, rejoin=rejoin.history, leaver=leaver.history)
    owner = owner or f"{name}-owner"
    session.user(owner)
    return Plan(session.tenant, name, owner, settings)


async def _import(
    session: Session, plan: Plan, file: Path, history: Survey, opened: CursorFile, begin: Cursor
) -> tuple[Cursor, GroupDetails]:
    gateway_profile, operator_profile = session.profiles
    group = session.group(plan.group)
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    people: dict[Person, UserId] = {}

    def user_of(person: Person) -> UserId:
        if person not in people:
            people[person] = session.user(person if isinstance(person, str) else f"{plan.group}-{person}")
        return people[person]

    gateway = GatewayClient.from_profile(gateway_profile)
    operator = OperatorClient.from_profile(operator_profile, tenant=session.tenant)
    async with gateway, operator:
        with Bar(console, printable(file.name), history.lines, begin.done + begin.refused) as bar:
            importer = Importer(
                gateway,
                operator,
                opened,
                begin,
                tenant=session.tenant,
                group=group,
                user_of=user_of,
                answered=bar.answered,
            )
            end = await importer.run(file, history, session.user(plan.owner), plan.settings)
        return end, await operator.get_group(group)


def _words(plan: Plan, end: Cursor, details: GroupDetails) -> str:
    lines = counted(end.done + end.refused, "line", "lines")
    return (
        f"{printable(plan.group)}: {lines}, {end.done:,} carried out and {end.refused:,} refused; "
        f"head {details.head_seq:,}, version {details.membership_version:,}, "
        f"{counted(details.member_count, 'member', 'members')}"
    )
