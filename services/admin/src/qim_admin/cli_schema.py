"""`qimctl schema`: the tables in Cassandra. It speaks to Cassandra itself, configured by QIM_CASSANDRA_*."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from qim_admin.cli_session import Output, Session, plain, refusal
from qim_client.presentation import CONFIGURATION, Refusal
from qim_common.cassandra import CassandraRefused, CassandraSession, CassandraSettings, CassandraUnavailable
from qim_common.cassandra.migrate import WAIT_SECONDS, SchemaStatus, Standing, State, migrate, schema_status
from qim_common.cassandra.migrations import (
    COMPARISON_COMPONENTS,
    COMPONENTS,
    Migration,
    MigrationError,
    installed_migrations,
    parse_replication,
)
from qim_common.config import load
from qim_common.telemetry.metrics import cassandra_metrics

Answer = TypeVar("Answer")
MIGRATION: Final = "MIGRATION_REFUSED"


class Tables(StrEnum):
    """For which backend the tables are. The two are not `QIM_BACKEND`: redis has none."""

    TIERED = "tiered"
    SCYLLA = "scylla"

    @property
    def components(self) -> tuple[str, ...]:
        """Whose migrations these are."""
        return COMPARISON_COMPONENTS if self is Tables.SCYLLA else COMPONENTS


Backend = Annotated[
    Tables,
    typer.Option("--backend", help="For which backend; scylla, a comparison, has three tables more."),
]

schema_app = typer.Typer(
    help="The tables in Cassandra: create and upgrade them. Reads QIM_CASSANDRA_* (docs/storage-tiers.md).",
    no_args_is_help=True,
)


@schema_app.command("migrate")
def migrate_command(
    context: typer.Context,
    backend: Backend = Tables.TIERED,
    replication: Annotated[
        str,
        typer.Option(
            "--replication",
            envvar="QIM_CASSANDRA_REPLICATION",
            metavar="DC:COPIES,...",
            help="Copies in each data centre, for the keyspace when it is created.",
        ),
    ] = "dc1:3",
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, max=3600, help="How long to wait for another run to end."),
    ] = WAIT_SECONDS,
) -> None:
    """Create the keyspace and its tables, or bring them to this release. Safe to run again, and twice at once."""
    session: Session = context.obj
    show_progress = session.output is Output.TABLE

    async def work(cassandra: CassandraSession) -> list[Migration]:
        return await migrate(
            cassandra,
            installed_migrations(backend.components),
            parse_replication(replication),
            wait_seconds=wait,
            progress=lambda one: typer.echo(f"applying {one}") if show_progress else None,
        )

    applied = _run(session, work)
    standings = [Standing(one.component, one.number, one.name, State.APPLIED) for one in applied]
    words = f"{len(applied)} migrations applied" if applied else "nothing to do, every migration was applied before"
    session.show({"applied": standings}, lambda: [Text(words)])


@schema_app.command("status")
def status_command(context: typer.Context, backend: Backend = Tables.TIERED) -> None:
    """Tell which migrations were applied. Exit code 1 where this release cannot work on the keyspace yet."""
    session: Session = context.obj
    status = _run(session, lambda cassandra: schema_status(cassandra, installed_migrations(backend.components)))
    document = {
        "replication": dict(status.replication or {}),
        "complete": status.complete,
        "migrations": status.migrations,
    }
    session.show(document, lambda: [_table(status)])
    if not status.complete:
        raise typer.Exit(1)


def _table(status: SchemaStatus) -> Table:
    copies = ", ".join(f"{name}:{number}" for name, number in (status.replication or {}).items())
    table = Table(title=f"replication {copies}" if copies else "no keyspace", title_justify="left", box=None)
    for name in ("component", "number", "name", "state"):
        table.add_column(name)
    for one in status.migrations:
        table.add_row(plain(one.component), plain(f"{one.number:04}"), plain(one.name), plain(one.state.value))
    return table


def _run(session: Session, work: Callable[[CassandraSession], Awaitable[Answer]]) -> Answer:
    settings = load(CassandraSettings)

    async def connected() -> Answer:
        cassandra = await CassandraSession.connect(settings, cassandra_metrics(), keyspace="")
        try:
            return await work(cassandra)
        finally:
            await cassandra.close()

    try:
        return asyncio.run(connected())
    except CassandraUnavailable as error:
        # Who runs this operates Cassandra: the details are theirs to see.
        found = refusal(error)
        session.fail(Refusal(found.reason, error.detail, (), "Run it again once the nodes answer."))
    except CassandraRefused as error:
        session.fail(Refusal(CONFIGURATION, str(error), (), ""))
    except MigrationError as error:
        session.fail(Refusal(MIGRATION, str(error), (), ""))
