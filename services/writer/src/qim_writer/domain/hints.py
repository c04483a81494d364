"""What the low-latency lane tells the session service: runs of what was committed, merged while they wait. Pure.

A run is what was committed in one conversation at one version; of the sends at a version only the newest time counts. A
membership change is a run of its own: whom it concerns may be no member at its version, so that its time must not
become that of a later send. Sends to big groups are no runs: the projection does nothing for them (storage.md,
"Session").

Every run may be lost: the dispatch log brings everything. So what waits is bounded, and what does not fit is dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from qim_common.ids import ConversationId, TenantId, UserId

RUNS_WAITING: Final = 10_000
"""Runs that may wait; more are dropped."""

PEOPLE_WAITING: Final = 100_000
"""People concerned by the changes that wait, likewise; 16 bytes each."""


@dataclass(frozen=True, slots=True)
class HintRun:
    """A run as the wire's `ProjectRequest.Run`. `time_ms` is the newest commit time; `broadcast`: it reached all
    members at the version; `concerned`: the people whose stays a membership change began or ended."""

    tenant: TenantId
    conversation: ConversationId
    version: int
    time_ms: int
    broadcast: bool
    concerned: tuple[UserId, ...] = ()
    big: bool = False
    became_big: bool = False


class CommitHints(Protocol):
    """Hears of what was committed. Neither waits nor raises: the commit goes on whatever becomes of it."""

    def sent(self, tenant: TenantId, conversation: ConversationId, version: int, time_ms: int) -> None:
        """Messages were committed in a conversation that is not big. Times of a conversation come ascending."""
        ...

    def changed(self, run: HintRun) -> None:
        """A group was created or its members have changed."""
        ...


class HintQueue:
    """The runs that wait for the lane; `dropped` counts those that found no room."""

    def __init__(self, runs: int = RUNS_WAITING, people: int = PEOPLE_WAITING) -> None:
        self._runs = runs
        self._people_max = people
        self._people = 0
        self._sent: dict[tuple[TenantId, ConversationId, int], int] = {}
        self._changed: deque[HintRun] = deque()
        self.dropped = 0

    def __len__(self) -> int:
        """How many runs wait."""
        return len(self._sent) + len(self._changed)

    def sent(self, tenant: TenantId, conversation: ConversationId, version: int, time_ms: int) -> None:
        """See `CommitHints`."""
        key = (tenant, conversation, version)
        if key in self._sent or len(self) < self._runs:
            self._sent[key] = time_ms
        else:
            self.dropped += 1

    def changed(self, run: HintRun) -> None:
        """See `CommitHints`."""
        if len(self) >= self._runs or self._people + len(run.concerned) > self._people_max:
            self.dropped += 1
            return
        self._people += len(run.concerned)
        self._changed.append(run)

    def take(self, limit: int) -> list[HintRun]:
        """At most `limit` runs, the changes first, each kind in the order of its arrival; they wait no longer."""
        taken = [self._changed.popleft() for _ in range(min(limit, len(self._changed)))]
        self._people -= sum(len(run.concerned) for run in taken)
        for key in list(islice(self._sent, limit - len(taken))):
            tenant, conversation, version = key
            taken.append(HintRun(tenant, conversation, version, self._sent.pop(key), broadcast=True))
        return taken

    def clear(self) -> None:
        """Drops all that wait."""
        self.dropped += len(self)
        self._sent.clear()
        self._changed.clear()
        self._people = 0
