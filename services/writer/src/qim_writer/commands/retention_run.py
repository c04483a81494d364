"""RunRetention: what the periodic round of retention by age would do to a tenant's groups, told or done at once.

The groups are looked at in the order of commit bucket and id. A page ends after so many groups, or when it took long,
and its token says where the next one goes on; who asks again without a token begins anew, without harm.
"""

from __future__ import annotations

import logging
import struct
import time
from dataclasses import dataclass
from typing import Final

from qim_common.errors import BackendUnavailable, InstanceFenced
from qim_common.identity import Principal
from qim_common.ids import TenantId
from qim_common.tokens import TokenSigner
from qim_writer.commands.callers import caller_of_principal
from qim_writer.commands.trimming import Retention
from qim_writer.domain.seq_buckets import whole_buckets
from qim_writer.storage import Conversation, GroupStateStore
from qim_writer.storage_archive import ArchiveRemovals

_log = logging.getLogger(__name__)

RUN_RETENTION: Final = "RunRetention"
GROUPS_MAX: Final = 200
"""Of one page."""

PAGE_SECONDS: Final = 2.0
"""After so long a page ends, well within the deadline of a caller with the usual one."""

_PLACE: Final = struct.Struct(">H16s")
"""Commit bucket, and the group after which it goes on; zeros: from its start."""

_BUCKET_START: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class GroupRetention:
    """One group: the floor before and after, and what lies between, or still lies below, in the archive."""

    group: Conversation
    retention_days: int
    floor: int
    new_floor: int
    archive_buckets: int

    @property
    def messages(self) -> int:
        """How many seqs the floor passes."""
        return self.new_floor - self.floor


@dataclass(frozen=True, slots=True)
class RetentionPage:
    """A page; `next_token` is empty on the last one. `unavailable` buckets were left out; `clock_ahead` as
    `Retention.clock_ahead`, seconds: with it no floor moves."""

    groups: tuple[GroupRetention, ...]
    next_token: str
    unavailable: int
    clock_ahead: float


class RetentionRuns:
    """Runs of retention by age that operators ask for. `removals`: None where there is no archive."""

    def __init__(
        self,
        states: GroupStateStore,
        retention: Retention,
        removals: ArchiveRemovals | None,
        tokens: TokenSigner,
        buckets: int,
    ) -> None:
        self._states = states
        self._retention = retention
        self._removals = removals
        self._tokens = tokens
        self._buckets = buckets

    async def page(self, principal: Principal, token: str, *, dry_run: bool) -> RetentionPage:
        """RunRetention. Raises PageTokenInvalid. What does not answer is left out and counted."""
        caller = caller_of_principal(principal).name
        # A token of a dry run would let somebody begin a run in the middle.
        method = RUN_RETENTION + (" dry" if dry_run else "")
        bucket, after = 0, _BUCKET_START
        if token:
            bucket, after = _PLACE.unpack(self._tokens.open(method, principal.tenant, caller, b"", token))
        ahead = self._retention.clock_ahead()
        end = time.monotonic() + PAGE_SECONDS
        groups: list[GroupRetention] = []
        unavailable = 0
        next_token = ""
        while bucket < self._buckets:
            try:
                last = await self._bucket(principal.tenant, bucket, after, groups, end, dry_run=dry_run, held=ahead > 0)
            except (BackendUnavailable, InstanceFenced) as error:
                _log.warning("retention leaves out bucket %d: %s", bucket, error)
                unavailable += 1
                last = None
            bucket, after = (bucket + 1, _BUCKET_START) if last is None else (bucket, last)
            if bucket < self._buckets and (len(groups) >= GROUPS_MAX or time.monotonic() > end):
                next_token = self._tokens.issue(method, principal.tenant, caller, b"", _PLACE.pack(bucket, after))
                break
        return RetentionPage(tuple(groups), next_token, unavailable, ahead)

    async def _bucket(
        self,
        tenant: TenantId,
        bucket: int,
        after: bytes,
        groups: list[GroupRetention],
        end: float,
        *,
        dry_run: bool,
        held: bool,
    ) -> bytes | None:
        """The groups of a bucket after one of them; the last one that there was room for, None where that was all."""
        due = sorted(
            group for group in await self._states.retained_groups(bucket) if group.tenant == tenant and group.id > after
        )
        for group in due:
            if len(groups) >= GROUPS_MAX or time.monotonic() > end:
                return after
            found = await self._group(group, dry_run=dry_run, held=held)
            if found is not None:
                groups.append(found)
            after = group.id
        return None

    async def _group(self, group: Conversation, *, dry_run: bool, held: bool) -> GroupRetention | None:
        """None where the group has lost its retention meanwhile. `held`: no floor moves now."""
        cut = await self._retention.cut(group)
        if cut is None:
            return None
        moves = cut.seq > cut.floor and not held
        if moves and not dry_run:
            # Where its settings have just changed, nothing moves: the next round sees them.
            moves = await self._retention.move(group, cut)
        new_floor = cut.seq if moves else cut.floor
        left = 0
        if self._removals is not None:
            left = max(whole_buckets(new_floor) - (await self._removals.removed(group)).gone, 0)
        return GroupRetention(group, cut.policy.settings.retention_days, cut.floor, new_floor, left)
