"""Recovering a commit instance from the archive, from the fence to the new log identity (docs/recovery.md).

Every step may be the last one of a run: the instance stays fenced, and the next run begins again. What was still only
in the instance's own logs is archived before anything is removed, and a run that finds that something was removed goes
on from there. What the archive has behind the ends of the recovered lines is deleted before they go on (line_end.py).
The new log identity is chosen once and kept with the fence, so that a repeated run is the same recovery.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from qim_common.positions import LOG_START, Position
from qim_common.recovery import Loss, RecoveryRefused, RecoveryReport
from qim_common.topology import Topology
from qim_writer.commands.archive.rounds import Archive
from qim_writer.commands.recover.errors import ArchiveDamaged, another_instance
from qim_writer.commands.recover.line_end import LineEnd, remove_left_behind
from qim_writer.commands.recover.lock import locked
from qim_writer.commands.recover.rebuild import Generation, Rebuild
from qim_writer.domain.answers_window import ENTRIES_MS, WINDOW_MS
from qim_writer.storage_archive import ArchivePosition
from qim_writer.storage_recovery import InstanceSurvey, RecoverableInstance

_PROGRESS_BUCKETS: Final = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Which instance: its position and address, the configured topology of all, and the installation's ack level."""

    position: int
    address: str
    topology: Topology
    ack_level: str

    @property
    def buckets(self) -> range:
        """Its commit buckets."""
        return self.topology.buckets_of(self.position)


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
            # Once more: the archivers are gone now, and have announced whatever they may still be writing.
            noted = await self._archive.positions.of(self._place.position)
            report = await self._rebuild(replace(report, drained=drained, log_id=log_id), survey, noted, loss)
            return replace(report, done=True, seconds=time.monotonic() - begun)

    async def _report(self, survey: InstanceSurvey, noted: dict[int, ArchivePosition]) -> RecoveryReport:
        place = self._place
        if survey.differences:
            raise another_instance(place.position, survey.differences)
        await self._refuse_another_topology(noted)
        conversations = messages = 0
        for bucket in place.buckets:
            async for page in self._archive.messages.heads(bucket):
                for one, _ in page:
                    if place.topology.conversation_bucket(one.tenant, one.id) != bucket:
                        raise RecoveryRefused(another_topology(f"bucket {bucket} has a conversation of another one"))
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

    async def _refuse_another_topology(self, noted: dict[int, ArchivePosition]) -> None:
        """Refuse where the archive was written with other instances than the configured ones: the buckets of one that
        serves would be rebuilt beside it. What the instances themselves say was compared before."""
        topology = self._place.topology
        strange = sorted(noted.keys() - set(self._place.buckets))
        if strange:
            place = f"instance {self._place.position} with bucket {strange[0]}"
            raise RecoveryRefused(another_topology(f"it knows {place}"))
        if await self._archive.positions.of(topology.count):
            raise RecoveryRefused(another_topology(f"it knows an instance {topology.count}"))

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
        announced_ms = max((one.position.ms for one in noted.values()), default=0)
        raised_ms = max(survey.now_ms, announced_ms + 1)
        raised = Generation(bytes.fromhex(log_id), raised_ms) if loss is Loss.ACCEPTED else None
        low = survey.now_ms - ENTRIES_MS
        rebuild = Rebuild(
            self._archive.messages,
            self._archive.group_log,
            self._instance,
            entries_from_ms=survey.now_ms - WINDOW_MS,
            raised=raised,
        )
        conversations = messages = 0
        damaged: list[str] = []
        former = _former(survey, noted, log_id)
        announced: dict[int, ArchivePosition] = {}
        for number, bucket in enumerate(self._place.buckets, 1):
            rebuilt = await rebuild.bucket(bucket)
            conversations += rebuilt.conversations
            messages += rebuilt.messages
            damaged += rebuilt.damaged
            lost = noted.get(bucket, ArchivePosition(log_id, LOG_START))
            base = Position(max(rebuilt.newest_ms + 1, lost.position.ms + 1, survey.now_ms), 1)
            await self._remove_left_behind(bucket, rebuilt.ends, base, lost.log_id)
            await self._instance.add_bucket(bucket, base, low)
            announced[bucket] = ArchivePosition(log_id, base, former)
            if number % _PROGRESS_BUCKETS == 0:
                self._tell(f"{number} of {len(self._place.buckets)} buckets, {conversations:,} conversations")
        if damaged and loss is not Loss.ACCEPTED:
            raise ArchiveDamaged("; ".join(damaged) + ". --accept-loss leaves them out")
        # Before anybody may use the instance: a fence that compares must find the new log's positions.
        await self._archive.positions.announce(self._place.position, announced)
        await self._instance.finish(log_id, former)
        self._tell("the fence is lifted")
        return replace(
            report,
            removed=removed,
            conversations=conversations,
            messages=messages,
            generation_raised=raised is not None,
            left_out=tuple(damaged),
        )

    async def _remove_left_behind(self, bucket: int, ends: Sequence[LineEnd], base: Position, log_id: str) -> None:
        """Delete what lost lines of a bucket left behind, all of it from before `base`.

        The base is announced first, in the name of the log that was lost: another run begins later than these
        deletions, whatever its clock says, and the lost instance is refused if it comes back."""
        if ends:
            announced = {bucket: ArchivePosition(log_id, base.before())}
            await self._archive.positions.announce(self._place.position, announced)
            await remove_left_behind(self._archive.messages, self._archive.group_log, ends, base.ms)


def _former(survey: InstanceSurvey, noted: dict[int, ArchivePosition], log_id: str) -> tuple[str, ...]:
    """All identities that the instance's logs ever had, the newest last: of an instance that lost its disk only the
    archive knows them."""
    known = [one for position in noted.values() for one in position.former]
    present = [survey.log_id, *(position.log_id for position in noted.values())]
    found = dict.fromkeys((*known, *survey.replaces, *present))
    return tuple(one for one in found if one and one != log_id)


def another_topology(found: str) -> str:
    """Why a recovery with this configuration is refused, in words."""
    return (
        f"the archive was written with other addresses or another number of buckets: {found}. Are the addresses, their "
        "order and QIM_COMMIT_BUCKETS those of the services?"
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
