"""The fence of a commit instance: is what it holds as new as what the archive has seen (storage.md, "Backends": fence)?

Every writer, and whatever else writes to an instance or archives from it, runs this hook on each new connection before
anything is allocated. The archive has noted, per commit bucket, how far the dispatch log may have been archived; the
note is written before anything that it covers. So a log that ends below its note has lost entries, and one that does
not holds everything the archive has seen: comparing one position a bucket is as exact as comparing every head
(docs/decisions/0017-positions-are-compared.md).

The other way round the instance knows how far it is archived (`arch` of each bucket). An archive that has noted less is
not the one that the instance was archived to, or has lost something: the instance is not used with it, and tried again.
Nothing is stored for that, as nothing is wrong with the instance.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Final

from qim_common.errors import BackendUnavailable
from qim_common.keys import BucketKeys
from qim_common.positions import LOG_START, Position
from qim_common.redis import (
    Connection,
    Fingerprint,
    Instance,
    RedisUnavailable,
    ReplyError,
    TopologyMismatch,
    read_fingerprint,
)
from qim_common.redis.fence import (
    Fenced,
    FenceMark,
    ServerIds,
    Verdict,
    decide,
    fence_off,
    fenced_error,
    note_good,
    read_fence,
    was_promoted,
)
from qim_common.redis.instance import HOOK_SECONDS
from qim_common.telemetry.metrics import fence_metrics
from qim_common.topology import Topology
from qim_writer.backends.redis.promotion import PromotedReplica, Promotion
from qim_writer.storage_archive import ArchivePosition, ArchivePositions

_NO_SUCH_KEY: Final = "ERR no such key"

PROMOTED_SECONDS: Final = HOOK_SECONDS - 2.0
"""How long a hook goes on with a promoted replica's conversations; the next connection's hook goes on from there."""

LOOK_SECONDS: Final = 2.0
"""How long a hook asks for an instance that is known whether the archive is the right one."""

_log = logging.getLogger(__name__)


class FenceGuard:
    """The hook of one instance, for `Instance.admit`.

    Args:
        position: the instance's place in the configured list, from 0.
        topology: that of the commit instances.
        positions: what the archive has noted; None without an archive.
        ack_level: of the installation.
        promotion: what is done with a promoted replica at ack level `replicated`.
    """

    def __init__(
        self,
        position: int,
        topology: Topology,
        positions: ArchivePositions | None,
        *,
        ack_level: str,
        promotion: Promotion = "resynchronise",
    ) -> None:
        self._position = position
        self._topology = topology
        self._positions = positions
        self._ack_level = ack_level
        self._promoted = PromotedReplica(position, topology, positions, promotion)
        self._fenced = fence_metrics().instance_fenced.labels(str(position))
        self._archive_fits = positions is None
        self._told = ""

    async def __call__(self, connection: Connection) -> None:
        """Compare. Raises FencedInstance, and BackendUnavailable where the archive or the instance does not answer."""
        verdict = await self.judge(connection, seconds=PROMOTED_SECONDS)
        if isinstance(verdict, Fenced):
            self._fenced.set(1)
            raise fenced_error(connection.address, verdict.why)
        if verdict is Verdict.KNOWN and not self._archive_fits:
            await self._look_at_archive(connection)
        self._fenced.set(0)

    async def judge(self, source: Connection | Instance, *, seconds: float = math.inf) -> Verdict | Fenced:
        """What becomes of the instance; noted there, so that nothing forgets it.

        Raises BackendUnavailable, also where a promoted replica takes longer than `seconds`; the next call goes on."""
        mark, ids = await read_fence(source)
        verdict = await self._verdict(source, mark, ids)
        if isinstance(verdict, Fenced):
            if not mark.fenced:
                await fence_off(source, verdict.why)
        elif verdict is not Verdict.KNOWN:
            # Only after the comparison, for which the logs have to end where they ended.
            if self._ack_level == "replicated" and was_promoted(mark, ids):
                await self._promoted.settle(source, ids, seconds=seconds)
            await note_good(source, ids)
        return verdict

    async def look(self, source: Connection | Instance) -> Verdict | Fenced:
        """What would become of the instance; nothing is noted there, and nothing done. Raises BackendUnavailable."""
        return await self._verdict(source, *await read_fence(source))

    async def _verdict(self, source: Connection | Instance, mark: FenceMark, ids: ServerIds) -> Verdict | Fenced:
        verdict = decide(mark, ids, archive=self._positions is not None, ack_level=self._ack_level)
        return await self._compare(source) if verdict is Verdict.COMPARE else verdict

    async def _compare(self, source: Connection | Instance) -> Verdict | Fenced:
        if self._positions is None:
            return Verdict.ACCEPT
        buckets = self._topology.buckets_of(self._position)
        # First how far the instance is archived, then what the archive has seen, then what the instance holds: each
        # only grows, and was noted before the one that is read before it.
        archived = await read_archived(source, buckets)
        seen = await self._positions.of(self._position)
        self._accept_archive(source, seen, archived)
        fingerprint = await read_fingerprint(source)
        if fingerprint is None:
            raise TopologyMismatch(f"Redis {source.address} has lost its fingerprint; see `qimctl recover`")
        found = what_is_missing(fingerprint, seen, await read_log_ends(source, buckets))
        return Fenced(found) if found else Verdict.ACCEPT

    async def _look_at_archive(self, connection: Connection) -> None:
        """Once, for an instance that is known: a service may have been started with another keyspace. An archive that
        does not answer now is asked at the next connection; known ids need none."""
        assert self._positions is not None  # noqa: S101  `_archive_fits` says so
        archived = await read_archived(connection, self._topology.buckets_of(self._position))
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                seen = await self._positions.of(self._position)
        except (BackendUnavailable, TimeoutError):
            return
        self._accept_archive(connection, seen, archived)

    def _accept_archive(
        self, source: Connection | Instance, seen: Mapping[int, ArchivePosition], archived: Mapping[int, Position]
    ) -> None:
        """Raises RedisUnavailable where it has noted less than the instance says."""
        why = what_archive_lacks(seen, archived)
        self._archive_fits = not why
        if why:
            detail = f"Redis {source.address} is not used with this archive: {why}; see docs/recovery.md"
            if detail != self._told:
                _log.error("%s", detail)
            self._told = detail
            raise RedisUnavailable(detail)


def what_is_missing(fingerprint: Fingerprint, seen: Mapping[int, ArchivePosition], ends: Mapping[int, Position]) -> str:
    """What the archive has seen and the instance does not hold, in words; empty where there is no such thing. Pure.

    Args:
        fingerprint: the instance's; positions of logs that a recovery has replaced count for nothing.
        seen: by commit bucket, what the archive has noted.
        ends: by commit bucket, the newest position that the instance's log ever gave.
    """
    replaced = frozenset(fingerprint.replaces)
    for bucket, noted in sorted(seen.items()):
        if noted.log_id == fingerprint.log_id:
            end = ends.get(bucket, LOG_START)
            if end < noted.position:
                return (
                    f"the log of commit bucket {bucket} ends at {end}, the archive has seen it up to {noted.position}"
                )
        elif noted.log_id not in replaced:
            return f"the archive has seen another log of commit bucket {bucket} than the one that is here"
    return ""


def what_archive_lacks(seen: Mapping[int, ArchivePosition], archived: Mapping[int, Position]) -> str:
    """Why this cannot be the archive to which the instance was archived, in words; empty where it can. Pure.

    Args:
        seen: by commit bucket, what the archive has noted, in the name of whichever log.
        archived: by commit bucket, how far the instance was archived; noted there later than in the archive.
    """
    for bucket, position in sorted(archived.items()):
        noted = seen.get(bucket)
        if position > LOG_START and (noted is None or noted.position < position):
            known = f"has noted it up to {noted.position}" if noted else "knows nothing of it"
            return (
                f"commit bucket {bucket} is archived up to {position}, and the archive {known}: it is another keyspace "
                "or installation (QIM_CASSANDRA_KEYSPACE, QIM_INSTALLATION_ID), or has lost something"
            )
    return ""


async def read_archived(source: Connection | Instance, buckets: range) -> dict[int, Position]:
    """By commit bucket up to which entry its dispatch log is archived; the start of the log where nothing says so, also
    where what says so cannot be read, which the archiver refuses. Raises BackendUnavailable."""
    replies = await source.pipeline([("HGET", BucketKeys(bucket).meta, "arch") for bucket in buckets])
    return {bucket: _archived(reply) for bucket, reply in zip(buckets, replies, strict=True)}


def _archived(reply: object) -> Position:
    if isinstance(reply, Exception) and not isinstance(reply, ReplyError):
        raise reply
    try:
        return Position.parse(reply) if isinstance(reply, bytes) else LOG_START
    except ValueError:
        return LOG_START


async def read_log_ends(source: Connection | Instance, buckets: range) -> dict[int, Position]:
    """By commit bucket the newest position that its dispatch log ever gave. Raises BackendUnavailable."""
    replies = await source.pipeline([("XINFO", "STREAM", BucketKeys(bucket).dispatch) for bucket in buckets])
    return {bucket: _end(reply) for bucket, reply in zip(buckets, replies, strict=True)}


def _end(reply: object) -> Position:
    if isinstance(reply, ReplyError) and reply.message == _NO_SUCH_KEY:
        return LOG_START
    if isinstance(reply, Exception):
        raise reply
    if not isinstance(reply, list):
        raise TypeError(f"XINFO STREAM answered {reply!r}")
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    return Position.parse(facts[b"last-generated-id"])
