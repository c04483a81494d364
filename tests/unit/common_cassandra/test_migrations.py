"""Migration files: how they are read, ordered, and what is no migration."""

from __future__ import annotations

import re

import pytest

from qim_common.cassandra.migrations import (
    MigrationError,
    in_order,
    installed_migrations,
    parse_migration,
    parse_replication,
)


def test_a_file_is_its_statements_without_comments() -> None:
    text = "-- first; not a statement\nCREATE TABLE a (\n  b int -- a column\n);\n\nCREATE TABLE c (d int);\n"
    migration = parse_migration("writer", "0003_two_tables.cql", text)

    assert (migration.component, migration.number, migration.name) == ("writer", 3, "two_tables")
    assert migration.statements == ("CREATE TABLE a ( b int )", "CREATE TABLE c (d int)")
    assert str(migration) == "writer 0003 two_tables"


def test_the_checksum_is_of_the_statements_only() -> None:
    first = parse_migration("writer", "0001_a.cql", "CREATE TABLE a (b int);")
    spaced = parse_migration("writer", "0001_a.cql", "-- explained\nCREATE TABLE a\n  (b int);")
    other = parse_migration("writer", "0001_a.cql", "CREATE TABLE a (b bigint);")

    assert first.checksum == spaced.checksum != other.checksum


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1_a.cql", "SELECT;"),
        ("0001_A.cql", "SELECT;"),
        ("0001_a.sql", "SELECT;"),
        ("0001_a.cql", " -- nothing;\n"),
    ],
)
def test_what_is_no_migration_is_refused(name: str, text: str) -> None:
    with pytest.raises(MigrationError, match=name if text == "SELECT;" else "no statement"):
        parse_migration("writer", name, text)


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 1], [0, 1]])
def test_numbers_run_from_1_without_gaps(numbers: list[int]) -> None:
    with pytest.raises(MigrationError, match="stands where writer 000"):
        in_order([parse_migration("writer", f"{number:04}_a.cql", "X;") for number in numbers])


def test_each_component_has_numbers_of_its_own() -> None:
    files = [("writer", 2), ("session", 1), ("writer", 1)]
    ordered = in_order([parse_migration(component, f"{number:04}_a.cql", "X;") for component, number in files])
    assert [(one.component, one.number) for one in ordered] == [("session", 1), ("writer", 1), ("writer", 2)]


def test_a_component_without_its_package_is_told() -> None:
    with pytest.raises(MigrationError, match="tables of billing is not installed"):
        installed_migrations(["billing"])


def test_every_installed_statement_may_run_again_and_none_is_conditional_on_data() -> None:
    statements = [statement for one in installed_migrations() for statement in one.statements]
    assert statements
    assert all(re.match(r"CREATE TABLE IF NOT EXISTS|ALTER TABLE \w+ ADD IF NOT EXISTS", text) for text in statements)


def test_replication_is_copies_by_data_centre() -> None:
    assert parse_replication("dc1:3") == {"dc1": 3}
    assert parse_replication(" east:3, west:2 ,") == {"east": 3, "west": 2}


@pytest.mark.parametrize("text", ["", "dc1", "dc1:", "dc1:0", "dc1:10", "dc1:x", ":3", "dc'1:3", "dc1:3;dc2:3"])
def test_a_bad_replication_is_told_how_to_write_it(text: str) -> None:
    with pytest.raises(MigrationError, match="replication: "):
        parse_replication(text)
