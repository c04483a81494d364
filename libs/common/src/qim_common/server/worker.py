"""A process that serves no calls: health, metrics, traces, readiness, and an orderly end.

The counterpart of `ServerHarness` for what only consumes.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

from qim_common.config import ProcessSettings
from qim_common.server.health import HealthServer
from qim_common.server.metrics_port import serve_metrics
from qim_common.start import StartRefusedError
from qim_common.telemetry.tracing import setup_tracing

_log = logging.getLogger(__name__)


class WorkerHarness:
    """One process with its health and metrics ports. Make it inside the event loop."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()

    def request_stop(self) -> None:
        """Begins the orderly end, as SIGTERM and SIGINT do."""
        self._stop.set()

    async def run(self, drain: Callable[[float], Awaitable[object]]) -> None:
        """Serves health and metrics until SIGTERM, SIGINT or `request_stop`; then NOT_SERVING, and `drain`.

        Prints one line on stdout when it is ready: `READY <service> health=… metrics=…`.

        Args:
            drain: lets what is under way end, within the seconds that it is given.

        Raises StartRefusedError if an address cannot be bound.
        """
        settings = self._settings
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.request_stop)
        health = HealthServer(settings.health_listen)
        _, end_tracing = setup_tracing(settings.service, settings.otlp_endpoint)
        end_metrics: Callable[[], None] = lambda: None  # noqa: E731
        try:
            try:
                health_port = await health.start()
                metrics_port, end_metrics = serve_metrics(settings.metrics_listen)
            except (RuntimeError, OSError) as error:
                raise StartRefusedError(
                    f"an address cannot be bound ({error}); is another process on it? See QIM_HEALTH_LISTEN and "
                    "QIM_METRICS_LISTEN"
                ) from None
            await health.set_serving(serving=True)
            places = {"health": health_port, "metrics": metrics_port}
            _log.info("ready", extra=places)
            print(
                f"READY {settings.service} " + " ".join(f"{name}={port}" for name, port in places.items()), flush=True
            )
            await self._stop.wait()
            _log.info("draining", extra={"work_gets_seconds": settings.drain_seconds})
            await health.set_serving(serving=False)
            await asyncio.sleep(settings.drain_pause_seconds)
            await drain(settings.drain_seconds)
        finally:
            await health.stop()
            await asyncio.to_thread(end_metrics)
            await asyncio.to_thread(end_tracing)
            for number in signals:
                loop.remove_signal_handler(number)
        _log.info("stopped")
