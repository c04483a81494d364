"""Lifting the fence of an instance without an archive: a promoted replica, at ack level log (docs/recovery.md).

There is nothing to rebuild from: what the instance holds is what there is. The generation of each conversation rises
where it stands, and the log gets a new identity, because consumers may be further than it is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from qim_common.recovery import Loss, RecoveryRefused, RecoveryReport
from qim_writer.commands.recover.errors import another_instance
from qim_writer.commands.recover.lock import locked
from qim_writer.storage_recovery import RecoverableInstance


class Acceptance:
    """One run."""

    def __init__(
        self, position: int, address: str, instance: RecoverableInstance, *, progress: Callable[[str], None]
    ) -> None:
        self._position = position
        self._address = address
        self._instance = instance
        self._tell = progress

    async def __call__(self, loss: Loss, ack_level: str, *, dry_run: bool) -> RecoveryReport:
        """Lift the fence. Raises RecoveryRefused, BackendUnavailable."""
        begun = time.monotonic()
        async with locked(self._instance):
            survey = await self._instance.survey()
            if not survey.known:
                raise RecoveryRefused(
                    f"instance {self._position} has no data of this installation, and there is no archive: bring its "
                    "data back from a backup or a replica. Is QIM_BACKEND that of the services?"
                )
            if survey.differences:
                raise another_instance(self._position, survey.differences)
            if not survey.fenced:
                raise RecoveryRefused(f"instance {self._position} is not fenced: there is nothing to recover")
            log_id = survey.recovery or secrets.token_hex(16)
            report = RecoveryReport(
                instance=self._position,
                address=self._address,
                why=survey.fenced,
                ack_level=ack_level,
                archived_conversations=0,
                archived_messages=0,
                waiting=0,
                generation_raised=loss is Loss.ACCEPTED and not dry_run,
                log_id="" if dry_run else log_id,
            )
            if dry_run:
                return report
            if loss is not Loss.ACCEPTED:
                raise RecoveryRefused(
                    "without an archive nobody knows what the instance lacks: say --accept-loss, and readers of what "
                    "may be lost are told to resynchronise"
                )
            await self._instance.begin(log_id, survey.fenced)
            await self._instance.disconnect_users()
            conversations = await self._instance.raise_generations(log_id)
            self._tell(f"the generations of {conversations:,} conversations were raised")
            await self._instance.finish(log_id, [*survey.replaces, survey.log_id])
            return RecoveryReport(
                instance=report.instance,
                address=report.address,
                why=report.why,
                ack_level=ack_level,
                archived_conversations=0,
                archived_messages=0,
                waiting=0,
                done=True,
                conversations=conversations,
                generation_raised=True,
                log_id=log_id,
                seconds=time.monotonic() - begun,
            )
