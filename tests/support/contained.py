"""A process in a sandbox (tests.support.sandbox): started, probed as the kubelet does it, and ended as a pod is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from grpc import aio
from grpc_health.v1 import health_pb2
from tests.support.sandbox import Sandbox

LOG_TAIL_BYTES: Final = 3_000
_POLL_SECONDS: Final = 0.05
_PROBE_SECONDS: Final = 1.0


class ContainedError(Exception):
    """A process in a sandbox did not start or did not answer its probe; the message has the end of its log."""


class Contained:
    """A command that runs in a sandbox until it is ended; as a context manager, killed at the end.

    Args:
        name: for messages.
        sandbox: what it finds.
        command: what runs.
        environment: its whole environment.
        log: receives its standard output and error, appended.
    """

    def __init__(
        self, name: str, sandbox: Sandbox, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        self._arguments = sandbox.arguments(command)
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._pid = 0

    @property
    def pid(self) -> int:
        """Its process id on this machine; inside it is 1. Raises RuntimeError before the start."""
        if not self._pid:
            raise RuntimeError(f"{self.name} has not been started")
        return self._pid

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, in the main thread: it ends with that. Raises ContainedError if the sandbox cannot be made."""
        reading, writing = os.pipe()
        arguments = [self._arguments[0], "--info-fd", str(writing), *self._arguments[1:]]
        try:
            with self.log.open("ab") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *arguments,
                    env=self._environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=[writing],
                    start_new_session=True,
                )
        finally:
            os.close(writing)
        with os.fdopen(reading, "rb") as info:
            told = await asyncio.to_thread(info.read)
        if not told:
            await self._process.wait()
            raise ContainedError(f"{self.name} did not start; {self.log_tail()}")
        self._pid = json.loads(told)["child-pid"]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, as the container runtime does. Does nothing once it has ended."""
        if self.running:
            os.kill(self.pid, number)

    async def wait(self, timeout: float) -> int:
        """Its exit status, 128 and more for a signal; raises TimeoutError after `timeout` seconds."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), timeout)

    async def stop(self, grace: float) -> int:
        """SIGTERM and the exit status, as a pod ends; raises ContainedError if it needs longer than `grace` seconds."""
        self.signal(signal.SIGTERM)
        try:
            return await self.wait(grace)
        except TimeoutError:
            await self.kill()
            raise ContainedError(f"{self.name} did not end within {grace:g} s; {self.log_tail()}") from None

    async def kill(self) -> None:
        """End it at once. Does nothing if it does not run."""
        if self._process is not None and self._process.returncode is None:
            os.kill(self.pid, signal.SIGKILL)  # the sandbox ends with it, but would leave another user's process
            await self._process.wait()

    async def until_probe(self, probe: Mapping[str, Any], address: str, ports: Mapping[str, int]) -> None:
        """Wait until it answers a gRPC probe of a manifest, for as long as the kubelet would before it gives up.

        Args:
            probe: as the manifest has it.
            address: the pod's.
            ports: the container's, by their names.

        Raises:
            ContainedError: it ended, or the time is over.
        """
        port = probe["grpc"]["port"]
        at = f"{address}:{ports.get(port, port)}"
        seconds = probe.get("initialDelaySeconds", 0) + probe.get("failureThreshold", 3) * probe.get(
            "periodSeconds", 10
        )
        answering = asyncio.create_task(until_health(at, probe["grpc"].get("service", "")))
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({answering, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, ended):
                task.cancel()
            await asyncio.gather(answering, ended, return_exceptions=True)
        if not self.running:
            status = self._process.returncode
            raise ContainedError(f"{self.name} ended while starting, status {status}; {self.log_tail()}")
        if answering.cancelled():
            raise ContainedError(f"{self.name} did not pass its probe at {at} in {seconds:g} s; {self.log_tail()}")
        answering.result()

    def log_tail(self) -> str:
        """The end of what it has logged."""
        text = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() if self.log.exists() else ""
        return f"the end of its log:\n{text}" if text else "it logged nothing"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.kill()


async def until_health(address: str, service: str = "", *, serving: bool = True) -> None:
    """Return once the health service at `host:port` says SERVING of `service`, or, if so asked, something else."""
    options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 50)]
    async with aio.insecure_channel(address, options=[*options, ("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        while True:
            try:
                answer = await check(health_pb2.HealthCheckRequest(service=service), timeout=_PROBE_SECONDS)
            except aio.AioRpcError:
                serves = False
            else:
                serves = answer.status == health_pb2.HealthCheckResponse.SERVING
            if serves == serving:
                return
            await asyncio.sleep(_POLL_SECONDS)
