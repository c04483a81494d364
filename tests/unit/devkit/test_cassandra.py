"""What a Cassandra cluster says before any node runs: no Java or Maven, taken ports, another directory."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path

import pytest
import yaml

from qim_devkit.cassandra import CassandraCluster, CassandraNotAvailable, CassandraStartError, find_java, provide_jars
from qim_devkit.cassandra.cluster import NATIVE_PORT, free_ports

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CassandraNotAvailable, match=r"Java is not installed.*openjdk-17-jre-headless and maven"):
        find_java()


@pytest.mark.parametrize("version", ['openjdk version "21.0.2"', 'java version "1.8.0_392"', "no version at all"])
def test_a_java_of_another_version_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    program(tmp_path, "java", f"echo '{version}' >&2")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(CassandraNotAvailable, match="needs Java 11 or 17"):
        find_java()


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "java", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == tmp_path / "bin" / "java"


def test_a_machine_without_maven_and_jars_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CassandraNotAvailable, match="Maven, which fetches Cassandra, is not installed"):
        provide_jars(tmp_path / "cache")


def test_a_maven_that_fails_leaves_no_half_filled_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "mvn", "echo 'no route to anything'; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(CassandraNotAvailable, match="no route to anything"):
        provide_jars(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_a_taken_port_is_told_before_anything_starts(tmp_path: Path) -> None:
    ports = free_ports(ADDRESSES)
    cluster = CassandraCluster(tmp_path, ports=ports)
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", ports[0]))
        taken.listen()
        with pytest.raises(CassandraStartError, match=rf"node 2: 127\.0\.0\.2:{ports[0]} \(for CQL\) cannot be used"):
            cluster.nodes[1].launch(Path(sys.executable), tmp_path)
    assert not cluster.nodes[1].running


def test_three_nodes_beside_a_foreign_cluster_find_ports_of_their_own_where_they_may(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody has it already
            taken.bind(("127.0.0.1", NATIVE_PORT))
            taken.listen()
        usual = CassandraCluster.at(tmp_path / "usual")
        assert f"127.0.0.1:{NATIVE_PORT}" in usual.contact_points.split(",")
        others = CassandraCluster.at(tmp_path / "other", usual_ports=False)
        assert f"127.0.0.1:{NATIVE_PORT}" not in others.contact_points.split(",")
        with pytest.raises(CassandraStartError, match=r"CASSANDRA=\.qim/other.*QIM_CASSANDRA_CONTACT_POINTS=host:port"):
            usual.nodes[0].launch(Path(sys.executable), tmp_path)


def test_a_node_that_ends_while_starting_is_told_with_its_log(tmp_path: Path) -> None:
    node = CassandraCluster(tmp_path).nodes[0]
    program(tmp_path, "java", "echo this Java runs nothing")
    node.launch(tmp_path / "java", tmp_path)
    with pytest.raises(CassandraStartError, match=r"(?s)ended while starting.*this Java runs nothing"):
        node.wait_until_serving(10)


@pytest.mark.parametrize("nodes", [0, 10])
def test_the_number_of_nodes_is_bounded(tmp_path: Path, nodes: int) -> None:
    with pytest.raises(ValueError, match="1 to 9 nodes"):
        CassandraCluster(tmp_path, nodes=nodes)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ('{"nodes": 1, "native_port": 9042, "storage_port": 7000}', "holds a cluster of 1 nodes, not 3"),
        ('{"nodes": 3, "native_port": 9142, "storage_port": 7000}', "on the ports 9142 and 7000"),
        ("{", "is damaged"),
        ('{"nodes": null}', "is damaged"),
        ("[]", "is damaged"),
    ],
)
def test_a_directory_of_another_cluster_is_refused(tmp_path: Path, state: str, words: str) -> None:
    (tmp_path / "cluster.json").write_text(state)
    with pytest.raises(ValueError, match=words):
        CassandraCluster(tmp_path, ports=(9042, 7000))


def test_stopping_where_nothing_runs_stops_nothing(tmp_path: Path) -> None:
    assert CassandraCluster.stop_all(tmp_path) == 0


def test_a_process_id_that_another_process_got_is_no_node(tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "pid").write_text("1\n")
    assert not CassandraCluster(tmp_path).nodes[0].running


def test_everything_of_a_node_lies_below_its_directory(tmp_path: Path) -> None:
    node = CassandraCluster(tmp_path).nodes[1]
    node.config.write()
    settings = yaml.safe_load((tmp_path / "node-2" / "conf" / "cassandra.yaml").read_text())
    directories = [value for name, value in settings.items() if name.endswith("_directory")]
    assert all(path.startswith(f"{tmp_path}/node-2/") for path in [*directories, *settings["data_file_directories"]])
    assert (settings["listen_address"], settings["rpc_address"]) == ("127.0.0.2", "127.0.0.2")
