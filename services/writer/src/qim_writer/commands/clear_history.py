"""ClearHistory: a person's own clear point, on all of their devices."""

from __future__ import annotations

import struct

from qim_common.errors import InvalidArgument, PermissionDenied
from qim_common.identity import Actor
from qim_common.ids import parse_conversation, parse_id
from qim_writer.commands.callers import caller_of_actor
from qim_writer.commands.history import SEQ_MAX, readable
from qim_writer.storage import Conversation, GroupStateStore, MembershipStore


class OwnClear:
    """Clears what a person sees, for that person only."""

    def __init__(self, membership: MembershipStore, states: GroupStateStore) -> None:
        self._membership = membership
        self._states = states

    async def __call__(self, actor: Actor, request_id: bytes, conversation_id: bytes, upto: int) -> int:
        """The clear point afterwards; it only moves up, at most to the person's upper bound. `upto` 0: everything.

        Raises InvalidArgument, PermissionDenied, IdempotencyKeyReused, RequestTooOld."""
        parse_id(request_id, "request_id")
        conversation = Conversation(actor.tenant, parse_conversation(conversation_id))
        if upto > SEQ_MAX:
            raise InvalidArgument("up_to_seq", "is no seq")
        key = caller_of_actor(actor).key(conversation.id, request_id, b"clear_history", struct.pack(">Q", upto))
        stored = await self._states.stored_answer(conversation, key)
        if stored is not None:
            return self._states.clear_point(stored)
        try:
            await readable(self._membership, actor, conversation)
        except PermissionDenied:
            # The same request may have been carried out since the look-up, and a removal after it.
            stored = await self._states.stored_answer(conversation, key)
            if stored is None:
                raise
            return self._states.clear_point(stored)
        return await self._states.clear_own(conversation, actor.user, upto, key)
