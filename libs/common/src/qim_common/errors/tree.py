"""One exception per reason of contracts.md ("Errors"), grouped by the status that it is answered with."""

# ruff: noqa: N818 - the classes are named after the reasons

from collections.abc import Mapping
from datetime import timedelta

import grpc

from qim_common.errors.base import FieldViolation, QimError
from qim_common.errors.reasons import Reason


class InvalidArgument(QimError):
    """A field cannot be taken as it is; BadRequest names it."""

    reason = Reason.INVALID_ARGUMENT
    code = grpc.StatusCode.INVALID_ARGUMENT
    default_message = "the request cannot be taken; mend the fields that are named"

    def __init__(self, field: str, description: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(
            message=f"{field}: {description}",
            metadata=metadata,
            violations=(FieldViolation(field, description),),
        )


class MessageTooLarge(QimError):
    """A body above `QIM_MESSAGE_MAX_BYTES`."""

    reason = Reason.MESSAGE_TOO_LARGE
    code = grpc.StatusCode.INVALID_ARGUMENT
    default_message = "the body is larger than this installation takes; send it in parts or as a reference"


class TooManyItems(QimError):
    """More items than one call may carry."""

    reason = Reason.TOO_MANY_ITEMS
    code = grpc.StatusCode.INVALID_ARGUMENT
    default_message = "too many items in one call; split them over several calls"


class PageTokenInvalid(QimError):
    """A page or resume token that this installation did not issue for this caller and call, or cannot verify."""

    reason = Reason.PAGE_TOKEN_INVALID
    code = grpc.StatusCode.INVALID_ARGUMENT
    default_message = "the token was not issued for this call; start again without a token"


class DeadlineRequired(QimError):
    """A unary call without a deadline (contracts.md, "Identity")."""

    reason = Reason.DEADLINE_REQUIRED
    code = grpc.StatusCode.INVALID_ARGUMENT
    default_message = "unary calls need a deadline; set one, five seconds for example"


class PermissionDenied(QimError):
    """Not a member, never was one, or the group is unknown: the same words for all three, and no data."""

    reason = Reason.PERMISSION_DENIED
    code = grpc.StatusCode.PERMISSION_DENIED
    default_message = "no such conversation for this person, or not theirs to do; ask its owner"

    def __init__(self) -> None:
        super().__init__()


class RoleNotAllowed(QimError):
    """The peer's certificate does not entitle it to this call, or to the identity that it sent along."""

    reason = Reason.ROLE_NOT_ALLOWED
    code = grpc.StatusCode.PERMISSION_DENIED
    default_message = "this certificate's role may not make this call; use a certificate of a role that may"


class InternalIdentityRequired(QimError):
    """The call is for the admin service acting for a principal; never a fall-back to user semantics."""

    reason = Reason.INTERNAL_IDENTITY_REQUIRED
    code = grpc.StatusCode.PERMISSION_DENIED
    default_message = "this call needs an admin-service certificate and an operator or back end in qim-principal-bin"


class TenantNotAllowed(QimError):
    """The peer is not bound to this tenant."""

    reason = Reason.TENANT_NOT_ALLOWED
    code = grpc.StatusCode.PERMISSION_DENIED
    default_message = "this certificate is not bound to this tenant; add the tenant to its entry in the bindings file"


class GroupAlreadyExists(QimError):
    """CreateGroup of a group that exists; never adds a member."""

    reason = Reason.GROUP_ALREADY_EXISTS
    code = grpc.StatusCode.ALREADY_EXISTS
    default_message = "a group with this id exists; leave group_id empty or choose another, nobody was added"


class IdempotencyKeyReused(QimError):
    """The same id with other content."""

    reason = Reason.IDEMPOTENCY_KEY_REUSED
    code = grpc.StatusCode.ALREADY_EXISTS
    default_message = "this id was used with other content; give every new request an id of its own"


class MemberLimitExceeded(QimError):
    """The whole batch is refused, nobody is added."""

    reason = Reason.MEMBER_LIMIT_EXCEEDED
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_message = "the group's member limit would be exceeded, nobody was added; raise the limit or add fewer"
    precondition_subject = "group"


class OwnerCannotLeave(QimError):
    """The owner would leave others behind (design.md, "Decisions between the sources")."""

    reason = Reason.OWNER_CANNOT_LEAVE
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_message = "the owner cannot leave while others remain; transfer the ownership first"
    precondition_subject = "group"


class NewOwnerNotMember(QimError):
    """TransferOwnership, or a named owner, to somebody outside."""

    reason = Reason.NEW_OWNER_NOT_MEMBER
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_message = "the new owner is no member of the group; add the person first"
    precondition_subject = "group"


class GroupFrozen(QimError):
    """The group is frozen: sends, joins and end users' group changes are refused."""

    reason = Reason.GROUP_FROZEN
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_message = "the group is frozen; wait until an operator unfreezes it"
    precondition_subject = "group"


class RequestTooOld(QimError):
    """An id that may have been forgotten; never executed (contracts.md, "Idempotency")."""

    reason = Reason.REQUEST_TOO_OLD
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_message = "this id is older than the kept answers; read the present state, then send a new id"
    precondition_subject = "request"


class MembershipChanged(QimError):
    """The membership version differs from the expected one, or kept changing through three re-plans."""

    reason = Reason.MEMBERSHIP_CHANGED
    code = grpc.StatusCode.ABORTED
    default_message = "the group's members changed meanwhile; read the version again and retry"
    default_retry_after = timedelta(milliseconds=50)


class MembershipVersionExpired(QimError):
    """A membership version below the change log's low watermark."""

    reason = Reason.MEMBERSHIP_VERSION_EXPIRED
    code = grpc.StatusCode.OUT_OF_RANGE
    default_message = "this membership version is no longer kept; read the present members instead"


class ResyncRequired(QimError):
    """The caller's generation or cursor is of a line that no longer holds."""

    reason = Reason.RESYNC_REQUIRED
    code = grpc.StatusCode.OUT_OF_RANGE
    default_message = "what this cursor refers to was lost; drop local state of the conversation and read it anew"


class Overloaded(QimError):
    """A bound on work in progress was reached; nothing was done."""

    reason = Reason.OVERLOADED
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_message = "the service has as much work as it takes; retry later with the same id"
    default_retry_after = timedelta(milliseconds=200)


class ArchiveBacklogFull(QimError):
    """The outbox towards the archive is full (backend tiered)."""

    reason = Reason.ARCHIVE_BACKLOG_FULL
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_message = "the archive is behind and the outbox is full; retry later with the same id"
    default_retry_after = timedelta(seconds=5)


class InstanceFenced(QimError):
    """The instance went back in time and takes nothing before it is recovered (storage.md, "Fence")."""

    reason = Reason.INSTANCE_FENCED
    code = grpc.StatusCode.UNAVAILABLE
    default_message = "the store of this conversation is fenced; an operator has to recover it"


class AuditUnavailable(QimError):
    """An operator's change cannot be recorded, so it is not made."""

    reason = Reason.AUDIT_UNAVAILABLE
    code = grpc.StatusCode.UNAVAILABLE
    default_message = "the audit log cannot be written, nothing was changed; retry with the same id"


class BackendUnavailable(QimError):
    """Redis, Cassandra or another service does not answer; the call may have been executed."""

    reason = Reason.BACKEND_UNAVAILABLE
    code = grpc.StatusCode.UNAVAILABLE
    default_message = "a server behind this service does not answer; retry with the same id"


class UnsupportedByBackend(QimError):
    """The configured backend cannot do this at all (storage.md, "Backends")."""

    reason = Reason.UNSUPPORTED_BY_BACKEND
    code = grpc.StatusCode.UNIMPLEMENTED
    default_message = "the configured backend cannot do this; see QIM_BACKEND"


ERROR_CLASSES: Mapping[Reason, type[QimError]] = {
    Reason(cls.reason): cls
    for cls in (
        InvalidArgument,
        MessageTooLarge,
        TooManyItems,
        PageTokenInvalid,
        DeadlineRequired,
        PermissionDenied,
        RoleNotAllowed,
        InternalIdentityRequired,
        TenantNotAllowed,
        GroupAlreadyExists,
        IdempotencyKeyReused,
        MemberLimitExceeded,
        OwnerCannotLeave,
        NewOwnerNotMember,
        GroupFrozen,
        RequestTooOld,
        MembershipChanged,
        MembershipVersionExpired,
        ResyncRequired,
        Overloaded,
        ArchiveBacklogFull,
        InstanceFenced,
        AuditUnavailable,
        BackendUnavailable,
        UnsupportedByBackend,
    )
}
"""The class of each reason: what the client library raises for a reason that it reads from a status."""
