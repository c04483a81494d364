"""A person's device: it pulls its mailbox, acknowledges, marks as read, and notes what it was given."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.model.consumers.replicas import Replica
from tests.model.consumers.written import Writer

from qim_common.errors import BackendUnavailable
from qim_common.identity import Actor
from qim_common.ids import ConversationId
from qim_session.commands.mailbox import Acknowledgement
from qim_session.domain.cursors import Cursor
from qim_session.storage.conversations import Withheld


@dataclass
class Device:
    """`got`: what has arrived, by conversation; `acknowledged`: what a replica has confirmed; breaches in `faults`."""

    actor: Actor
    writer: Writer
    faults: list[str]
    got: dict[ConversationId, int] = field(default_factory=dict)
    acknowledged: dict[ConversationId, int] = field(default_factory=dict)
    read: dict[ConversationId, int] = field(default_factory=dict)
    busy: bool = False

    async def pull(self, replica: Replica, limit: int) -> bool | None:
        """One pull that acknowledges what came before it; whether something came, None where it failed."""
        acks = [Acknowledgement(conversation, Cursor(1, seq)) for conversation, seq in self.got.items()]
        try:
            pulled = await replica.pull(self.actor, acknowledged=acks, limit=limit)
        except BackendUnavailable:
            return None
        self.acknowledged.update({ack.conversation: ack.cursor.seq for ack in acks})
        for entry in pulled.entries:
            if isinstance(entry.content, Withheld):
                self.faults.append(f"{entry.content} instead of a message")
            else:
                self._receive(entry.conversation, struct.unpack(">Q", entry.content)[0])
        return bool(pulled.entries)

    async def mark_read(self, replica: Replica, conversation: ConversationId, seq: int) -> None:
        """Read up to `seq`; `read` notes what a replica has confirmed."""
        try:
            mark = await replica.mark_read(self.actor, conversation=conversation, seq=seq)
        except BackendUnavailable:
            return
        self.read[conversation] = max(mark.read_seq, self.read.get(conversation, 0))

    async def compare(self, replica: Replica) -> None:
        """Everything that was delivered has arrived, and what was read stays read."""
        expected = {conversation: seqs[-1] for conversation, seqs in self.writer.seqs(self.actor.user).items()}
        if self.got != expected:
            self.faults.append(f"the mailbox of {self.actor.user.hex()}: {self.got} instead of {expected}")
        stored = await replica.people.read(self.actor.tenant, self.actor.user, list(self.read))
        if any(stored[conversation].seq < seq for conversation, seq in self.read.items()):
            self.faults.append(f"{self.actor.user.hex()} has read up to {self.read}, stored is {stored}")

    def _receive(self, conversation: ConversationId, seq: int) -> None:
        """Each conversation's messages come in order, without a hole, and none again that was acknowledged."""
        delivered = self.writer.seqs(self.actor.user).get(conversation, [])
        known = self.got.get(conversation, 0)
        where = f"{self.actor.user.hex()} in {conversation.hex()}"
        if seq not in delivered:
            self.faults.append(f"{where} got seq {seq}, which never was for them")
        elif seq <= self.acknowledged.get(conversation, 0):
            self.faults.append(f"{where} got seq {seq} again after its acknowledgement")
        elif any(known < one < seq for one in delivered):
            self.faults.append(f"{where} got seq {seq} right after {known} of {delivered}")
        self.got[conversation] = max(seq, known)
