"""What `qimctl recover` and the writer's package, which does the work, say to each other.

The command line finds the work through the entry point `recover` of the group `qim.qimctl`, because services never
import each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

ENTRY_POINTS: Final = "qim.qimctl"
RECOVER: Final = "recover"


class Loss(Enum):
    """What the operator says about what was acknowledged and is not in the archive."""

    UNDECIDED = "undecided"
    """Nothing; enough at ack_level archived."""

    ACCEPTED = "accepted"
    """It may be lost: the generation of every conversation rises, and readers of the older one resynchronise."""

    EXCLUDED = "excluded"
    """There is no such thing: the archiver had no lag when the instance was lost."""


class RecoveryRefused(Exception):  # noqa: N818  it says what happened, as those of qim_common.errors do
    """The instance is not recovered as things are; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a recovery did, or with a dry run would start from.

    Attributes:
        instance: the position, from 0; `address`: where.
        why: why it needs a recovery.
        ack_level: of the installation.
        archived_conversations, archived_messages: what the archive noted of its commit buckets; a lower bound, as notes
            are written behind.
        waiting: messages and state entries of its logs that were not archived yet.
        done: False after a dry run; then what follows is zero.
        drained: entries archived first; `removed`: keys removed.
        conversations, messages: rebuilt.
        generation_raised: whether generations rose.
        left_out: conversations that could not be rebuilt from what the archive has, with the reason.
        log_id: the new identity of the instance's logs.
        seconds: how long it took.
    """

    instance: int
    address: str
    why: str
    ack_level: str
    archived_conversations: int
    archived_messages: int
    waiting: int
    done: bool = False
    drained: int = 0
    removed: int = 0
    conversations: int = 0
    messages: int = 0
    generation_raised: bool = False
    left_out: tuple[str, ...] = ()
    log_id: str = ""
    seconds: float = 0.0


class Recover(Protocol):
    """The work. Settings are read from the environment, as the services do."""

    async def __call__(
        self, instance: int, loss: Loss, *, dry_run: bool, progress: Callable[[str], None]
    ) -> RecoveryReport:
        """Recover the commit instance at a position.

        Raises RecoveryRefused, BackendUnavailable, StartRefusedError (an instance that cannot be used),
        CassandraRefused; SystemExit for settings that are not right."""
        ...
