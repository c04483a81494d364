"""The server that all three services are: limits, identity, health, metrics, readiness, and an orderly end.

harness = ServerHarness(settings, bindings=bindings)
harness.add(add_WriterServicer_to_server, servicer)
await harness.run([store.close])
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import grpc

from qim_common.bindings import Bindings
from qim_common.channels import KEEPALIVE_MIN_MS, MAX_MESSAGE_BYTES
from qim_common.config import ServerSettings
from qim_common.server.admission import Admission
from qim_common.server.credentials import server_credentials
from qim_common.server.health import HealthServer
from qim_common.server.interceptor import QimInterceptor
from qim_common.server.metrics_port import serve_metrics
from qim_common.server.runtime import require_upb
from qim_common.server.tasks import TaskKeeper
from qim_common.start import StartRefusedError
from qim_common.telemetry.tracing import CallTracer, setup_tracing

_log = logging.getLogger(__name__)

Closer = Callable[[], Awaitable[object]]
"""Closes one resource at the end: a store, a consumer, a channel. Called in reverse order."""

MAX_STREAMS_PER_CONNECTION: Final = 1024
STREAM_WINDOW_BYTES: Final = 256 * 1024
"""What a caller may send on a stream that is not being read."""

CLOSE_SECONDS: Final = 10.0
"""What each resource has at the end to close; one that takes longer is left as it is."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a started harness listens, `host:port` with the real ports."""

    grpc: str
    health: str
    metrics: str


def server_options(settings: ServerSettings) -> list[tuple[str, int]]:
    """The channel options of every gRPC port.

    A connection is told to go after `connection_max_age_seconds`, so that old identities end and clients resolve names
    again; what runs on it may go on for as long as a stream may live.
    """
    return [
        # Else a second server binds the same port without an error.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # Else gRPC widens the window by its estimate of the line, and takes tens of MiB for a stream that nobody reads.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
        ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MIN_MS),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.max_connection_age_ms", int(settings.connection_max_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", int((settings.stream_max_age_seconds + settings.drain_seconds) * 1000)),
    ]


class ServerHarness:
    """One process's gRPC server with everything around it. Make it inside the event loop.

    Attributes:
        tasks: runs commits so that they survive a client's cancel; drained at the end.
        draining: set when no new calls are taken any more; streams of requests stop reading (`CallContext.stream`).
        stream_max_age: how long a stream may live.

    Raises StartRefusedError (CertificateError among them) where the process must not serve.
    """

    def __init__(self, settings: ServerSettings, *, bindings: Bindings, tracer: CallTracer | None = None) -> None:
        require_upb()
        self._settings = settings
        self._own_tracer, self._end_tracing = setup_tracing(settings.service, settings.otlp_endpoint)
        self.tasks = TaskKeeper()
        self.draining = asyncio.Event()
        self.stream_max_age = timedelta(seconds=settings.stream_max_age_seconds)
        self._stop = asyncio.Event()
        self._services: list[str] = []
        admission = Admission(
            bindings=bindings,
            trust_domain=settings.trust_domain,
            stream_max_age=settings.stream_max_age_seconds,
            draining=self.draining,
        )
        interceptor = QimInterceptor(
            admission,
            stream_max_age=settings.stream_max_age_seconds,
            max_in_flight=settings.max_concurrent_calls,
            tracer=tracer or self._own_tracer,
        )
        self._credentials = server_credentials(settings.server_tls, interval=settings.reload_interval_seconds)
        self._server = grpc.aio.server(interceptors=[interceptor], options=server_options(settings))
        self._health: HealthServer | None = None
        self._end_metrics: Callable[[], None] = lambda: None

    def add(self, register: Callable[[Any, grpc.aio.Server], None], servicer: object, *, service: str = "") -> None:
        """Adds a service with its generated `add_…_to_server`; `service` is its full name for the health port."""
        register(servicer, self._server)
        if service:
            self._services.append(service)

    async def start(self) -> Addresses:
        """Serves from now on. Raises StartRefusedError if an address cannot be bound."""
        settings = self._settings
        self._health = HealthServer(settings.health_listen, self._services)
        try:
            health_port = await self._health.start()
            port = self._server.add_secure_port(settings.listen, self._credentials)
            metrics_port, self._end_metrics = serve_metrics(settings.metrics_listen)
        except (RuntimeError, OSError) as error:
            await self._health.stop()
            raise StartRefusedError(
                f"an address cannot be bound ({error}); is another process on it? See QIM_LISTEN, QIM_HEALTH_LISTEN "
                "and QIM_METRICS_LISTEN"
            ) from None

        await self._server.start()
        await self._health.set_serving(serving=True)
        addresses = Addresses(
            grpc=_with_port(settings.listen, port),
            health=_with_port(settings.health_listen, health_port),
            metrics=_with_port(settings.metrics_listen, metrics_port),
        )
        _log.info(
            "ready",
            extra={"listen": addresses.grpc, "health": addresses.health, "metrics": addresses.metrics},
        )
        return addresses

    async def set_serving(self, *, serving: bool) -> None:
        """What the health port tells from now on. The harness says SERVING at start and NOT_SERVING at the end."""
        if self._health is not None:
            await self._health.set_serving(serving=serving)

    def request_stop(self) -> None:
        """Begins the orderly end, as SIGTERM and SIGINT do."""
        self._stop.set()

    async def run(self, resources: Sequence[Closer] = ()) -> None:
        """Serves until SIGTERM, SIGINT or `request_stop`, then ends in order and closes `resources`, the last first.

        Prints one line on stdout when it is ready: `READY <service> listen=… health=… metrics=…`.
        """
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.request_stop)
        try:
            addresses = await self.start()
            print(
                f"READY {self._settings.service} listen={addresses.grpc} health={addresses.health} "
                f"metrics={addresses.metrics}",
                flush=True,
            )
            await self._stop.wait()
            await self.stop()
        finally:
            await _close(resources)
            for number in signals:
                loop.remove_signal_handler(number)

    async def stop(self) -> None:
        """The orderly end: NOT_SERVING, a pause for who looks up names, no new calls, own work drained, ports closed.

        During the pause everything is served as before, also new calls and streams."""
        settings = self._settings
        _log.info("draining", extra={"calls_get_seconds": settings.drain_seconds})
        await self.set_serving(serving=False)
        await asyncio.sleep(settings.drain_pause_seconds)
        # Streams end when connections are told to go, not before: whoever opens another one would get it here again.
        stopping = asyncio.create_task(self._server.stop(settings.drain_seconds))
        self.draining.set()
        # stop() does not wait for work behind aborted calls (pitfalls of grpc.aio, point 9), so drain comes after.
        await stopping
        await self.tasks.drain(settings.drain_seconds)
        if self._health is not None:
            await self._health.stop()
        await asyncio.to_thread(self._end_metrics)
        await asyncio.to_thread(self._end_tracing)
        _log.info("stopped")


async def _close(resources: Sequence[Closer]) -> None:
    for close in reversed(resources):
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await close()
        except Exception:  # noqa: BLE001
            # One resource that does not close must not keep the others open.
            _log.exception("a resource did not close")


def _with_port(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"
