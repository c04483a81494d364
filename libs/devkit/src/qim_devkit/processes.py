"""One service of the suite as a child process: started, watched until it serves, and ended by its own process id."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from grpc import aio
from grpc_health.v1 import health_pb2

from qim_devkit.tether import tethered

LOG_TAIL_BYTES: Final = 3_000
_POLL_SECONDS: Final = 0.05


class SuiteError(Exception):
    """A process of the suite did not start, ended, or did not end; the message has the end of its log."""


class ServiceProcess:
    """A Python module that serves gRPC, with grpc.health.v1 on a plaintext port of its own.

    Args:
        name: for messages.
        module: run as `python -m <module>`.
        environment: the child's whole environment.
        log: receives its standard output and error, appended.
        health: `host:port` of its health service.
    """

    def __init__(self, name: str, module: str, environment: Mapping[str, str], log: Path, health: str) -> None:
        self.name = name
        self.log = log
        self._module = module
        self._environment = dict(environment)
        self._health = health
        self._process: asyncio.subprocess.Process | None = None
        self._log_begin = 0
        self._has_served = False

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError while it does not run."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    async def start(self, timeout: float = 30.0) -> None:
        """Start it and wait until its health service answers SERVING.

        Raises:
            SuiteError: it ended, or did not serve within `timeout` seconds (it is killed then).
        """
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        self._has_served = False
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._log_begin = output.tell()
            self._process = await asyncio.create_subprocess_exec(
                *tethered([sys.executable, "-m", self._module]),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                # Ctrl-C in the terminal reaches the supervisor only, which stops its children in its own order.
                start_new_session=True,
            )
        serving = asyncio.create_task(self._until_serving())
        ended = asyncio.create_task(self._process.wait())
        try:
            done, _ = await asyncio.wait({serving, ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, ended):
                task.cancel()
            await asyncio.gather(serving, ended, return_exceptions=True)
        if ended in done:
            raise SuiteError(f"{self.name} ended while starting, with {self.describe_end()}")
        if serving not in done:
            await self.kill()
            raise SuiteError(f"{self.name} did not serve within {timeout:g} s; {self.log_tail()}")
        await serving  # a fault of the probe itself is raised here
        self._has_served = True

    async def _until_serving(self) -> None:
        options = [
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.enable_http_proxy", 0),
        ]
        async with aio.insecure_channel(self._health, options=options) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            while True:
                try:
                    answer = await check(health_pb2.HealthCheckRequest(), timeout=1.0)
                except aio.AioRpcError:
                    pass
                else:
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
                await asyncio.sleep(_POLL_SECONDS)

    async def stop(self, timeout: float = 15.0) -> bool:
        """Ask it to drain and end (SIGTERM); after `timeout` seconds it is killed.

        Returns whether it ended by itself with exit status 0; True if it was not running. While it starts it has
        nothing to drain, so that the signal itself may end it.
        """
        if self._process is None or self._process.returncode is not None:
            return True
        self.resume()  # a paused one would not take the signal
        self._process.terminate()
        try:
            status = await asyncio.wait_for(self._process.wait(), timeout)
        except TimeoutError:
            await self.kill()
            return False
        return status == 0 or (status == -signal.SIGTERM and not self._has_served)

    def pause(self) -> None:
        """Make it stand still (SIGSTOP): it keeps its connections and answers nothing. Nothing if it does not run."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause` (SIGCONT). Does nothing if it does not run."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would. Does nothing if it does not run."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def describe_end(self) -> str:
        """How it ended and what it logged last, for messages."""
        status = self._process.returncode if self._process else None
        if status is None:
            return f"no exit status; {self.log_tail()}"
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"{how}; {self.log_tail()}"

    def log_tail(self) -> str:
        """The end of what it has logged since its last start."""
        if not self.log.exists():
            return "it logged nothing"
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begin, size - LOG_TAIL_BYTES))
            text = log.read().decode(errors="replace").strip()
        return f"the end of {self.log}:\n{text}" if text else f"it logged nothing to {self.log}"
