"""Why a rebuilding does not go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qim_common.recovery import RecoveryRefused

_VARIABLES: Final = "QIM_BACKEND, QIM_INSTALLATION_ID, QIM_COMMIT_BUCKETS, QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS"


def another_instance(position: int, differences: Sequence[str]) -> RecoveryRefused:
    """What its fingerprint says is not what is configured, which is also where the services' variables are not set."""
    found = "; ".join(differences)
    return RecoveryRefused(f"instance {position} is another one: {found}. Are {_VARIABLES} those of the services?")


class ArchiveDamaged(RecoveryRefused):
    """The archive lacks something that a conversation cannot be rebuilt without."""
