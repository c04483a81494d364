"""Whether the other commit instances stand where the configuration says, before one of them is recovered.

A recovery gives an instance the buckets of its place in the configured list. With the addresses in another order, or
with one forgotten, these would be buckets of an instance that serves (storage.md, "Where a key lives").
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from qim_common.errors import BackendUnavailable
from qim_common.recovery import RecoveryRefused
from qim_common.redis import Instance, read_fingerprint
from qim_common.topology import Topology

_CONNECT_SECONDS: Final = 3.0


async def refuse_misplaced(topology: Topology, recovered: int, progress: Callable[[str], None]) -> None:
    """Compare what every other commit instance says of its place; one that has no fingerprint, or does not answer, may
    be lost too, and says nothing. `progress` is told of those that do not answer.

    Raises RecoveryRefused, with everything that differs; TopologyMismatch where a fingerprint cannot be read."""
    others = [position for position in range(topology.count) if position != recovered]
    found = await asyncio.gather(*(_differences(topology, position, progress) for position in others))
    problems = [problem for of_one in found for problem in of_one]
    if problems:
        raise RecoveryRefused(
            "the commit instances do not stand where the configuration says: "
            + "; ".join(problems)
            + ". Restore the addresses, their order and the number of buckets of the services"
        )


async def _differences(topology: Topology, position: int, progress: Callable[[str], None]) -> list[str]:
    instance = Instance(topology.addresses[position], name="qim-recover", instance_position=position)
    try:
        await instance.start(_CONNECT_SECONDS)
        fingerprint = await read_fingerprint(instance)
    except BackendUnavailable:
        progress(f"instance {position} at {instance.address} does not answer: its place is not compared")
        return []
    finally:
        await instance.close()
    if fingerprint is None:
        return []
    return [f"instance {position} ({instance.address}): {one}" for one in fingerprint.differences(position, topology)]
