"""The fence of a commit instance: is what it holds as new as what the archive has seen (storage.md, "Backends": fence)?

Every writer, and whatever else writes to an instance or archives from it, runs this hook on each new connection before
anything is allocated. The archive has noted, per commit bucket, how far the dispatch log may have been archived; the
note is written before anything that it covers. So a log that ends below its note has lost entries, and one that does
not holds everything the archive has seen: comparing one position a bucket is as exact as comparing every head
(docs/decisions/0017-positions-are-compared.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qim_common.keys import BucketKeys
from qim_common.positions import LOG_START, Position
from qim_common.redis import Connection, Fingerprint, Instance, ReplyError, TopologyMismatch, read_fingerprint
from qim_common.redis.fence import Fenced, Verdict, decide, fence_off, fenced_error, note_good, read_fence
from qim_common.telemetry.metrics import fence_metrics
from qim_common.topology import Topology
from qim_writer.storage_archive import ArchivePosition, ArchivePositions

_NO_SUCH_KEY: Final = "ERR no such key"


class FenceGuard:
    """The hook of one instance, for `Instance.admit`.

    Args:
        position: the instance's place in the configured list, from 0.
        topology: that of the commit instances.
        positions: what the archive has noted; None without an archive.
        ack_level: of the installation.
    """

    def __init__(
        self, position: int, topology: Topology, positions: ArchivePositions | None, *, ack_level: str
    ) -> None:
        self._position = position
        self._topology = topology
        self._positions = positions
        self._ack_level = ack_level
        self._fenced = fence_metrics().instance_fenced.labels(str(position))

    async def __call__(self, connection: Connection) -> None:
        """Compare. Raises FencedInstance, and BackendUnavailable where the archive or the instance does not answer."""
        verdict = await self.judge(connection)
        if isinstance(verdict, Fenced):
            self._fenced.set(1)
            raise fenced_error(connection.address, verdict.why)
        self._fenced.set(0)

    async def judge(self, source: Connection | Instance) -> Verdict | Fenced:
        """What becomes of the instance; noted there, so that nothing forgets it. Raises BackendUnavailable."""
        mark, ids = await read_fence(source)
        verdict = decide(mark, ids, archive=self._positions is not None, ack_level=self._ack_level)
        if verdict is Verdict.COMPARE:
            verdict = await self._compare(source)
        if isinstance(verdict, Fenced):
            if not mark.fenced:
                await fence_off(source, verdict.why)
        elif verdict is not Verdict.KNOWN:
            await note_good(source, ids)
        return verdict

    async def _compare(self, source: Connection | Instance) -> Verdict | Fenced:
        if self._positions is None:
            return Verdict.ACCEPT
        # First what the archive has seen, then what the instance holds, which only grows meanwhile.
        seen = await self._positions.of(self._position)
        fingerprint = await read_fingerprint(source)
        if fingerprint is None:
            raise TopologyMismatch(f"Redis {source.address} has lost its fingerprint; see `qimctl recover`")
        found = what_is_missing(
            fingerprint, seen, await read_log_ends(source, self._topology.buckets_of(self._position))
        )
        return Fenced(found) if found else Verdict.ACCEPT


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
