"""The wire form of an error: `google.rpc.Status` with one `ErrorInfo`, and back.

A status travels in HTTP/2 trailers. Trailers above 4 kB arrive unreliably (12 kB fails half the time), so details that
would exceed `MAX_TRAILER_BYTES` lose violations, then metadata, from the end; never the reason.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from qim_common.errors.base import FieldViolation, QimError, RemoteError
from qim_common.errors.reasons import ERROR_DOMAIN, INTERNAL_REASON
from qim_common.errors.tree import ERROR_CLASSES

MAX_TRAILER_BYTES: Final = 3_900
"""Upper bound of the encoded status plus its message in the trailers, in bytes."""

DETAILS_KEY: Final = "grpc-status-details-bin"
_TEXT_MAX: Final = 400
_VALUE_MAX: Final = 160
_CLASS_OF: Final[dict[str, type[QimError]]] = {reason.value: cls for reason, cls in ERROR_CLASSES.items()}
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def to_status(error: QimError) -> status_pb2.Status:
    """The status that answers `error`: exactly one ErrorInfo, plus BadRequest, PreconditionFailure or RetryInfo.

    Its trailers never exceed `MAX_TRAILER_BYTES`: long texts are cut, surplus violations and metadata left out.
    """
    violations = tuple(error.violations)
    metadata = tuple(error.metadata.items())
    status = _build(error, violations, metadata)
    while _trailer_bytes(status) > MAX_TRAILER_BYTES and (violations or metadata):
        if violations:
            violations = violations[: len(violations) // 2]
        else:
            metadata = metadata[: len(metadata) // 2]
        status = _build(error, violations, metadata)
    return status


def internal_status(request_id: str) -> status_pb2.Status:
    """What an unhandled exception becomes: INTERNAL with the request id by which the log has it, and no text."""
    info = error_details_pb2.ErrorInfo(reason=INTERNAL_REASON, domain=ERROR_DOMAIN, metadata={"request_id": request_id})
    status = status_pb2.Status(code=grpc.StatusCode.INTERNAL.value[0], message=f"request {request_id}")
    status.details.add().Pack(info)
    return status


def from_status(status: status_pb2.Status) -> QimError:
    """The exception that `status` stands for; `RemoteError` where the reason is none of the tree's."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad_request = error_details_pb2.BadRequest()
    has_retry = False
    try:
        for detail in status.details:
            if not detail.Unpack(info) and not detail.Unpack(bad_request):
                has_retry = detail.Unpack(retry) or has_retry
    except DecodeError:
        return RemoteError(code=code, message=status.message)
    cls = _CLASS_OF.get(info.reason) if info.domain == ERROR_DOMAIN else None
    if cls is None or cls.code is not code:
        error: QimError = RemoteError(code=code, reason=info.reason)
    else:
        # The tree's constructors take what a raiser knows; an error from the wire is already complete.
        error = cls.__new__(cls)
    QimError.__init__(
        error,
        message=status.message,
        metadata=dict(info.metadata),
        violations=[FieldViolation(item.field, item.description) for item in bad_request.field_violations],
        retry_after=retry.retry_delay.ToTimedelta() if has_retry else None,
    )
    return error


def from_rpc_error(error: grpc.aio.AioRpcError) -> QimError:
    """The exception of a failed call: from its status details, else a `RemoteError` with the bare code.

    CANCELLED without details is UNAVAILABLE here: nobody has cancelled (a caller's own cancel is no AioRpcError), the
    server has dropped the call because it ends. grpcio does that to calls that reach it while it begins to stop.
    """
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            try:
                status = status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode())
            except DecodeError:
                break
            if status.code == error.code().value[0]:
                return from_status(status)
    if error.code() is grpc.StatusCode.CANCELLED:
        return RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="the server ended before it answered")
    return RemoteError(code=error.code(), message=error.details() or None)


def _build(
    error: QimError, violations: Sequence[FieldViolation], metadata: Sequence[tuple[str, str]]
) -> status_pb2.Status:
    status = status_pb2.Status(code=error.code.value[0], message=_cut(error.message, _TEXT_MAX))
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=ERROR_DOMAIN,
        metadata={key[:64]: _cut(value, _VALUE_MAX) for key, value in metadata},
    )
    status.details.add().Pack(info)
    if violations:
        bad_request = error_details_pb2.BadRequest(
            field_violations=[
                error_details_pb2.BadRequest.FieldViolation(
                    field=_cut(item.field, _VALUE_MAX), description=_cut(item.description, _VALUE_MAX)
                )
                for item in violations
            ]
        )
        status.details.add().Pack(bad_request)
    if error.precondition_subject:
        failure = error_details_pb2.PreconditionFailure(
            violations=[
                error_details_pb2.PreconditionFailure.Violation(
                    type=error.reason, subject=error.precondition_subject, description=_cut(error.message, _VALUE_MAX)
                )
            ]
        )
        status.details.add().Pack(failure)
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(error.retry_after)
        status.details.add().Pack(retry)
    return status


def _trailer_bytes(status: status_pb2.Status) -> int:
    # Binary trailers may travel in base64, and grpc-message is percent-encoded beside its copy in the status.
    return status.ByteSize() * 4 // 3 + 4 + len(quote(status.message))


def _cut(text: str, limit: int) -> str:
    raw = text.encode()
    if len(raw) <= limit:
        return text
    return raw[: limit - 3].decode(errors="ignore") + "…"
