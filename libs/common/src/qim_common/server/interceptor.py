"""The one interceptor: every call passes it, every error leaves through it.

It wraps the handler, because the peer's certificate is known only there (pitfalls of grpc.aio). One body serves all
four kinds of call; the wrapped handler of each method is kept, so a call pays for the checks and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc_status import rpc_status
from opentelemetry import trace
from opentelemetry.trace import Span

from qim_common.calls import CURRENT
from qim_common.errors import (
    INTERNAL_REASON,
    BackendUnavailable,
    InvalidArgument,
    Overloaded,
    QimError,
    RemoteError,
    internal_status,
    to_status,
)
from qim_common.server.admission import Admission, CallShape
from qim_common.telemetry.metrics import RpcMetrics, rpc_metrics
from qim_common.telemetry.tracing import CallTracer

_log = logging.getLogger(__name__)

# Quoted: at run time grpc's classes take no type parameters.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Body: TypeAlias = "Callable[[Any, Context], Awaitable[Any]]"

_TOO_SLOW: Final = (
    "what this call waits for did not answer in time; it may have been carried out, retry with the same id"
)
_ANSWER_SECONDS: Final = 0.1
_ANSWER_SHARE: Final = 0.1
"""How long before the caller's deadline a call is ended, so that the answer still arrives."""

_STREAM_AGED: Final = "the stream reached its maximum age; call again"
_MALFORMED: Final = object()
_UNANSWERED: Final = frozenset((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))


class _Outcome:
    """What a call is counted as."""

    __slots__ = ("code", "reason")

    def __init__(self) -> None:
        self.code = grpc.StatusCode.OK.name
        self.reason = ""


class QimInterceptor(grpc.aio.ServerInterceptor):
    """Identity, roles, deadline, errors, metrics and spans for every call.

    Parameters:
        admission: the checks before the handler.
        stream_max_age: seconds after which a stream of answers to one request ends with BACKEND_UNAVAILABLE; it ends so
            shortly before its caller's deadline too.
        max_in_flight: calls served at one time; beyond it OVERLOADED.
        tracer: None leaves spans out.
        metrics: the process's by default.
    """

    def __init__(
        self,
        admission: Admission,
        *,
        stream_max_age: float,
        max_in_flight: int,
        tracer: CallTracer | None = None,
        metrics: RpcMetrics | None = None,
    ) -> None:
        self._admission = admission
        self._stream_max_age = stream_max_age
        self._max_in_flight = max_in_flight
        self._tracer = tracer
        self._metrics = metrics or rpc_metrics()
        self._metrics.in_flight.set_function(lambda: self._in_flight)
        self._in_flight = 0
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The wrapped handler; None for a method that the server does not have (UNIMPLEMENTED)."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._wrapped[method] = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Handler) -> Handler:
        shape = CallShape(method, handler.request_streaming, handler.response_streaming)
        inner: Any
        make: Any
        match handler.request_streaming, handler.response_streaming:
            case False, False:
                inner, make = handler.unary_unary, grpc.unary_unary_rpc_method_handler
            case False, True:
                inner, make = handler.unary_stream, grpc.unary_stream_rpc_method_handler
            case True, False:
                inner, make = handler.stream_unary, grpc.stream_unary_rpc_method_handler
            case _:
                inner, make = handler.stream_stream, grpc.stream_stream_rpc_method_handler
        body = _streaming_body(inner) if handler.response_streaming else _unary_body(inner)
        if handler.response_streaming and not handler.request_streaming:
            body = self._aged(body)
        elif shape.unary:
            body = _in_time(body)

        async def serve(request: Any, context: Context) -> Any:
            return await self._serve(shape, body, request, context)

        read = _reader(handler.request_deserializer, request_streaming=handler.request_streaming)
        wrapped: Handler = make(serve, read, handler.response_serializer)
        return wrapped

    def _aged(self, body: Body) -> Body:
        async def run(request: Any, context: Context) -> Any:
            in_time = _seconds_to_answer(context)
            by_deadline = in_time is not None and in_time < self._stream_max_age
            limit = asyncio.timeout(in_time if by_deadline else self._stream_max_age)
            try:
                async with limit:
                    return await body(request, context)
            except TimeoutError:
                if not limit.expired():
                    raise
                # Ending with OK would pass a part off as the whole.
                raise BackendUnavailable(message=_TOO_SLOW if by_deadline else _STREAM_AGED) from None

        return run

    async def _serve(self, shape: CallShape, body: Body, request: Any, context: Context) -> Any:
        started = time.perf_counter()
        outcome = _Outcome()
        request_id = os.urandom(16).hex()
        metadata: Any = context.invocation_metadata() or ()
        span = self._tracer.start(shape.method, metadata) if self._tracer else None
        self._in_flight += 1
        try:
            if self._in_flight > self._max_in_flight:
                raise Overloaded
            call = self._admission.admit(
                shape,
                auth_context=context.auth_context(),
                metadata=metadata,
                time_remaining=context.time_remaining(),
                request_id=request_id,
            )
            CURRENT.set(call)
            if request is _MALFORMED:
                raise _malformed()
            if span is None:
                return await body(request, context)
            return await _traced(span, body, request, context)
        except grpc.aio.AbortError:
            outcome.code = _code_of(context)
            raise
        except asyncio.CancelledError:
            outcome.code = grpc.StatusCode.CANCELLED.name
            raise
        except Exception as error:  # noqa: BLE001 - nothing may reach the client with its text
            await self._answer(_alone(error), context, request_id, outcome)
        finally:
            self._in_flight -= 1
            self._metrics.observe(shape.method, outcome.code, outcome.reason, time.perf_counter() - started)
            if span is not None and self._tracer is not None:
                self._tracer.end(span, outcome.code, outcome.reason)

    async def _answer(self, error: Exception, context: Context, request_id: str, outcome: _Outcome) -> NoReturn:
        if isinstance(error, RemoteError):
            error = _as_own(error)
        if isinstance(error, QimError):
            outcome.code, outcome.reason = error.code.name, error.reason
            _log.debug("refused", extra={"reason": error.reason, "text": error.message})
            await _abort(context, to_status(error))
        if isinstance(error, NotImplementedError) and context.code() is grpc.StatusCode.UNIMPLEMENTED:
            outcome.code = grpc.StatusCode.UNIMPLEMENTED.name
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, context.details() or "")
        outcome.code, outcome.reason = grpc.StatusCode.INTERNAL.name, INTERNAL_REASON
        _log.error("unhandled exception", exc_info=error, extra={"request_id": request_id})
        await _abort(context, internal_status(request_id))


def _reader(deserialize: Callable[[bytes], Any] | None, *, request_streaming: bool) -> Callable[[bytes], Any] | None:
    """The deserializer of a method, whose failure is a named refusal.

    gRPC reads a single request before the handler runs, so a mark stands in for it there; a stream's frames are read
    within the handler, which the refusal passes through.
    """
    if deserialize is None:
        return None

    def read(raw: bytes) -> Any:
        try:
            return deserialize(raw)
        except DecodeError:
            if request_streaming:
                raise _malformed() from None
            return _MALFORMED

    return read


def _malformed() -> InvalidArgument:
    return InvalidArgument("request", "is not a serialized message of this method")


def _unary_body(inner: Callable[[Any, Context], Any]) -> Body:
    async def run(request: Any, context: Context) -> Any:
        # The generated base classes are plain functions that raise.
        answer = inner(request, context)
        return await answer if inspect.isawaitable(answer) else answer

    return run


def _streaming_body(inner: Callable[[Any, Context], Any]) -> Body:
    async def run(request: Any, context: Context) -> None:
        answers = inner(request, context)
        if inspect.isasyncgen(answers):
            async with aclosing(answers):
                async for answer in answers:
                    await context.write(answer)
        else:
            await answers

    return run


def _in_time(body: Body) -> Body:
    """Ends a call by name shortly before its caller would give up on it (design.md invariant 13)."""

    async def run(request: Any, context: Context) -> Any:
        limit = asyncio.timeout(_seconds_to_answer(context))
        try:
            async with limit:
                return await body(request, context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise BackendUnavailable(message=_TOO_SLOW) from None

    return run


def _seconds_to_answer(context: Context) -> float | None:
    """Until a call must be ended for its answer to reach the caller in time; None: it has no deadline."""
    remaining = context.time_remaining()
    return None if remaining is None else remaining - min(_ANSWER_SECONDS, remaining * _ANSWER_SHARE)


async def _traced(span: Span, body: Body, request: Any, context: Context) -> Any:
    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        return await body(request, context)


async def _abort(context: Context, status: status_pb2.Status) -> NoReturn:
    await context.abort_with_status(rpc_status.to_status(status))


def _alone(error: Exception) -> Exception:
    """The one exception of a task group, so that handlers may raise refusals from their tasks."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error


def _as_own(error: RemoteError) -> Exception:
    """What the failure of another service means to this one's caller."""
    if error.code in _UNANSWERED:
        return BackendUnavailable()
    return error if error.code is grpc.StatusCode.UNIMPLEMENTED else RuntimeError(f"another service failed: {error}")


def _code_of(context: Context) -> str:
    code: object = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else grpc.StatusCode.UNKNOWN.name
