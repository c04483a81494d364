"""The backends of a suite: what belongs together, and what a directory keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_devkit.cassandra import ExistingCluster
from qim_devkit.paths import SuitePaths
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend, CassandraPlace, backend_arguments, keyspace_of, shared_keyspace


async def test_a_suite_refuses_data_of_another_backend(tmp_path: Path) -> None:
    paths = SuitePaths(tmp_path)
    paths.state.write_text('{"installation_id": "dev-1", "ports": {"valkey-0": 20001}}')
    suite = Suite(paths.root, valkeys=1, backend=Backend.TIERED, cassandra=ExistingCluster("127.0.0.1:1"))
    with pytest.raises(ValueError, match=r"made with the backend redis, not tiered; start it with that, use another"):
        await suite.start()


def test_cassandra_is_named_for_the_backend_that_uses_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="named for the backend tiered, and only for it"):
        Suite(tmp_path, backend=Backend.TIERED)
    with pytest.raises(ValueError, match="named for the backend tiered, and only for it"):
        Suite(tmp_path, cassandra=ExistingCluster("127.0.0.1"))
    with pytest.raises(ValueError, match="unknown backend scylla; there are redis, tiered"):
        Suite(tmp_path, backend="scylla")
    with pytest.raises(ValueError, match="0 archivers or more"):
        Suite(tmp_path, backend=Backend.TIERED, cassandra=ExistingCluster("127.0.0.1"), archivers=-1)


def test_archivers_exist_with_the_backend_tiered_only(tmp_path: Path) -> None:
    assert Suite(tmp_path, archivers=2).archiver_names == ()
    suite = Suite(tmp_path, backend=Backend.TIERED, cassandra=ExistingCluster("127.0.0.1:9042"), archivers=2)
    assert suite.service_names == ("writer", "session", "admin", "archiver", "archiver-1")


def test_a_cassandra_that_the_environment_names_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QIM_CASSANDRA_CONTACT_POINTS", " db-1:9042,db-2 ")
    monkeypatch.setenv("QIM_CASSANDRA_LOCAL_DC", "east")
    with backend_arguments(Backend.TIERED) as arguments:
        named = arguments["cassandra"]
        assert named == ExistingCluster("db-1:9042,db-2", "east")
        assert arguments["keyspace"] == shared_keyspace()
    place = CassandraPlace.of(ExistingCluster("db-1:9042,db-2", "east"), "qim")
    assert (place.contact_points, place.local_dc, place.copies) == ("db-1:9042,db-2", "east", 2)
    assert CassandraPlace.of(ExistingCluster("a,b,c,d"), "qim").copies == 3


def test_the_environment_names_a_cassandra_for_the_backend_tiered_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QIM_CASSANDRA_CONTACT_POINTS", "db-1:9042")
    with backend_arguments(Backend.REDIS) as arguments:
        assert "cassandra" not in arguments


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_environment_that_names_none_leaves_it_to_the_directory(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("QIM_CASSANDRA_CONTACT_POINTS", raising=False)
    if value is not None:
        monkeypatch.setenv("QIM_CASSANDRA_CONTACT_POINTS", value)
    assert ExistingCluster.named() is None


def test_each_installation_has_a_keyspace_that_cassandra_takes() -> None:
    first, second = keyspace_of("dev-1"), keyspace_of("dev-2")
    assert first != second
    for keyspace in (first, second, shared_keyspace()):
        place = CassandraPlace("127.0.0.1:9042", keyspace)
        assert place.settings(1.0).cassandra_keyspace == place.environment["QIM_CASSANDRA_KEYSPACE"] == keyspace
