"""The members at a version, derived from the present ones (design.md invariant 3). Pure.

The members at V never change once V exists: they are the present members, with the changes after V undone. A reader
pages through the present members; between two pages people may come and go, so each page is undone with the changes up
to the version at which that page was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from qim_common.ids import MembershipOp, UserId


@dataclass(frozen=True, slots=True)
class Change:
    """What one version changed; `users` ascending. `actor` is all zero for an operator's. `op` is None, and nobody is
    named, where all that told it was removed."""

    version: int
    op: MembershipOp | None
    seq: int
    time_ms: int
    actor: bytes
    users: tuple[UserId, ...]


class Undo:
    """Undoes changes page by page, the pages ascending. Entries are mailbox shard u16be and user, as in `grpmem`."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.seen = version
        self._first: dict[bytes, MembershipOp | None] = {}
        self._gone: list[bytes] = []
        self._new: list[bytes] = []

    def add(self, changes: Iterable[tuple[Change, Iterable[bytes]]]) -> None:
        """Take note of changes after `seen`, in order; each with the entries of its people. For each person the first
        change after the version decides."""
        for change, entries in changes:
            for entry in entries:
                if entry not in self._first:
                    self._first[entry] = change.op
                    if change.op is not MembershipOp.JOIN:
                        self._new.append(entry)
            self.seen = change.version

    def page(self, present: list[bytes], after: bytes, upto: bytes) -> list[bytes]:
        """The entries at the version in `(after, upto]`, ascending, given the entries present there at `seen`."""
        if self._new:
            self._gone += self._new
            self._gone.sort()
            self._new = []
        first, end = bisect_right(self._gone, after), bisect_right(self._gone, upto)
        gone = self._gone[first:end]
        del self._gone[:end]  # no later page asks for them, and each page would search them again
        kept = [entry for entry in present if self._first.get(entry) is not MembershipOp.JOIN]
        return sorted({*kept, *gone}) if gone else kept
