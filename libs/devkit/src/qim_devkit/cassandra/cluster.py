"""Three Cassandra nodes on 127.0.0.1, 127.0.0.2 and 127.0.0.3 as one cluster."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from qim_devkit.cassandra.config import DATACENTER, NodeConfig
from qim_devkit.cassandra.jars import find_java, provide_jars
from qim_devkit.cassandra.node import CassandraNode, CassandraStartError
from qim_devkit.ports import choice

NATIVE_PORT: Final = 9042
STORAGE_PORT: Final = 7000
MAX_NODES: Final = 9
STATE_FILE: Final = "cluster.json"
NODE_START_SECONDS: Final = 120.0
"""A node takes about six seconds; on a machine that is busy with tests several times that."""

_POLL_SECONDS: Final = 0.05


class CassandraCluster:
    """A cluster of small nodes, about 780 MB of memory each; replication over all of them is the usual use.

    Args:
        directory: where data, configuration and logs live, kept after `stop`; by default a temporary directory,
            removed by `remove` and on leaving the context manager.
        nodes: how many, 1 to 9; a directory keeps the number and the ports it began with.
        ports: the ports of CQL and between nodes, the same on every address; by default free ones.
        tether: end the nodes when this process ends, however that ends. `start` is then called from a thread that
            lives as long as the nodes (qim_devkit.tether).

    Raises:
        ValueError: the directory holds a cluster of another shape.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        nodes: int = 3,
        ports: tuple[int, int] | None = None,
        tether: bool = False,
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"a cluster has 1 to {MAX_NODES} nodes, not {nodes}")
        self._owns_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="qim-cassandra-")) if directory is None else directory.resolve()
        addresses = [f"127.0.0.{number}" for number in range(1, nodes + 1)]
        native, storage = self._remembered_ports(nodes) or ports or free_ports(addresses)
        if ports is not None and ports != (native, storage):
            raise ValueError(f"{self.directory} holds a cluster on the ports {native} and {storage}, not {ports}")
        self._shape = {"nodes": nodes, "native_port": native, "storage_port": storage}
        self.nodes: Sequence[CassandraNode] = tuple(
            CassandraNode(
                f"Cassandra node {number}",
                NodeConfig(self.directory / f"node-{number}", "qim", address, addresses[0], storage, native),
                tether=tether,
            )
            for number, address in enumerate(addresses, 1)
        )

    @property
    def contact_points(self) -> str:
        """As QIM_CASSANDRA_CONTACT_POINTS takes them."""
        return ",".join(node.address for node in self.nodes)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def datacenter(self) -> str:
        """As QIM_CASSANDRA_LOCAL_DC takes it."""
        return DATACENTER

    @property
    def running(self) -> bool:
        """Whether every node's process lives."""
        return all(node.running for node in self.nodes)

    def start(self, timeout: float = NODE_START_SECONDS) -> None:
        """Start the nodes that do not run, one after another, and wait until all answer and know of each other.

        Args:
            timeout: seconds for each node.

        Raises:
            CassandraNotAvailable: Java, Maven or the jars are missing.
            CassandraStartError: a node did not start, or a port is taken; the nodes started here are stopped again.
        """
        java, jars = find_java(), provide_jars()
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / STATE_FILE).write_text(json.dumps(self._shape))
        started: list[CassandraNode] = []
        try:
            for node in self.nodes:
                if not node.running:
                    seen = self._log_sizes()
                    started.append(node)
                    node.launch(java, jars)
                    node.wait_until_serving(timeout)
                    self._wait_until_known(node, seen, timeout)
        except BaseException:
            for node in started:
                node.kill()
            raise

    def restart(self, number: int, timeout: float = NODE_START_SECONDS) -> None:
        """Stop the node `number` (from 0) if it runs, start it with its data, and wait until the others know.

        Raises CassandraStartError.
        """
        node = self.nodes[number]
        node.stop()
        seen = self._log_sizes()
        node.launch(find_java(), provide_jars())
        node.wait_until_serving(timeout)
        self._wait_until_known(node, seen, timeout)

    def heal(self, timeout: float = NODE_START_SECONDS) -> None:
        """Let paused nodes run on, start killed ones, and wait until all answer. Raises CassandraStartError."""
        for node in self.nodes:
            if node.running:
                node.resume()
        for number, node in enumerate(self.nodes):
            if not node.running:
                self.restart(number, timeout)
        for node in self.nodes:
            node.wait_until_serving(timeout)

    def stop(self) -> None:
        """Ask all nodes to end, and wait; what does not end is killed."""
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.stop()

    @classmethod
    def at(cls, directory: Path, *, tether: bool = False, usual_ports: bool = True) -> CassandraCluster:
        """The cluster that `directory` holds; if it holds none, three nodes.

        Args:
            directory: of the cluster.
            tether: as of the class.
            usual_ports: whether three new nodes insist on these; otherwise they take others where those are taken.

        Raises ValueError for a directory whose state cannot be read.
        """
        shape = _read_shape(directory.resolve())
        if shape is None:
            addresses = [f"127.0.0.{number}" for number in range(1, 4)]
            free = all(_is_free(address, port) for address in addresses for port in (NATIVE_PORT, STORAGE_PORT))
            return cls(directory, ports=(NATIVE_PORT, STORAGE_PORT) if free or usual_ports else None, tether=tether)
        return cls(directory, nodes=shape[0], tether=tether)

    @contextlib.contextmanager
    def up(self) -> Iterator[CassandraCluster]:
        """The running cluster; nodes that `start` has to start are stopped at the end, others run on.

        Raises what `start` raises.
        """
        missing = [node for node in self.nodes if not node.running]
        try:
            self.start()
            yield self
        finally:
            for node in missing:
                node.terminate()
            for node in missing:
                node.stop()

    @classmethod
    def stop_all(cls, directory: Path) -> int:
        """Stop what runs of the cluster in `directory`, whoever started it; returns how many nodes that were.

        Raises ValueError for a directory whose state cannot be read.
        """
        shape = _read_shape(directory.resolve())
        if shape is None:
            return 0
        cluster = cls(directory, nodes=shape[0])
        running = sum(node.running for node in cluster.nodes)
        cluster.stop()
        return running

    def kill(self) -> None:
        """End all nodes at once (SIGKILL)."""
        for node in self.nodes:
            node.kill()

    def remove(self) -> None:
        """End the nodes and delete the directory, if it was a temporary one; its data is not worth an orderly end."""
        if not self._owns_directory:
            self.stop()
            return
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> CassandraCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def _remembered_ports(self, nodes: int) -> tuple[int, int] | None:
        shape = _read_shape(self.directory)
        if shape is None:
            return None
        known, native, storage = shape
        if known != nodes:
            raise ValueError(
                f"{self.directory} holds a cluster of {known} nodes, not {nodes}; "
                "start that, or remove the directory with all its data"
            )
        return native, storage

    def _log_sizes(self) -> dict[str, int]:
        return {node.name: node.log_size() for node in self.nodes}

    def _wait_until_known(self, node: CassandraNode, seen: dict[str, int], timeout: float) -> None:
        """Wait until `node` and every other that runs have said of each other, since `seen`, that they are up."""
        others = [other for other in self.nodes if other is not node and other.running and not other.paused]
        end = time.monotonic() + timeout
        while True:
            strangers = [
                other
                for other in others
                if not (other.says_up(node, seen[other.name]) and node.says_up(other, node.log_start))
            ]
            if not strangers:
                return
            if time.monotonic() > end:
                names = ", ".join(other.name for other in strangers)
                raise CassandraStartError(f"{node.name} and {names} did not find each other in {timeout:g} s")
            time.sleep(_POLL_SECONDS)


def _read_shape(directory: Path) -> tuple[int, int, int] | None:
    """The number of nodes and the ports of CQL and between nodes, as remembered in a directory."""
    path = directory / STATE_FILE
    try:
        shape = json.loads(path.read_text())
        return int(shape["nodes"]), int(shape["native_port"]), int(shape["storage_port"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{path} is damaged; remove {directory} with all its data") from None


def free_ports(addresses: Sequence[str]) -> tuple[int, int]:
    """Two ports that are free on every address, outside the range of outgoing connections."""
    found: list[int] = []
    while len(found) < 2:
        port = random.choice(choice())  # noqa: S311 - no secret
        if port not in found and all(_is_free(address, port) for address in addresses):
            found.append(port)
    return found[0], found[1]


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
