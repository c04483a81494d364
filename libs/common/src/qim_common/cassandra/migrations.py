"""Numbered changes of the schema, as files of the packages that own the tables. Pure, but for reading them.

A package names its folder by an entry point of the group `qim.cassandra_schema`; the entry point's name is the
component. A file is `<number>_<name>.cql`: numbers from 1 without gaps, statements that end in `;`, comments `--`.
Every statement may run again (IF NOT EXISTS), because a migration that broke off is repeated. A released file never
changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Final

ENTRY_POINTS: Final = "qim.cassandra_schema"
COMPONENTS: Final = ("session", "writer")
"""Whose tables one keyspace of an installation holds."""

COMPARISON_COMPONENTS: Final = ("scylla", *COMPONENTS)
"""The same with the tables of the comparison backend `scylla`."""

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.cql")
_COMMENT: Final = re.compile(r"--.*$", re.MULTILINE)


class MigrationError(Exception):
    """The files are not as they must be, or not as they were when they were applied; the message says which."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `checksum` is of its statements: comments and spacing may change."""

    component: str
    number: int
    name: str
    statements: tuple[str, ...]
    checksum: str

    def __str__(self) -> str:
        return f"{self.component} {self.number:04} {self.name}"


def parse_migration(component: str, file_name: str, text: str) -> Migration:
    """The migration in a file. Raises MigrationError for a name or a text that is none."""
    named = _FILE.fullmatch(file_name)
    if named is None:
        raise MigrationError(f"{component}: {file_name} is not named <4 digits>_<name>.cql")
    statements = tuple(
        " ".join(statement.split()) for statement in _COMMENT.sub("", text).split(";") if statement.strip()
    )
    if not statements:
        raise MigrationError(f"{component}: {file_name} holds no statement")
    checksum = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    return Migration(component, int(named[1]), named[2], statements, checksum)


def in_order(migrations: Iterable[Migration]) -> list[Migration]:
    """By component and number. Raises MigrationError where a component's numbers are not 1, 2, 3, ..."""
    ordered = sorted(migrations, key=lambda migration: (migration.component, migration.number))
    expected: dict[str, int] = {}
    for migration in ordered:
        following = expected.get(migration.component, 1)
        if migration.number != following:
            raise MigrationError(f"{migration} stands where {migration.component} {following:04} should")
        expected[migration.component] = following + 1
    return ordered


def installed_migrations(components: Iterable[str] = COMPONENTS) -> list[Migration]:
    """The migrations of the packages that are installed.

    Raises MigrationError where a component's package is missing: half a schema would pass for a whole one.
    """
    folders = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    found: list[Migration] = []
    for component in components:
        if component not in folders:
            raise MigrationError(
                f"the package with the tables of {component} is not installed: pip install qim-{component}"
            )
        found += [
            parse_migration(component, entry.name, entry.read_text())
            for entry in files(folders[component]).iterdir()
            if entry.name.endswith(".cql")
        ]
    return in_order(found)


def parse_replication(text: str) -> dict[str, int]:
    """`dc1:3,dc2:3` as copies by data centre. Raises MigrationError."""
    copies: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = part.partition(":")
        if not (colon and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) and re.fullmatch(r"[1-9]", number)):
            raise MigrationError(
                f"replication: write DATACENTER:COPIES with 1 to 9 copies, comma-separated, not {part!r}"
            )
        copies[name] = int(number)
    if not copies:
        raise MigrationError("replication: name at least one data centre, for example dc1:3")
    return copies
