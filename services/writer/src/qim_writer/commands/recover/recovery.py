"""Recovering a commit instance from the archive, from the fence to the new log identity (docs/recovery.md).

Every step may be the last one of a run: the instance stays fenced, and the next run begins again. What was still only
in the instance's own logs is archived before anything is removed, and a run that finds that something was removed goes
on from there. The new log identity is chosen once and kept with the fence, so that a repeated run is the same recovery.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from qim_common.positions import Position
from qim_common.recovery import Loss, RecoveryRefused, RecoveryReport
from qim_writer.commands.archive.rounds import Archive
from qim_writer.commands.recover.lock import locked
from qim_writer.commands.recover.rebuild import Generation, Rebuild
from qim_writer.domain.answers_window import ENTRIES_MS, WINDOW_MS
from qim_writer.storage_archive import ArchivePosition
from qim_writer.storage_recovery import InstanceSurvey, RecoverableInstance

_PROGRESS_BUCKETS: Final = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Which instance: its position and address, its commit buckets, and the installation's ack level."""

    position: int
    address: str
    buckets: Sequence[int]
    ack_level: str


class Recovery:
    """One run.

    Args:
        drain: archives what the instance's logs hold after what is archived, up to their ends; how many messages and
            state entries, and by commit bucket why it could not be done.
        progress: told in words how far it is.
    """

    def __init__(
        self,
        place: Place,
        instance: RecoverableInstance,
        archive: Archive,
        *,
        drain: Callable[[], Awaitable[tuple[int, dict[int, str]]]],
        progress: Callable[[str], None],
    ) -> None:
        self._place = place
        self._instance = instance
        self._archive = archive
        self._drain = drain
        self._tell = progress

    async def __call__(self, loss: Loss, *, dry_run: bool) -> RecoveryReport:
        """Recover. Raises RecoveryRefused, ArchiveDamaged, BackendUnavailable."""
        begun = time.monotonic()
        async with locked(self._instance):
            survey = await self._instance.survey()
            noted = await self._archive.positions.of(self._place.position)
            report = await self._report(survey, noted)
            if dry_run:
                return report
            _refuse_loss(loss, self._place.ack_level)
            log_id = survey.recovery or secrets.token_hex(16)
            await self._close(survey, log_id)
            drained = 0
            if survey.known and not survey.rebuilding:
                self._tell(f"archiving {survey.waiting:,} messages and state entries that only the instance has")
                drained, failed = await self._drain()
                _refuse_failed(failed, loss)
            report = await self._rebuild(replace(report, drained=drained, log_id=log_id), survey, noted, loss)
            return replace(report, done=True, seconds=time.monotonic() - begun)

    async def _report(self, survey: InstanceSurvey, noted: dict[int, ArchivePosition]) -> RecoveryReport:
        place = self._place
        if survey.differences:
            raise RecoveryRefused(f"instance {place.position} is another one: " + "; ".join(survey.differences))
        conversations = messages = 0
        for bucket in place.buckets:
            async for page in self._archive.messages.heads(bucket):
                conversations += len(page)
                messages += sum(head.seq for _, head in page)
        why = survey.fenced
        if survey.recovery:
            why = "a recovery of it was not finished"
        elif not survey.known:
            why = "it has no fingerprint: it is a new server, or it has lost its data"
            if not noted and not conversations:
                raise RecoveryRefused(
                    f"neither instance {place.position} nor the archive knows this installation: there is nothing to "
                    "recover, and the services begin by themselves. Are QIM_INSTALLATION_ID and the keyspace right?"
                )
        if not why:
            raise RecoveryRefused(f"instance {place.position} is not fenced: there is nothing to recover")
        return RecoveryReport(
            instance=place.position,
            address=place.address,
            why=why,
            ack_level=place.ack_level,
            archived_conversations=conversations,
            archived_messages=messages,
            waiting=survey.waiting,
        )

    async def _close(self, survey: InstanceSurvey, log_id: str) -> None:
        """Fence the instance, and end the connections that were made before it was fenced: nobody is allowed to use it,
        so they are of processes that hang, or are just finding out."""
        await self._instance.begin(log_id, survey.fenced or "it is being recovered")
        await self._instance.disconnect_users()

    async def _rebuild(
        self, report: RecoveryReport, survey: InstanceSurvey, noted: dict[int, ArchivePosition], loss: Loss
    ) -> RecoveryReport:
        log_id = report.log_id
        removed = await self._instance.wipe()
        self._tell(f"removed {removed:,} keys")
        raised = Generation(bytes.fromhex(log_id), survey.now_ms) if loss is Loss.ACCEPTED else None
        low = survey.now_ms - ENTRIES_MS
        rebuild = Rebuild(
            self._archive.messages,
            self._archive.group_log,
            self._instance,
            entries_from_ms=survey.now_ms - WINDOW_MS,
            raised=raised,
        )
        conversations = messages = 0
        announced: dict[int, ArchivePosition] = {}
        for number, bucket in enumerate(self._place.buckets, 1):
            rebuilt = await rebuild.bucket(bucket)
            conversations += rebuilt.conversations
            messages += rebuilt.messages
            seen = noted[bucket].position.ms + 1 if bucket in noted else 0
            base = Position(max(rebuilt.newest_ms, seen, survey.now_ms), 1)
            await self._instance.add_bucket(bucket, base, low)
            announced[bucket] = ArchivePosition(log_id, base)
            if number % _PROGRESS_BUCKETS == 0:
                self._tell(f"{number} of {len(self._place.buckets)} buckets, {conversations:,} conversations")
        # Before anybody may use the instance: a fence that compares must find the new log's positions.
        await self._archive.positions.announce(self._place.position, announced)
        former = dict.fromkeys((*survey.replaces, survey.log_id, *(one.log_id for one in noted.values())))
        await self._instance.finish(log_id, [one for one in former if one and one != log_id])
        self._tell("the fence is lifted")
        return replace(
            report,
            removed=removed,
            conversations=conversations,
            messages=messages,
            generation_raised=raised is not None,
        )


def _refuse_failed(failed: dict[int, str], loss: Loss) -> None:
    if not failed or loss is Loss.ACCEPTED:
        return
    reasons = "; ".join(f"bucket {bucket}: {why}" for bucket, why in sorted(failed.items()))
    raise RecoveryRefused(f"not all that only the instance has can be archived ({reasons}): --accept-loss gives it up")


def _refuse_loss(loss: Loss, ack_level: str) -> None:
    if ack_level == "archived" or loss is not Loss.UNDECIDED:
        return
    raise RecoveryRefused(
        f"at ack_level {ack_level} something acknowledged may not be in the archive. Say --archive-complete where the "
        "archiver had no lag when the instance was lost, else --accept-loss: readers are then told to resynchronise"
    )
