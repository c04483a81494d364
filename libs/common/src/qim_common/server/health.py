"""The health port: plaintext, for kubelet's probes, and nothing on it but grpc.health.v1 (contracts.md, "Identity")."""

from collections.abc import Iterable
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_concurrent_streams", 16),
)
_MAX_CALLS: Final = 64

LIVENESS_SERVICE: Final = "liveness"
"""The name that startup and liveness probes ask for: SERVING while the process's event loop answers at all, also while
it is not ready and while it drains, so that a slow end is no reason to kill it. Readiness is the empty name."""


class _HealthServicer(health.aio.HealthServicer):
    """Without List, which the library has in its description and not in its code."""

    async def List(self, request: Any, context: Any) -> None:  # noqa: N802
        """UNIMPLEMENTED, plainly."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ask Check for one service, or for none")


class HealthServer:
    """Answers for the process (service name empty) and for each of its gRPC services, and for LIVENESS_SERVICE.

    The answers come from the loop that does the service's work: where that hangs, no probe is answered.

    Parameters:
        address: `host:port`; port 0 takes a free one.
        services: full names, `qim.writer.v1.Writer`.
    """

    def __init__(self, address: str, services: Iterable[str] = ()) -> None:
        self._address = address
        self._names = ("", *services)
        self._servicer = _HealthServicer()
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)

    async def start(self) -> int:
        """Starts NOT_SERVING and returns the port; raises RuntimeError if the address cannot be bound."""
        await self.set_serving(serving=False)
        await self._servicer.set(LIVENESS_SERVICE, _SERVING)
        port = self._server.add_insecure_port(self._address)
        await self._server.start()
        return port

    async def set_serving(self, *, serving: bool) -> None:
        """What readiness probes are told from now on."""
        for name in self._names:
            await self._servicer.set(name, _SERVING if serving else _NOT_SERVING)

    async def stop(self) -> None:
        """Ends the port at once."""
        await self._server.stop(0)
