"""`qim-dev cassandra-up` and `cassandra-down`, which `make` runs: a cluster that stays until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qim_devkit.cassandra.cluster import NATIVE_PORT, STORAGE_PORT, CassandraCluster
from qim_devkit.cassandra.jars import CassandraNotAvailable
from qim_devkit.cassandra.node import CassandraStartError

DirectoryOption = Annotated[Path, typer.Option(help="Where configuration, data and logs live.")]


def cassandra_up(
    directory: DirectoryOption = Path(".qim/cassandra"),
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many nodes; a directory keeps its number.")] = 3,
    native_port: Annotated[int, typer.Option(min=1024, max=65_535, help="The port of CQL.")] = NATIVE_PORT,
    storage_port: Annotated[int, typer.Option(min=1024, max=65_535, help="The port between nodes.")] = STORAGE_PORT,
) -> None:
    """Start a Cassandra cluster on loopback addresses and leave it running."""
    try:
        cluster = CassandraCluster(directory, nodes=nodes, ports=(native_port, storage_port))
        if not cluster.running:
            print(f"Starting {nodes} nodes of Cassandra, about six seconds each on an idle machine", flush=True)
        cluster.start()
    except (CassandraNotAvailable, CassandraStartError, ValueError) as error:
        raise SystemExit(f"qim: {error}") from None
    print(
        f"Cassandra is ready. Its clients need QIM_CASSANDRA_CONTACT_POINTS={cluster.contact_points} "
        f"QIM_CASSANDRA_LOCAL_DC={cluster.datacenter}; the tables come from `qimctl schema migrate`"
    )


def cassandra_down(directory: DirectoryOption = Path(".qim/cassandra")) -> None:
    """Stop the cluster; its data stays."""
    try:
        stopped = CassandraCluster.stop_all(directory)
    except ValueError as error:
        raise SystemExit(f"qim: {error}") from None
    print(
        f"Stopped {stopped} nodes of Cassandra; the data stays in {directory}" if stopped else "Cassandra did not run"
    )
