"""Why a rebuilding does not go on."""

from __future__ import annotations

from qim_common.recovery import RecoveryRefused


class ArchiveDamaged(RecoveryRefused):
    """The archive lacks something that a conversation cannot be rebuilt without."""
