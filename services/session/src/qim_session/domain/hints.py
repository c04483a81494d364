"""What the writer's low-latency lane says about a conversation (storage.md, "Session": two lanes). Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from qim_common.ids import ConversationId, TenantId, UserId

HintKey = tuple[TenantId, ConversationId, int]
"""Tenant, conversation and membership version."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What was committed in one conversation at one version; it may be lost, repeated and late.

    Attributes:
        version: the membership version, from 1.
        time_ms: the newest commit time.
        broadcast: it reached all members at the version.
        concerned: the people whose stays a membership event began or ended, at most 1,000.
        big: the conversation is above `projection_fanout_max_members`.
        became_big: with this change.
    """

    tenant: TenantId
    conversation: ConversationId
    version: int
    time_ms: int
    broadcast: bool
    concerned: tuple[UserId, ...] = ()
    big: bool = False
    became_big: bool = False

    @property
    def reaches_all(self) -> bool:
        """Whether all members at the version are projected; a big group's messages move no list."""
        return self.became_big if self.big else self.broadcast

    @property
    def reaches_anyone(self) -> bool:
        """Whether there is anything to project."""
        return self.reaches_all or bool(self.concerned)


@dataclass(slots=True)
class HintQueue:
    """Hints that wait, bounded by their number; the newest message of a version stands for those before it."""

    most: int
    _waiting: OrderedDict[HintKey, list[Hint]] = field(default_factory=OrderedDict)
    _count: int = 0

    def put(self, hint: Hint) -> bool:
        """Let it wait; False when there is no room."""
        key = (hint.tenant, hint.conversation, hint.version)
        row = self._waiting.get(key, [])
        if row and not hint.concerned and not row[-1].concerned and row[-1].reaches_all == hint.reaches_all:
            row[-1] = replace(row[-1], time_ms=max(row[-1].time_ms, hint.time_ms))
            return True
        if self._count >= self.most:
            return False
        self._count += 1
        self._waiting.setdefault(key, []).append(hint)
        return True

    def take(self, most: int) -> list[list[Hint]]:
        """The oldest up to `most` versions' hints, those of one conversation together and in the order they came."""
        taken: dict[tuple[TenantId, ConversationId], list[Hint]] = {}
        for _ in range(min(most, len(self._waiting))):
            (tenant, conversation, _version), row = self._waiting.popitem(last=False)
            self._count -= len(row)
            taken.setdefault((tenant, conversation), []).extend(row)
        return list(taken.values())

    def __len__(self) -> int:
        return self._count
