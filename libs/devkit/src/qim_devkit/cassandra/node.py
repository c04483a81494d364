"""One Cassandra node as a process: started, killed, paused, restarted and stopped by its own process id."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from qim_devkit.cassandra.config import NodeConfig
from qim_devkit.tether import tethered

_POLL_SECONDS: Final = 0.05
_OPTIONS_FRAME: Final = bytes.fromhex("040000000500000000")
"""CQL v4: OPTIONS, which a node answers with SUPPORTED before any authentication."""
_SUPPORTED: Final = 0x06


class CassandraStartError(Exception):
    """A node did not start, or the cluster did not come together; the message says why or holds the log's end."""


class CassandraNode:
    """One node. Its process may outlive this object (without `tether`), and the next object finds it again.

    Args:
        name: for messages.
        config: where it lives and listens.
        tether: end the node when this process ends. `start` is then called from a thread that lives as long as the
            node (qim_devkit.tether).
    """

    def __init__(self, name: str, config: NodeConfig, *, tether: bool) -> None:
        self.name = name
        self.config = config
        self._tether = tether
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self.log_start = 0
        """Where in the log the present run begins."""

    @property
    def address(self) -> str:
        """`host:port` of CQL."""
        return f"{self.config.address}:{self.config.native_port}"

    @property
    def log_path(self) -> Path:
        """The log file."""
        return self.config.directory / "node.log"

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError while the node does not run."""
        if self._process is not None and self._process.poll() is None:
            return self._process.pid
        pid = self._find()
        if pid is None:
            raise RuntimeError(f"{self.name} is not running")
        return pid

    @property
    def running(self) -> bool:
        """Whether the process lives; a paused one does."""
        return (self._process is not None and self._process.poll() is None) or self._find() is not None

    def launch(self, java: Path, jars: Path) -> None:
        """Start the process; `wait_until_serving` tells when it answers.

        Raises:
            CassandraStartError: something else listens on a port of the node.
        """
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        self._require_free_ports()
        self.config.write()
        self.paused = False
        command = self.config.command(java, jars)
        with self.log_path.open("ab") as log:
            self.log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603  Java, found on PATH
                tethered(command) if self._tether else command,
                cwd=self.config.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal reaches the parent only, which stops its children in its own order.
                start_new_session=True,
            )
        self._pid_file.write_text(f"{self._process.pid}\n")

    def wait_until_serving(self, timeout: float) -> None:
        """Wait until the node answers on its CQL port.

        Args:
            timeout: seconds.

        Raises:
            CassandraStartError: the process ended, or did not answer in time; the message has the end of its log.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if not self.running:
                raise CassandraStartError(f"{self.name} ended while starting; {self._log_tail()}")
            if self.answers():
                return
            time.sleep(_POLL_SECONDS)
        raise CassandraStartError(f"{self.name} did not answer on {self.address} in {timeout:g} s; {self._log_tail()}")

    def answers(self) -> bool:
        """Whether something that speaks CQL answers on the node's port now."""
        try:
            with socket.create_connection((self.config.address, self.config.native_port), timeout=1.0) as probe:
                probe.sendall(_OPTIONS_FRAME)
                head = probe.recv(9)
        except OSError:
            return False
        return len(head) > 4 and head[4] == _SUPPORTED

    def says_up(self, peer: CassandraNode, since: int) -> bool:
        """Whether this node's log, from the byte `since` on, last says that `peer` is up."""
        with self.log_path.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        address = re.escape(f"/{peer.config.address}:{peer.config.storage_port}")
        said = re.findall(rf"InetAddress {address} is now (UP|DOWN)", text)
        return bool(said) and said[-1] == "UP"

    def log_size(self) -> int:
        """The log's present length in bytes."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would. Does nothing if it does not run."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._await_end(30.0)
        self._forget()

    def pause(self) -> None:
        """Stop the process from running (SIGSTOP), as a machine does that hangs: its ports still accept."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Let a paused process run on."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM); `stop` waits for it. Does nothing if it does not run."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
            os.kill(self.pid, signal.SIGCONT)  # a paused process must wake up to end
            self.paused = False

    def stop(self, timeout: float = 20.0) -> None:
        """Ask the process to end and wait; after `timeout` seconds it is killed."""
        self.terminate()
        if self.running and not self._await_end(timeout):
            self.kill()
        self._forget()

    def _await_end(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while self.running and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        return not self.running

    def _forget(self) -> None:
        self._process = None
        self.paused = False
        self._pid_file.unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self.config.directory / "pid"

    def _find(self) -> int | None:
        """The node that another supervisor started, earlier or meanwhile, and left running."""
        try:
            pid = int(self._pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if self._is_this_node(pid) else None

    def _is_this_node(self, pid: int) -> bool:
        """Whether this process runs with this node's configuration: an id may have been given to another process."""
        told = subprocess.run(  # noqa: S603
            ["ps", "-ww", "-p", str(pid), "-o", "stat=", "-o", "args="],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        return f"{self.config.conf}:" in told and not told.startswith("Z")

    def _require_free_ports(self) -> None:
        for port, what in ((self.config.native_port, "CQL"), (self.config.storage_port, "the other nodes")):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.config.address, port))
                except OSError as error:
                    raise CassandraStartError(
                        f"{self.name}: {self.config.address}:{port} (for {what}) cannot be used: {error.strerror}; "
                        "stop what listens there (`make cassandra-down` if it is this checkout's), give this cluster a "
                        "directory of its own, which finds free ports (`make up BACKEND=tiered CASSANDRA=.qim/other`), "
                        "or use what runs there as it is (QIM_CASSANDRA_CONTACT_POINTS=host:port in the environment)"
                    ) from None

    def _log_tail(self) -> str:
        if not self.log_path.exists():
            return "it logged nothing"
        with self.log_path.open("rb") as log:
            log.seek(max(self.log_start, self.log_size() - 3_000))
            return f"the end of {self.log_path}:\n{log.read().decode(errors='replace').strip()}"
