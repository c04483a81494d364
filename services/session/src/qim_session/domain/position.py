"""Where a consumer stands in a dispatch log, and where it may start (storage.md, "Session", checkpoints). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qim_common.positions import LOG_START, Position


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Up to where one partition's effects are in one session instance, and in which log's count."""

    position: Position
    log_id: str

    @classmethod
    def parse(cls, stored: bytes) -> Checkpoint:
        """Read what `encode` wrote. Raises ValueError for anything else."""
        position, at, log_id = stored.decode("ascii").partition("@")
        if not at or not log_id:
            raise ValueError(f"{stored!r} is no checkpoint")
        return cls(Position.parse(position), log_id)

    def encode(self) -> bytes:
        """The stored form, `ms-seq@log_id`; equal checkpoints have equal forms, which compare-and-set relies on."""
        return f"{self.position}@{self.log_id}".encode("ascii")


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What a dispatch log holds now.

    Attributes:
        first: its oldest entry; None while it is empty.
        last: the newest id that it ever gave out (`LOG_START`: none yet), its high watermark.
        trimmed: entries have been removed from its beginning.
        log_id: the identity of the log.
        replaces: its former identities: recoveries from the archive began the log anew (storage.md, "Fence").
        open_end: entries may be there that consumers do not get yet, because the archive does not hold them; they
            follow this position. None: everything up to `last` is delivered.
    """

    first: Position | None
    last: Position
    trimmed: bool
    log_id: str
    replaces: tuple[str, ...] = ()
    open_end: Position | None = None

    @property
    def delivered(self) -> Position:
        """Up to where consumers get the log now."""
        return self.last if self.open_end is None else self.open_end


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on after `position`; nothing is missing."""

    position: Position


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries after `missing_after` are gone; go on after `position`, just below the low watermark."""

    position: Position
    missing_after: Position


@dataclass(frozen=True, slots=True)
class Refuse:
    """The checkpoint and the log do not belong together; `why` says how."""

    why: str


def decide_start(checkpoint: Checkpoint | None, log: LogBounds) -> Continue | Gap | Refuse:
    """Where a consumer starts in a log (storage.md, "Session": the start-up table).

    A log that was trimmed exactly up to the checkpoint cannot be told from one that lost an entry, and counts as a gap.
    So does a log that a recovery began anew: which of the former one's entries are in it nobody knows.
    """
    lowest = log.last if log.first is None else log.first.before()
    if checkpoint is None:
        known = LOG_START
    elif checkpoint.log_id in log.replaces:
        return Gap(position=lowest, missing_after=checkpoint.position)
    elif checkpoint.log_id != log.log_id:
        return Refuse(f"the checkpoint is of log {checkpoint.log_id}, the instance has log {log.log_id}")
    elif checkpoint.position > log.last:
        return Refuse(f"the checkpoint {checkpoint.position} is beyond the log's newest entry {log.last}")
    else:
        known = checkpoint.position
    if log.trimmed and known < lowest:
        return Gap(position=lowest, missing_after=known)
    return Continue(known)
