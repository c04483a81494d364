"""Names that stand for ids on a developer's machine: `ana` instead of a UUID. Pure.

An id is derived from its name, so that every tool knows the same person under the same name without asking anybody. A
real installation has no names: its ids come from the back end that uses qim.
"""

from __future__ import annotations

import unicodedata
import uuid
from enum import StrEnum

from blake3 import blake3

from qim_common.errors import InvalidArgument
from qim_common.ids import (
    ID_BYTES,
    ConversationId,
    DeviceId,
    TenantId,
    UserId,
    direct_conversation_id,
    group_conversation_id,
    parse_conversation,
    parse_group,
    parse_user,
)

MAX_NAME_CHARACTERS = 64
DIRECT_PREFIX = "@"
"""`@ben` is the direct conversation with ben."""


class NameKind(StrEnum):
    """What a name stands for; the same name as a person and as a group gives different ids."""

    USER = "user"
    GROUP = "group"
    DEVICE = "device"


def parse_name(text: str, field: str) -> str:
    """`text` as a name: composed Unicode without spaces around it.

    Raises InvalidArgument naming `field` when it is empty, longer than 64 characters, has characters that cannot be
    printed, or begins with `@` or `-`, which mean something else on a command line.
    """
    name = unicodedata.normalize("NFC", text.strip())
    if not name:
        raise InvalidArgument(field, "a name must not be empty")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidArgument(field, f"a name has at most {MAX_NAME_CHARACTERS} characters")
    if not name.isprintable():
        raise InvalidArgument(field, "a name has printable characters only")
    if name.startswith((DIRECT_PREFIX, "-")):
        raise InvalidArgument(field, f"a name does not begin with {name[0]!r}")
    return name


def derived_id(kind: NameKind, name: str) -> bytes:
    """The 16 bytes that `name` stands for; upper and lower case are the same name."""
    digest = blake3(f"qim.dev-name.v1\0{kind}\0{name.casefold()}".encode()).digest(ID_BYTES)
    return group_conversation_id(digest) if kind is NameKind.GROUP else digest


def user_id(text: str, field: str = "user") -> UserId:
    """The person that a developer typed: a UUID as it is, else a name. Raises InvalidArgument naming `field`."""
    raw = as_uuid(text)
    return parse_user(raw, field) if raw else UserId(derived_id(NameKind.USER, parse_name(text, field)))


def device_id(text: str, field: str = "device") -> DeviceId:
    """The device that a developer typed: a UUID as it is, else a name. Raises InvalidArgument naming `field`."""
    raw = as_uuid(text)
    return DeviceId(parse_user(raw, field) if raw else derived_id(NameKind.DEVICE, parse_name(text, field)))


def group_id(text: str, field: str = "group") -> ConversationId:
    """The group that a developer typed: a UUID of a group, else a name. Raises InvalidArgument naming `field`."""
    raw = as_uuid(text)
    return parse_group(raw, field) if raw else ConversationId(derived_id(NameKind.GROUP, parse_name(text, field)))


def conversation_id(text: str, tenant: TenantId, me: UserId, field: str = "conversation") -> ConversationId:
    """The conversation that a developer typed: `@PERSON` with that person, a UUID as it is, else a group's name.

    Raises InvalidArgument naming `field`.
    """
    if text.startswith(DIRECT_PREFIX):
        return direct_conversation_id(tenant, me, user_id(text[1:], field))
    raw = as_uuid(text)
    return parse_conversation(raw, field) if raw else group_id(text, field)


def as_uuid(text: str) -> bytes | None:
    """The 16 bytes of a UUID in its usual form with hyphens; None when `text` is no such thing."""
    if text.count("-") != 4:
        return None
    try:
        return uuid.UUID(text.strip()).bytes
    except ValueError:
        return None
