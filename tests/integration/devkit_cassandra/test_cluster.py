"""The cluster itself: three nodes that are killed, paused and mended."""

from __future__ import annotations

from qim_devkit.cassandra import CassandraCluster


def test_a_killed_and_a_paused_node_come_back(breakable_cassandra: CassandraCluster) -> None:
    cluster = breakable_cassandra
    other = CassandraCluster(cluster.directory)
    first, second, third = cluster.nodes
    killed = second.pid
    second.kill()
    third.pause()

    assert not second.running
    assert third.running
    assert not cluster.running
    assert first.answers()
    assert not second.answers()

    cluster.heal()

    assert cluster.running
    assert second.pid != killed
    assert all(node.answers() for node in cluster.nodes)
    # An object of another process, which knew the killed one, finds the new one.
    assert [node.pid for node in other.nodes] == [node.pid for node in cluster.nodes]


def test_another_object_finds_the_running_nodes(cassandra: CassandraCluster) -> None:
    found = CassandraCluster(cassandra.directory)

    assert found.running
    assert [node.pid for node in found.nodes] == [node.pid for node in cassandra.nodes]
    assert found.contact_points == cassandra.contact_points
