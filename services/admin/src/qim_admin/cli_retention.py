"""`qimctl retention`: retention by age over a tenant's groups, done at once or only told."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from qim_admin.cli_session import Session, plain, refusal
from qim_client import GroupRetention, OperatorClient, RetentionPage
from qim_client.presentation import Refusal, as_json
from qim_common.errors import QimError, Reason

CLOCK: Final = "CLOCK_SET_FORWARD"

retention_app = typer.Typer(
    help="Retention by age: messages go once they are older than their group's setting.", no_args_is_help=True
)


@retention_app.command("run")
def run_retention(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would go, and change nothing.")] = False,
) -> None:
    """Move the floor of every group that has a retention, as writers do by themselves every few minutes.

    Readers see the floor at once; the messages below it are removed in the background."""
    session: Session = context.obj
    pages: list[RetentionPage] = []
    failure: list[QimError] = []

    async def work(client: OperatorClient) -> None:
        try:
            async for page in client.retention_pages(dry_run=dry_run):
                pages.append(page)  # noqa: PERF401  what was done before a failure is told
        except QimError as error:
            failure.append(error)

    session.run(work)
    groups = [group for page in pages for group in page.groups]
    unavailable = sum(page.unavailable_buckets for page in pages)
    ahead = max((page.clock_ahead_seconds for page in pages), default=0)
    if pages:
        document = {
            "dry_run": dry_run,
            "groups": [as_json(group) for group in groups],
            "unavailable_buckets": unavailable,
            "clock_ahead_seconds": ahead,
        }
        session.show(document, lambda: _drawing(session, groups, dry_run=dry_run))
    if failure:
        session.fail(refusal(failure[0]))
    if ahead:
        words = f"the writer's clock was set forward by {ahead:,} s while it ran: no floor moves by age"
        session.fail(Refusal(CLOCK, words, (), "Set the clock right, or restart the writers if it is right."))
    if unavailable:
        words = f"{unavailable:,} commit buckets did not answer; their groups are left out"
        session.fail(
            Refusal(Reason.BACKEND_UNAVAILABLE, words, (), "Run it again: what was done has no second effect.")
        )


def _drawing(session: Session, groups: list[GroupRetention], *, dry_run: bool) -> list[RenderableType]:
    """Only groups of which something goes; the last line counts all."""
    going = [group for group in groups if group.message_count or group.archive_partitions]
    table = Table("group", "days", "floor", "new floor", "messages", "archive partitions", box=None, pad_edge=False)
    for group in going:
        table.add_row(
            plain(session.show_group(group.group)),
            f"{group.retention_days:,}",
            f"{group.group_floor_seq:,}",
            f"{group.new_group_floor_seq:,}",
            f"{group.message_count:,}",
            f"{group.archive_partitions:,}",
        )
    messages = sum(group.message_count for group in groups)
    partitions = sum(group.archive_partitions for group in groups)
    verb = "would go" if dry_run else "go"
    words = (
        f"{len(groups):,} groups have a retention: {messages:,} messages of "
        f"{sum(bool(group.message_count) for group in groups):,} groups and {partitions:,} archive partitions {verb}"
    )
    return [*([table] if going else []), Text(words)]
