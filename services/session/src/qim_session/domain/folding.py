"""What a stretch of the dispatch log means for conversation lists (storage.md, "Session"). Pure.

Within a stretch, all ordinary messages of a conversation at one membership version reach the same people, and only
the newest of them matters to a list. So each conversation becomes a short row of steps, whatever it was that was
written.

The messages of big groups move no list: a list asks for their places (storage.md, "Session": `bigconvs`). Only who
comes into one, or goes, is projected, and everybody at the version with which it became big.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from qim_common.ids import ConversationId, TenantId
from qim_common.positions import Position
from qim_common.records import (
    Audience,
    Block,
    BlockFlags,
    DispatchItem,
    MessageBlock,
    RecordType,
    StateChange,
    unpack_blocks,
)
from qim_session.domain.membership import MembershipChange, read_control_body


@dataclass(frozen=True, slots=True)
class DispatchEntry:
    """One entry of a dispatch log; the milliseconds of its position are the commit time of everything in it."""

    position: Position
    data: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """Messages that reach the same people at the same version; the newest of them counts.

    Attributes:
        version: the membership version; of a control message the one that it makes.
        time_ms: the newest commit time.
        seq: the newest message's; 0 for the creation, which is no message.
        broadcast: it is projected for all members at `version`.
        change: the membership event, which also reaches the people it names.
        opaque: it is a membership event whose body was too large for the log, so that its people are not known here.
        big: the conversation is big from now on for whom this reaches.
    """

    version: int
    time_ms: int
    seq: int
    broadcast: bool
    change: MembershipChange | None = None
    opaque: bool = False
    big: bool = False

    @property
    def plain(self) -> bool:
        """Only ordinary messages, so that the next ordinary one at this version can stand for them."""
        return self.broadcast and self.change is None and not self.opaque and not self.big


@dataclass(frozen=True, slots=True)
class ConversationRun:
    """What happened in one conversation, in commit order."""

    tenant: TenantId
    conversation: ConversationId
    steps: tuple[Step, ...]


def fold(entries: Iterable[DispatchEntry]) -> list[ConversationRun]:
    """The runs of a stretch of one partition, in the order of each conversation's first appearance.

    Raises ValueError or struct.error for an entry that cannot be read.
    """
    steps: dict[tuple[TenantId, ConversationId], list[Step]] = {}
    for entry in entries:
        for block in unpack_blocks(entry.data):
            row = steps.setdefault((block.tenant, block.conversation), [])
            for step in _steps(block, entry.position.ms):
                if row and row[-1].plain and step.plain and row[-1].version == step.version:
                    row[-1] = step
                else:
                    row.append(step)
    return [ConversationRun(tenant, conversation, tuple(row)) for (tenant, conversation), row in steps.items() if row]


def _steps(block: Block, time_ms: int) -> Iterable[Step]:
    big = BlockFlags.BIG in block.flags
    if isinstance(block, MessageBlock):
        steps = [_step(block, item, time_ms) for item in block.items]
        return filter(None, map(partial(_of_a_big_group, block.flags), steps)) if big else steps
    if block.change is StateChange.CREATED:
        return [Step(block.version, time_ms, seq=0, broadcast=True, big=big)]
    # Other state entries reach no mailbox and move no conversation in a list.
    return []


def _of_a_big_group(flags: BlockFlags, step: Step) -> Step | None:
    began = BlockFlags.BIG_BEGAN in flags
    if step.change is None and not step.opaque and not began:
        return None
    return replace(step, broadcast=began, big=True)


def _step(block: MessageBlock, item: DispatchItem, time_ms: int) -> Step:
    broadcast = item.audience is Audience.BROADCAST
    if item.type is RecordType.ORDINARY:
        return Step(block.version, time_ms, item.seq, broadcast)
    if item.tail is None:
        return Step(block.version, time_ms, item.seq, broadcast, opaque=True)
    change = read_control_body(block.version, item.seq, item.tail.body)
    return Step(block.version, time_ms, item.seq, broadcast, change)
