"""What the processes of this package have in common when they put their parts together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from qim_common.errors import BackendUnavailable
from qim_common.redis import Instance, Role, Script, ScriptLoader, check_instance, verify_topology
from qim_common.start import StartRefusedError
from qim_common.topology import Topology


async def connect(
    stack: AsyncExitStack, topology: Topology, role: Role, *, name: str, scripts: Sequence[Script] = ()
) -> list[Instance]:
    """The instances of one list, started and checked; closed with the stack. Raises StartRefusedError."""
    instances = [
        Instance(address, name=name, instance_position=position) for position, address in enumerate(topology.addresses)
    ]
    for instance in instances:
        instance.on_connected.append(check_instance)
        if scripts:
            instance.on_connected.append(ScriptLoader(scripts))
        stack.push_async_callback(instance.close)
    try:
        await asyncio.gather(*(instance.start() for instance in instances))
        await verify_topology(instances, topology, role)
    except BackendUnavailable as error:
        raise StartRefusedError(str(error)) from None
    return instances


class Worker(Protocol):
    """What works until it is cancelled, which is safe at any moment."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...


def run_worker(stack: AsyncExitStack, worker: Worker) -> None:
    """Run a worker until the stack closes."""
    task = asyncio.create_task(worker.run(), name=type(worker).__name__)

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(stop)


class Holder(Protocol):
    """What works on the partitions that this process holds."""

    def hold(self, partitions: frozenset[int]) -> None:
        """These and no others from now on."""
        ...


def hold_all(holders: Sequence[Holder], partitions: frozenset[int]) -> None:
    """Tell everybody."""
    for holder in holders:
        holder.hold(partitions)
