"""Traces: one server span a call, written by the interceptor. Off, and free of cost, without `QIM_OTLP_ENDPOINT`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import grpc
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_CARRIED: Final = frozenset(("traceparent", "tracestate"))
# Codes that are the server's fault, by the semantic conventions for gRPC servers.
_SERVER_FAULTS: Final = frozenset(
    code.name
    for code in (
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    )
)


class CallTracer:
    """Starts and ends the span of a call, with the attributes of the semantic conventions for RPC."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Span:
        """A server span for `/package.Service/Method`, under the caller's span if its metadata names one."""
        carrier = {key: value for key, value in metadata if key in _CARRIED and isinstance(value, str)}
        attributes: Mapping[str, str] = {"rpc.system.name": "grpc", "rpc.method": method.removeprefix("/")}
        return self._tracer.start_span(
            method.removeprefix("/"),
            context=_PROPAGATOR.extract(carrier) if carrier else None,
            kind=SpanKind.SERVER,
            attributes=attributes,
        )

    def end(self, span: Span, code: str, reason: str) -> None:
        """Ends the span with the status that the caller got."""
        span.set_attribute("rpc.response.status_code", code)
        if reason:
            span.set_attribute("error.type", reason)
        if code in _SERVER_FAULTS:
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def setup_tracing(
    service: str, endpoint: str, *, processor: SpanProcessor | None = None
) -> tuple[CallTracer | None, Callable[[], None]]:
    """The tracer for the interceptor, and what flushes and ends it at shutdown (blocking, a few seconds at most).

    Parameters:
        service: `service.name` of the spans.
        endpoint: OTLP/gRPC collector, `http://host:port` or `https://host:port`; empty: no tracing.
        processor: where spans go instead of the endpoint.
    """
    if not endpoint and processor is None:
        return None, lambda: None
    if processor is None:
        # A tenth of a process's start, which only those pay who trace.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=2))
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    provider.add_span_processor(processor)
    return CallTracer(provider.get_tracer("qim")), provider.shutdown
