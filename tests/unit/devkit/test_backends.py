"""The backends of a suite: what belongs together, and what a directory keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_devkit.paths import SuitePaths
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend, CassandraPlace, keyspace_of, shared_keyspace


async def test_a_suite_refuses_data_of_another_backend(tmp_path: Path) -> None:
    paths = SuitePaths(tmp_path)
    paths.state.write_text('{"installation_id": "dev-1", "ports": {"valkey-0": 20001}}')
    suite = Suite(paths.root, valkeys=1, backend=Backend.TIERED, cassandra="127.0.0.1:1")
    with pytest.raises(ValueError, match=r"made with the backend redis, not tiered; start it with that, use another"):
        await suite.start()


def test_cassandra_is_named_for_the_backend_that_uses_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="named for the backend tiered, and only for it"):
        Suite(tmp_path, backend=Backend.TIERED)
    with pytest.raises(ValueError, match="named for the backend tiered, and only for it"):
        Suite(tmp_path, cassandra="127.0.0.1")
    with pytest.raises(ValueError, match="unknown backend scylla; there are redis, tiered"):
        Suite(tmp_path, backend="scylla")
    with pytest.raises(ValueError, match="0 archivers or more"):
        Suite(tmp_path, backend=Backend.TIERED, cassandra="127.0.0.1", archivers=-1)


def test_archivers_exist_with_the_backend_tiered_only(tmp_path: Path) -> None:
    assert Suite(tmp_path, archivers=2).archiver_names == ()
    suite = Suite(tmp_path, backend=Backend.TIERED, cassandra="127.0.0.1:9042", archivers=2)
    assert suite.service_names == ("writer", "session", "admin", "archiver", "archiver-1")


def test_each_installation_has_a_keyspace_that_cassandra_takes() -> None:
    first, second = keyspace_of("dev-1"), keyspace_of("dev-2")
    assert first != second
    for keyspace in (first, second, shared_keyspace()):
        place = CassandraPlace("127.0.0.1:9042", keyspace)
        assert place.settings(1.0).cassandra_keyspace == place.environment["QIM_CASSANDRA_KEYSPACE"] == keyspace
