"""The exception tree and its wire form (contracts.md, "Errors")."""

from datetime import timedelta
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from qim_common.errors import (
    ERROR_CLASSES,
    ERROR_DOMAIN,
    MAX_TRAILER_BYTES,
    BackendUnavailable,
    FieldViolation,
    GroupFrozen,
    InvalidArgument,
    MembershipChanged,
    MessageTooLarge,
    Overloaded,
    PermissionDenied,
    QimError,
    Reason,
    RemoteError,
    TooManyItems,
    from_rpc_error,
    from_status,
    internal_status,
    to_status,
)

CODES = {
    "INVALID_ARGUMENT": "INVALID_ARGUMENT MESSAGE_TOO_LARGE TOO_MANY_ITEMS PAGE_TOKEN_INVALID DEADLINE_REQUIRED",
    "PERMISSION_DENIED": "PERMISSION_DENIED ROLE_NOT_ALLOWED INTERNAL_IDENTITY_REQUIRED TENANT_NOT_ALLOWED",
    "ALREADY_EXISTS": "GROUP_ALREADY_EXISTS IDEMPOTENCY_KEY_REUSED",
    "FAILED_PRECONDITION": "MEMBER_LIMIT_EXCEEDED OWNER_CANNOT_LEAVE NEW_OWNER_NOT_MEMBER GROUP_FROZEN REQUEST_TOO_OLD",
    "ABORTED": "MEMBERSHIP_CHANGED",
    "OUT_OF_RANGE": "MEMBERSHIP_VERSION_EXPIRED RESYNC_REQUIRED",
    "RESOURCE_EXHAUSTED": "OVERLOADED ARCHIVE_BACKLOG_FULL",
    "UNAVAILABLE": "INSTANCE_FENCED AUDIT_UNAVAILABLE BACKEND_UNAVAILABLE",
    "UNIMPLEMENTED": "UNSUPPORTED_BY_BACKEND",
}
CODE_OF = {Reason(reason): grpc.StatusCode[code] for code, reasons in CODES.items() for reason in reasons.split()}
WITH_RETRY = {Reason.MEMBERSHIP_CHANGED, Reason.OVERLOADED, Reason.ARCHIVE_BACKLOG_FULL}


def _make(reason: Reason) -> QimError:
    cls = ERROR_CLASSES[reason]
    return InvalidArgument("request_id", "must be 16 bytes") if cls is InvalidArgument else cls()


def _details(status: status_pb2.Status) -> list[str]:
    return [detail.type_url.rpartition(".")[2] for detail in status.details]


def test_the_table_has_every_reason_once() -> None:
    assert set(CODE_OF) == set(Reason) == set(ERROR_CLASSES)


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_answered_with_its_status_and_exactly_one_error_info(reason: Reason) -> None:
    status = to_status(_make(reason))

    assert status.code == CODE_OF[reason].value[0]
    assert _details(status).count("ErrorInfo") == 1
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (reason, ERROR_DOMAIN)
    assert ("RetryInfo" in _details(status)) == (reason in WITH_RETRY)
    assert ("PreconditionFailure" in _details(status)) == (CODE_OF[reason] is grpc.StatusCode.FAILED_PRECONDITION)
    assert status.message


@pytest.mark.parametrize("reason", Reason)
def test_the_client_gets_the_same_exception_back(reason: Reason) -> None:
    sent = _make(reason)

    got = from_status(to_status(sent))

    assert type(got) is type(sent)
    assert (got.message, got.violations, got.retry_after) == (sent.message, sent.violations, sent.retry_after)


def test_invalid_argument_names_the_field() -> None:
    status = to_status(InvalidArgument("people[3]", "must be 16 bytes, has 4"))

    bad_request = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad_request) for detail in status.details)
    assert [(item.field, item.description) for item in bad_request.field_violations] == [
        ("people[3]", "must be 16 bytes, has 4")
    ]


def test_metadata_and_retry_after_travel() -> None:
    got = from_status(to_status(Overloaded(metadata={"limit": "256"}, retry_after=timedelta(seconds=3))))

    assert isinstance(got, Overloaded)
    assert (dict(got.metadata), got.retry_after) == ({"limit": "256"}, timedelta(seconds=3))


def test_permission_denied_takes_no_words() -> None:
    with pytest.raises(TypeError):
        PermissionDenied(message="the group is unknown")  # type: ignore[call-arg]
    assert to_status(PermissionDenied()) == to_status(PermissionDenied())


@pytest.mark.parametrize(
    "error",
    [
        TooManyItems(violations=[FieldViolation(f"people[{n}]", "x" * 900) for n in range(1000)]),
        MessageTooLarge(message="ü" * 5000),
        GroupFrozen(metadata={f"key{n}": "v" * 500 for n in range(200)}),
        TooManyItems(
            message="ü" * 5000,
            violations=[FieldViolation("f" * 500, "ü" * 500) for _ in range(100)],
            metadata={f"key{n}": "v" * 500 for n in range(200)},
        ),
    ],
    ids=["violations", "message", "metadata", "everything"],
)
def test_large_details_are_cut_below_what_trailers_carry(error: QimError) -> None:
    status = to_status(error)

    assert status.ByteSize() * 4 / 3 + len(quote(status.message)) <= MAX_TRAILER_BYTES
    got = from_status(status)
    assert (type(got), got.reason) == (type(error), error.reason)


def test_an_unknown_reason_keeps_code_and_details() -> None:
    status = status_pb2.Status(code=9, message="new in a later release")
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason="NOT_YET_KNOWN", domain=ERROR_DOMAIN, metadata={"a": "b"})
    )

    got = from_status(status)

    assert isinstance(got, RemoteError)
    assert (got.code, got.reason, got.message) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NOT_YET_KNOWN",
        "new in a later release",
    )
    assert dict(got.metadata) == {"a": "b"}


def test_a_known_reason_of_another_domain_is_not_ours() -> None:
    status = status_pb2.Status(code=9)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="GROUP_FROZEN", domain="other"))

    assert type(from_status(status)) is RemoteError


def test_damaged_details_still_give_an_error_with_the_code() -> None:
    status = status_pb2.Status(code=14, message="half")
    detail = status.details.add()
    detail.type_url = "type.googleapis.com/google.rpc.ErrorInfo"
    detail.value = b"\xff\xff\xff"

    got = from_status(status)

    assert isinstance(got, RemoteError)
    assert (got.code, got.message) == (grpc.StatusCode.UNAVAILABLE, "half")


def test_an_unhandled_exception_shows_its_request_id_and_no_text() -> None:
    got = from_status(internal_status("ab" * 16))

    assert isinstance(got, RemoteError)
    assert (got.code, got.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert dict(got.metadata) == {"request_id": "ab" * 16}


@pytest.mark.parametrize("details", [None, b"\xff", to_status(BackendUnavailable()).SerializeToString()])
def test_a_failed_call_without_usable_details_is_a_remote_error(details: bytes | None) -> None:
    trailing = grpc.aio.Metadata() if details is None else grpc.aio.Metadata(("grpc-status-details-bin", details))
    error = grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), trailing, "late")

    got = from_rpc_error(error)

    assert isinstance(got, RemoteError)
    assert (got.code, got.reason, got.message) == (grpc.StatusCode.DEADLINE_EXCEEDED, "", "late")


def test_a_failed_call_with_details_is_the_named_error() -> None:
    status = to_status(MembershipChanged())
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    error = grpc.aio.AioRpcError(grpc.StatusCode.ABORTED, grpc.aio.Metadata(), trailing, status.message)

    assert isinstance(from_rpc_error(error), MembershipChanged)
