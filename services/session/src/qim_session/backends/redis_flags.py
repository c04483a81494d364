"""What people set for their conversations, with the ids of the requests that did so."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from qim_common.errors import IdempotencyKeyReused, RequestTooOld
from qim_common.idempotency import IdempotencyKey
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_common.keys import PersonBucketKeys, unflushed, usig
from qim_common.redis import Argument, Instance, load_script, run
from qim_common.topology import Topology
from qim_session.backends.person_places import PersonPlaces
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import FlagsAnswer, FlagsChange
from qim_session.domain.signals import Signal, SignalKind
from qim_session.domain.written_behind import MarkKind, person_part

SET_FLAGS: Final = load_script("qim_session", "set_flags")
_HIDDEN: Final = 1
_MUTED: Final = 2


class FlagStatus(IntEnum):
    """The status codes of set_flags.lua."""

    OK = 0
    REUSED = 4
    TOO_OLD = 5


class RedisFlags:
    """The `FlagStore` of the session instances; `written_behind` as of `RedisPeople`."""

    def __init__(self, instances: Sequence[Instance], topology: Topology, *, written_behind: bool = False) -> None:
        self._places = PersonPlaces(instances, topology)
        self._written_behind = written_behind

    async def change(
        self, actor: Actor, conversation: ConversationId, change: FlagsChange, key: IdempotencyKey
    ) -> FlagsAnswer:
        """As `FlagStore.change`."""
        instance, keys = self._places.locate(actor.tenant, actor.user)
        bucket = PersonBucketKeys(keys.bucket)
        signal = Signal(
            SignalKind.FLAGS, actor.tenant, actor.user, actor.device, conversation, change.generation
        ).pack()[:-1]
        args: list[Argument] = [
            *(key.field, key.digest, key.time_ms, conversation),
            *(_wanted(change.hidden), _wanted(change.muted)),
            Cursor(change.generation, change.newest_seq).pack(),
            int(change.still_hidden),
            signal,
            person_part(MarkKind.FLAGS, actor.tenant, actor.user) + conversation if self._written_behind else b"",
        ]
        names = [keys.flags, usig(instance.position), bucket.meta, *bucket.idem, unflushed(instance.position)]
        status, flags = await run(instance, SET_FLAGS, names, args)
        if status == FlagStatus.REUSED:
            raise IdempotencyKeyReused
        if status == FlagStatus.TOO_OLD:
            raise RequestTooOld
        return FlagsAnswer(hidden=bool(flags & _HIDDEN), muted=bool(flags & _MUTED))


def _wanted(value: bool | None) -> str:
    return "" if value is None else str(int(value))
