"""The topology's fingerprint on each instance (storage.md, "Where a key lives" and "Fence").

A group lives on instance `bucket mod count`, so a changed order or number of addresses would split groups in two. Each
instance therefore stores its own place; a service that is configured differently refuses to start.

The first start must survive a crash in between, and must not take an emptied instance for a new one. So the
fingerprints are written in two rounds: all instances get one in state `forming`, then all are marked `ready`. Nothing
is committed before the second round is done. An instance without a fingerprint is hence new exactly if no other one is
`ready`, and the archive, where there is one, has never seen the installation.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from qim_common.redis.connection import Argument, Connection
from qim_common.redis.errors import TopologyMismatch
from qim_common.redis.instance import Hook, Instance
from qim_common.redis.scripts import load_script, run
from qim_common.topology import REDIS_BACKEND, Topology

KEY: Final = "qim:topology"
_CLAIM: Final = load_script("qim_common.redis", "claim_topology")
_HOW_TO_MEND: Final = (
    "Restore the addresses, their order, the number of buckets and the installation id with which this data was "
    "written; an instance that was emptied or lost needs its data back: with an archive by `qimctl recover`, else from "
    "its backup."
)
ArchiveKnows = Callable[[int], Awaitable[bool]]
"""Whether the archive holds anything of the commit instance at this position; raises BackendUnavailable."""


class Role(StrEnum):
    """Which configured list an instance belongs to; one instance may be in both."""

    COMMIT = "commit"
    """QIM_REDIS_ADDR and QIM_MESSAGE_STORE_ADDRS."""

    SESSION = "session"
    """QIM_SESSION_REDIS_ADDRS."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an instance knows about its place.

    Attributes:
        position: from 0.
        count: the number of instances in the list.
        buckets: the number of buckets, 1-1000.
        installation_id: which installation.
        log_id: identity of the instance's dispatch log, 32 hexadecimal digits, random; a checkpoint of another log's
            identity is worthless.
        ready: whether all instances of the list had a fingerprint.
        replaces: the former identities of the log, before recoveries, the newest last; their checkpoints are gaps.
        backend: that of the installation, as in QIM_BACKEND.
    """

    position: int
    count: int
    buckets: int
    installation_id: str
    log_id: str
    ready: bool
    replaces: tuple[str, ...] = ()
    backend: str = REDIS_BACKEND

    def differences(self, position: int, topology: Topology) -> list[str]:
        """What differs from the configuration, in words; the log's identity and state are not compared."""
        pairs = (
            ("installation id", self.installation_id, topology.installation_id),
            ("position", self.position, position),
            ("number of instances", self.count, topology.count),
            ("number of buckets", self.buckets, topology.buckets),
            ("backend", self.backend, topology.backend),
        )
        return [
            f"{what} is {old} on the instance and {new} in the configuration" for what, old, new in pairs if old != new
        ]


def key_of(role: Role) -> str:
    """The fingerprint's key."""
    return KEY if role is Role.COMMIT else f"{KEY}:{role.value}"


async def read_fingerprint(source: Connection | Instance, role: Role = Role.COMMIT) -> Fingerprint | None:
    """The fingerprint stored on an instance, None if there is none.

    Raises:
        TopologyMismatch: what is stored cannot be read.
    """
    return _parsed(await source.call("HGETALL", key_of(role)), str(source.address))


async def verify_topology(
    instances: Sequence[Instance],
    topology: Topology,
    role: Role = Role.COMMIT,
    *,
    archive_knows: ArchiveKnows | None = None,
) -> None:
    """Compare the fingerprints of all instances, and write them on the very first start.

    Each instance also gets a hook that compares again on every later connection, and refuses a missing fingerprint
    unless what the instance held comes back by itself.

    Args:
        instances: started, in the configured order, one per address of the topology.
        topology: the configured one.
        role: which list this is.
        archive_knows: asked for each instance without a fingerprint before it gets one.

    Raises:
        TopologyMismatch: with everything that differs on any instance.
        BackendUnavailable: an instance is down, or the archive does not answer.
        ValueError: the instances are not those of the topology.
    """
    if [instance.position for instance in instances] != list(range(topology.count)):
        raise ValueError(
            f"{len(instances)} instances, which must be at the positions 0 to {topology.count - 1}, in order"
        )
    stored = await asyncio.gather(*(read_fingerprint(instance, role) for instance in instances))
    _refuse_if_any(_compare(instances, stored, topology, missing_taken=_comes_back(topology, role)))
    if archive_knows is not None:
        _refuse_if_any(await _known_to_archive(instances, stored, archive_knows))
    # One after another: of two services that start at once with different configurations, one finds the other's
    # fingerprint on instance 0 and refuses.
    for instance in instances:
        _refuse_if_any(_compare([instance], [await _claim(instance, topology, role)], topology))
    await asyncio.gather(*(instance.call("HSET", key_of(role), "state", "ready") for instance in instances))
    for instance in instances:
        instance.on_connected.append(_hook(instance.position, topology, role))


async def _known_to_archive(
    instances: Sequence[Instance], stored: Sequence[Fingerprint | None], archive_knows: ArchiveKnows
) -> list[str]:
    return [
        f"instance {instance.position} ({instance.address}): it has no fingerprint, though the archive knows "
        "messages of it: it is another instance, or it has lost its data"
        for instance, fingerprint in zip(instances, stored, strict=True)
        if fingerprint is None and await archive_knows(instance.position)
    ]


def _comes_back(topology: Topology, role: Role) -> bool:
    """Whether what an emptied instance held comes back by itself: with an archive, what sessions hold does.

    Such an instance gets a new fingerprint (storage.md, "Session": a person whose epoch mark is old is rebuilt).
    """
    return role is Role.SESSION and topology.backend != REDIS_BACKEND


def _compare(
    instances: Sequence[Instance],
    stored: Sequence[Fingerprint | None],
    topology: Topology,
    *,
    missing_taken: bool = False,
) -> list[str]:
    pairs = list(zip(instances, stored, strict=True))
    known_by = next((instance for instance, fingerprint in pairs if fingerprint and fingerprint.ready), None)
    problems: list[str] = []
    for instance, fingerprint in pairs:
        where = f"instance {instance.position} ({instance.address})"
        if fingerprint is not None:
            problems += [f"{where}: {words}" for words in fingerprint.differences(instance.position, topology)]
        elif known_by is not None and not missing_taken:
            problems.append(
                f"{where}: it has no fingerprint, though instance {known_by.position} ({known_by.address}) belongs to "
                "an installation that is in use: it is another instance, or it has lost its data"
            )
    return problems


async def _claim(instance: Instance, topology: Topology, role: Role) -> Fingerprint | None:
    fields = fingerprint_fields(instance.position, topology, secrets.token_hex(16), state="forming")
    args = [part for pair in fields.items() for part in pair]
    return _parsed(await run(instance, _CLAIM, [key_of(role)], args), str(instance.address))


def fingerprint_fields(
    position: int, topology: Topology, log_id: str, *, state: str = "ready", replaces: Sequence[str] = ()
) -> dict[str, Argument]:
    """A fingerprint as it is stored in its hash."""
    return {
        "position": position,
        "count": topology.count,
        "buckets": topology.buckets,
        "installation_id": topology.installation_id,
        "log_id": log_id,
        "backend": topology.backend,
        "state": state,
        "replaces": ",".join(replaces),
    }


def _hook(position: int, topology: Topology, role: Role) -> Hook:
    async def compare(connection: Connection) -> None:
        fingerprint = await read_fingerprint(connection, role)
        if fingerprint is None and _comes_back(topology, role):
            fields = fingerprint_fields(position, topology, secrets.token_hex(16))
            args = [part for pair in fields.items() for part in pair]
            found = await connection.call("EVAL", _CLAIM.source, 1, key_of(role), *args)
            fingerprint = _parsed(found, str(connection.address))
        where = f"instance {position} ({connection.address})"
        if fingerprint is None:
            _refuse_if_any([f"{where}: its fingerprint is gone: it is another instance, or it has lost its data"])
        else:
            _refuse_if_any([f"{where}: {words}" for words in fingerprint.differences(position, topology)])

    return compare


def _refuse_if_any(problems: list[str]) -> None:
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise TopologyMismatch(f"the Redis instances do not fit the configured topology:{listed}\n{_HOW_TO_MEND}")


def _parsed(reply: list[Any], address: str) -> Fingerprint | None:
    if not reply:
        return None
    fields = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
    try:
        return Fingerprint(
            position=int(fields["position"]),
            count=int(fields["count"]),
            buckets=int(fields["buckets"]),
            installation_id=fields["installation_id"],
            log_id=fields["log_id"],
            ready=fields["state"] == "ready",
            replaces=tuple(filter(None, fields.get("replaces", "").split(","))),
            backend=fields.get("backend", REDIS_BACKEND),
        )
    except (KeyError, ValueError) as error:
        raise TopologyMismatch(
            f"Redis {address} holds a fingerprint that cannot be read ({error!r}). {_HOW_TO_MEND}"
        ) from None
