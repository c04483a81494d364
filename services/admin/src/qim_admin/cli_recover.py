"""`qimctl recover`: an instance that is fenced, or lost, is rebuilt from the archive (docs/recovery.md).

It works on Redis and Cassandra itself, configured by the services' variables; the writer's package does the work.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import entry_points
from typing import Annotated, Final, cast

import typer
from rich.text import Text

from qim_admin.cli_session import Output, Session, refusal
from qim_client.presentation import CONFIGURATION, Refusal
from qim_common.cassandra import CassandraRefused
from qim_common.errors import QimError
from qim_common.recovery import ENTRY_POINTS, RECOVER, Loss, Recover, RecoveryRefused, RecoveryReport
from qim_common.start import StartRefusedError

REFUSED: Final = "RECOVERY_REFUSED"


def recover(
    context: typer.Context,
    instance: Annotated[
        int, typer.Option("--instance", metavar="N", min=0, help="Its place in QIM_REDIS_ADDR and the others, from 0.")
    ],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="What the archive lacks is given up; readers resynchronise.")
    ] = False,
    archive_complete: Annotated[
        bool, typer.Option("--archive-complete", help="The archiver had no lag: the archive lacks nothing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what there is, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Rebuild a commit instance from the archive. Reads the QIM_ variables of the services (docs/recovery.md)."""
    if accept_loss and archive_complete:
        raise typer.BadParameter("goes without --archive-complete", param_hint="--accept-loss")
    session: Session = context.obj
    loss = Loss.ACCEPTED if accept_loss else Loss.EXCLUDED if archive_complete else Loss.UNDECIDED
    work = _work(session)
    if not dry_run and not yes:
        found = _run(session, work, instance, loss, dry_run=True)
        for line in _words(found):
            typer.echo(line, err=True)
        typer.confirm("Rebuild it? Its keys are removed first", abort=True, err=True)
    report = _run(session, work, instance, loss, dry_run=dry_run)
    session.show(report, lambda: [Text(line) for line in _words(report)])


def _work(session: Session) -> Recover:
    point = next(iter(entry_points(group=ENTRY_POINTS, name=RECOVER)), None)
    if point is None:
        session.fail(Refusal(CONFIGURATION, "the package that recovers is not installed", (), "pip install qim-writer"))
    return cast(Recover, point.load())


def _run(session: Session, work: Recover, instance: int, loss: Loss, *, dry_run: bool) -> RecoveryReport:
    def progress(words: str) -> None:
        if session.output is Output.TABLE:
            typer.echo(words, err=True)

    try:
        return asyncio.run(work(instance, loss, dry_run=dry_run, progress=progress))
    except RecoveryRefused as error:
        session.fail(Refusal(REFUSED, str(error), (), "See docs/recovery.md."))
    except QimError as error:
        # Who runs this operates the stores: the details are theirs to see.
        found = refusal(error)
        session.fail(Refusal(found.reason, str(getattr(error, "detail", error)), (), "Run it again: it begins anew."))
    except (CassandraRefused, StartRefusedError) as error:
        session.fail(Refusal(CONFIGURATION, str(error), (), ""))


def _words(report: RecoveryReport) -> list[str]:
    lines = [
        f"instance {report.instance} at {report.address}, ack_level {report.ack_level}: {report.why}",
        f"archived: {report.archived_messages:,} messages of {report.archived_conversations:,} conversations, or more",
        f"only in the instance's own logs: {report.waiting:,} messages and state entries",
    ]
    if report.done:
        lines.append(
            f"rebuilt in {report.seconds:.1f} s: {report.conversations:,} conversations, {report.messages:,} messages "
            f"read, {report.drained:,} archived before, {report.removed:,} keys removed, log {report.log_id}"
        )
    if report.generation_raised:
        lines.append("the generation of every conversation was raised: readers of the older one resynchronise")
    return lines + [f"left out: {one}" for one in report.left_out]
