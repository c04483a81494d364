"""What a replica holds for how long (storage.md, "Session": replicas share partitions by leases). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEASE_MS: Final = 6_000
"""How long a replica is taken for alive after a heartbeat."""

RENEW_SECONDS: Final = 2.0
"""Between two heartbeats. A dead replica's partitions have moved after a lease's life and one of these."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """The partitions that are held, until the moment at which the store may have given them to somebody else.

    That is counted from before the heartbeat was sent, by the process's own clock, and so ends before the store's.
    """

    partitions: frozenset[int] = frozenset()
    until: float = 0.0

    def at(self, now: float) -> frozenset[int]:
        """What is held at this moment: everything, or nothing any more."""
        return self.partitions if now < self.until else frozenset()


def renewed(partitions: frozenset[int], sent_at: float) -> Tenure:
    """What a heartbeat that was sent then has brought; times in seconds of the process's clock."""
    return Tenure(partitions, sent_at + LEASE_MS / 1000)
