"""Retention by age as operators see it."""

from __future__ import annotations

from dataclasses import dataclass

from qim_common.ids import ConversationId


@dataclass(frozen=True, slots=True)
class GroupRetention:
    """One group: the floor before and after, how many messages it passes, and partitions of the archive that go."""

    group: ConversationId
    retention_days: int
    floor_seq: int
    new_floor_seq: int
    message_count: int
    archive_partitions: int


@dataclass(frozen=True, slots=True)
class RetentionPage:
    """A page of a run; `next_token` is empty on the last one.

    Attributes:
        unavailable_buckets: commit buckets whose instance did not answer; their groups are left out.
        clock_ahead_seconds: above 0 the writer's clock was set forward, and no floor moves by age.
    """

    groups: tuple[GroupRetention, ...]
    next_token: str
    unavailable_buckets: int
    clock_ahead_seconds: int
