"""`qimctl explain` and `qimctl timeline`: answers to complaints, and pictures for tickets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from qim_admin.cli_session import Output, Session
from qim_admin.timeline import terminal
from qim_admin.timeline.picture import picture
from qim_admin.timeline.reading import Timeline, read_group, read_person
from qim_admin.words import settings_rows, stay_words, timeline_lines
from qim_client import Explanation, OperatorClient
from qim_client.presentation import as_json
from qim_client.values import MAX_SEQ
from qim_client.words import counted
from qim_common.ids import ConversationId, UserId

GroupOption = Annotated[str, typer.Option("--group", metavar="GROUP", help="The group's id.")]


def explain(
    context: typer.Context,
    group: GroupOption,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="The person's id.")],
    seq: Annotated[int, typer.Option("--seq", metavar="SEQ", min=1, max=MAX_SEQ, help="The message's number.")],
) -> None:
    """Why somebody may or may not read a message: the decision in one sentence and as fields."""
    session: Session = context.obj
    target, person = session.group(group), session.user(user)
    found = session.run(lambda client: client.explain_visibility(target, person, seq))
    document = {"group": target, "user": person, "seq": seq, **as_json(found)}
    session.show(document, lambda: [Text(found.sentence), _explanation_table(found)])


def timeline(
    context: typer.Context,
    group: GroupOption,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="USER", help="Only this person. Default: those of the newest events."),
    ] = None,
    people: Annotated[
        int, typer.Option("--people", metavar="N", min=1, max=1000, help="Draw the stays of at most this many people.")
    ] = 30,
    events: Annotated[
        int,
        typer.Option("--events", metavar="N", min=0, max=10_000, help="List at most this many of the newest events."),
    ] = 30,
    file: Annotated[
        Path | None, typer.Option("--file", help="With --output svg: write the picture here. Default: stdout.")
    ] = None,
) -> None:
    """Who came and went, who changed what, and each person's stays; --output svg makes a picture for a ticket."""
    session: Session = context.obj
    if file is not None and session.output is not Output.SVG:
        raise typer.BadParameter("goes with --output svg", param_hint="--file")
    target, person = session.group(group), None if user is None else session.user(user)

    async def read(client: OperatorClient) -> Timeline:
        if person is not None:
            return await read_person(client, target, person)
        return await read_group(client, target, people=people)

    found = session.run(read)
    if session.output is Output.SVG:
        _write(session, _picture(session, found, person, events), file)
    else:
        session.show(found, lambda: _drawing(session, found, person, events))


def _drawing(session: Session, found: Timeline, person: UserId | None, events: int) -> list[RenderableType]:
    lines = timeline_lines(found.changes, found.state_entries, session.show_user)
    parts: list[RenderableType] = [Text(_title(session, found.group.group, person), style="bold"), Text(_facts(found))]
    if lines and events:
        parts += [Text(), terminal.events_table(lines, events)]
    parts += [Text(), *terminal.bars(found, session.show_user, session.console.width)]
    if person is not None:
        (line,) = found.people
        parts += [Text(), *(Text(f"stay {at}: {stay_words(stay)}") for at, stay in enumerate(line.stays, 1))]
        if line.own_clear_seq:
            parts.append(Text(f"cleared by the person up to {line.own_clear_seq}"))
    return [*parts, *(Text(note, style="dim") for note in _notes(found, person, len(lines), events))]


def _picture(session: Session, found: Timeline, person: UserId | None, events: int) -> str:
    lines = timeline_lines(found.changes, found.state_entries, session.show_user)
    notes = _notes(found, person, len(lines), events)
    if person is not None:
        (line,) = found.people
        notes = [*(f"stay {at}: {stay_words(stay)}" for at, stay in enumerate(line.stays, 1)), *notes]
    return picture(
        found,
        lines[-events:] if events else (),
        session.show_user,
        title=_title(session, found.group.group, person),
        subtitle=_facts(found),
        notes=notes,
    )


def _title(session: Session, group: ConversationId, person: UserId | None) -> str:
    whose = f", {session.show_user(person)}" if person is not None else ""
    return f"timeline of {session.show_group(group)}{whose}"


def _facts(found: Timeline) -> str:
    group = found.group
    facts = [
        f"head {group.head_seq:,}",
        f"floor {group.group_floor_seq:,}" if group.group_floor_seq else "no floor",
        f"version {group.membership_version:,}",
        counted(group.member_count, "member", "members"),
        *(["frozen"] if group.frozen else []),
    ]
    return ", ".join(facts)


def _notes(found: Timeline, person: UserId | None, lines: int, events: int) -> list[str]:
    notes = []
    if person is not None and not found.people[0].stays:
        notes.append("the person never was in the group")
    if lines > events:
        earlier = counted(lines - events, "earlier event or change is", "earlier events and changes are")
        notes.append(f"{earlier} not listed; --events N lists more")
    if found.others_in_events:
        others = counted(
            found.others_in_events, "other person of earlier events is", "other people of earlier events are"
        )
        notes.append(f"{others} not drawn; --people N draws more, --user USER one")
    elif found.members_left_out:
        notes.append("members who appear in no event are not all drawn; --people N draws more")
    return notes


def _explanation_table(found: Explanation) -> Table:
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    rows = [
        ("may read it now", "yes" if found.visible else "no"),
        ("was delivered", "yes" if found.delivered else "no"),
        ("decided by", found.cause),
        ("stay", stay_words(found.stay) if found.stay else "none"),
        ("own clear point", str(found.own_clear_seq) if found.own_clear_seq else "none"),
        ("group's floor", str(found.group_floor_seq) if found.group_floor_seq else "none"),
        *((f"{name}, now", value) for name, value in settings_rows(found.settings)[:3]),
    ]
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _write(session: Session, document: str, file: Path | None) -> None:
    if file is None:
        session.console.out(document, end="", highlight=False)
        return
    try:
        file.write_text(document, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file}: cannot be written ({error.strerror})", param_hint="--file") from None
