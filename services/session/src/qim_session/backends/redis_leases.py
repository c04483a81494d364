"""Leases on the first session instance, which is the one place that all replicas have in common."""

from __future__ import annotations

from typing import Final

from qim_common.keys import LEASES, REPLICAS
from qim_common.redis import Instance, load_script, run

RENEW_LEASES: Final = load_script("qim_session", "renew_leases")
RELEASE_LEASES: Final = load_script("qim_session", "release_leases")


class RedisLeases:
    """The `LeaseStore` on a session instance, for partitions 0 to `partitions` - 1.

    Consumers of another kind share the partitions among themselves: they have `keys` of their own, leases and replicas.
    """

    def __init__(self, instance: Instance, partitions: int, *, keys: tuple[str, str] = (LEASES, REPLICAS)) -> None:
        self._instance = instance
        self._partitions = partitions
        self._keys = keys

    async def renew(self, holder: bytes, life_ms: int) -> frozenset[int]:
        """As `LeaseStore.renew`."""
        return frozenset(await run(self._instance, RENEW_LEASES, self._keys, [holder, life_ms, self._partitions]))

    async def release(self, holder: bytes) -> int:
        """As `LeaseStore.release`."""
        freed: int = await run(self._instance, RELEASE_LEASES, self._keys, [holder])
        return freed
