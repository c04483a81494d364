"""What a person's list, its rebuild and the flags in it need of the session instances, as Protocols.

Everything here can raise `BackendUnavailable`, as in `qim_session.storage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qim_common.idempotency import IdempotencyKey
from qim_common.identity import Actor
from qim_common.ids import ConversationId, TenantId, UserId
from qim_session.domain.flags import FlagsAnswer, FlagsChange
from qim_session.domain.list_pages import ListPosition


@dataclass(frozen=True, slots=True)
class ListRead:
    """A stretch of a projected list.

    Attributes:
        positions: in the order that was asked for, without those of `big`.
        big: all conversations of the person, wherever they stand, that were big while the person was in them; their
            place is the last activity of their state.
        complete: the person was rebuilt in this epoch; else `Rebuild.ensure` comes first, and the read again.
    """

    positions: list[ListPosition]
    big: frozenset[ConversationId]
    complete: bool = True


class ConversationLists(Protocol):
    """The projected lists."""

    async def page(self, tenant: TenantId, user: UserId, *, below: ListPosition | None, limit: int) -> ListRead:
        """The newest `limit` places strictly below one (None: of all), newest first, as of one moment."""
        ...

    async def risen(
        self, tenant: TenantId, user: UserId, *, above: ListPosition, after: ConversationId, limit: int
    ) -> ListRead:
        """The `limit` conversations of the smallest ids behind `after` whose place is strictly above one, by id."""
        ...

    async def oldest_first(self, tenant: TenantId, user: UserId) -> list[ConversationId]:
        """All conversations of a person by their projected place, the longest inactive first."""
        ...


class ListRestore(Protocol):
    """The projected lists as a rebuild writes them."""

    async def epoch(self, tenant: TenantId, user: UserId) -> tuple[int, int | None]:
        """The epoch of the person's instance (0: it was never raised), and the person's mark; None without one."""
        ...

    async def restore(
        self, tenant: TenantId, user: UserId, places: Sequence[ListPosition], big: Sequence[ConversationId]
    ) -> None:
        """Bring conversations at least to these places, and note those that are big."""
        ...

    async def mark(self, tenant: TenantId, user: UserId, epoch: int) -> None:
        """The person's list is complete as of this epoch."""
        ...


class FlagStore(Protocol):
    """What people have set for their conversations."""

    async def change(
        self, actor: Actor, conversation: ConversationId, change: FlagsChange, key: IdempotencyKey
    ) -> FlagsAnswer:
        """Set what `change` names and tell the person's other devices; a known `key` gets its first answer.

        Raises IdempotencyKeyReused, RequestTooOld.
        """
        ...
