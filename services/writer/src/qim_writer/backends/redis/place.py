"""Where one conversation's keys live."""

from __future__ import annotations

import struct
from typing import Final

from qim_common.ids import ConversationId, TenantId
from qim_common.keys import SENDER_SEGMENT, ConversationKeys
from qim_common.topology import Topology

SCOPE: Final = struct.Struct(">Q16s")
"""A conversation as scripts and the members of a bucket's sets name it: tenant and id, 24 bytes."""


class Place:
    """Where one conversation lives; built once per conversation and kept.

    `segment` and `change_segment` are hints that scripts check. Sends and membership changes have one each: calls of
    the group commit that are on their way carry the hint of sends, so nobody else may move it.
    """

    __slots__ = (
        "bucket",
        "change_segment",
        "instance",
        "keys",
        "look_keys",
        "scope",
        "segment",
        "send_keys",
        "send_segment",
    )

    def __init__(self, tenant: TenantId, conversation: ConversationId, topology: Topology) -> None:
        self.bucket = topology.conversation_bucket(tenant, conversation)
        self.instance = topology.instance_of(self.bucket)
        self.keys = ConversationKeys(tenant, conversation, self.bucket)
        self.scope = SCOPE.pack(tenant, conversation)
        self.segment = 0
        self.change_segment = 0
        self.send_segment = -1
        self.send_keys: tuple[str, ...] = ()
        self.look_keys: tuple[str, ...] = ()

    def saw_head(self, head: int) -> None:
        """Take note of the newest seq; what the next message needs follows from it. For the group commit only."""
        self.segment = head // SENDER_SEGMENT

    def changes_from(self, head: int) -> None:
        """The same for the next membership change."""
        self.change_segment = head // SENDER_SEGMENT

    def keys_of_send(self) -> tuple[str, ...]:
        """The keys of a run of sends, in the order of `send.lua`."""
        if self.send_segment != self.segment:
            k, s = self.keys, self.segment
            self.send_segment = s
            self.send_keys = (k.grpmeta, k.grpcur, k.msgcseq, k.msgrec, k.msgsnd(s), k.msgsnd(s + 1), k.msgts)
        return self.send_keys

    def keys_of_look(self, *, archived: bool) -> tuple[str, ...]:
        """The keys of `conversation_facts.lua` with the record at the head, the archived one or the newest."""
        if not self.look_keys:
            k = self.keys
            self.look_keys = (k.grpmeta, k.grpcur, k.grpstays, k.msgcseq, k.msgrec)
            if archived:
                self.look_keys = (*self.look_keys, k.msgctl, k.grpchg)
        return self.look_keys
