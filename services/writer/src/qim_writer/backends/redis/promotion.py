"""A promoted replica that is accepted at ack level `replicated` (docs/storage-tiers.md, "What an acknowledgement
survives").

It holds everything that was acknowledged, and it may lack what the lost primary had written and readers had already
got. So before anything is allocated the ends of its dispatch logs are raised above whatever was given out, and, unless
QIM_PROMOTION says otherwise, everybody who reads is told to resynchronise: the generation of each conversation rises
where it stands, and the logs get a new identity, because versions are given out again too (docs/decisions/0019).

Any number of processes may do this at once, and again after they were cut off: everything is named after the server's
present ids, and nothing is done twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from qim_common.keys import BucketKeys
from qim_common.positions import Position
from qim_common.redis import (
    Argument,
    Connection,
    Instance,
    RedisUnavailable,
    Role,
    TopologyMismatch,
    checked,
    load_script,
    read_fingerprint,
)
from qim_common.redis.fence import ServerIds, is_known, read_fence
from qim_common.redis.fingerprint import key_of
from qim_common.topology import Topology
from qim_writer.storage_archive import ArchivePosition, ArchivePositions

Promotion = Literal["resynchronise", "accept"]
"""QIM_PROMOTION."""

RAISE_LOG_END: Final = load_script("qim_writer", "raise_log_end")
RAISE_GENERATION: Final = load_script("qim_writer", "raise_generation")

_META: Final = re.compile(rb"(\d+):\{b(\d{3})\}:([0-9a-f]{32}):grpmeta")
_SCANNED: Final = 5000
"""Keys of one SCAN, of which a tenth or so are conversations."""

_RAISED_AT_ONCE: Final = 500
_SKEW_MS: Final = 60_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Progress:
    """How far the conversations of one promoted server were gone through: the cursor of SCAN, which holds as long as
    its process lives; None: to the end. `found` is the number of those that were raised."""

    recovery: bytes
    cursor: bytes | None = b"0"
    found: int = 0


class PromotedReplica:
    """What is done with promoted servers at the place of one instance.

    Args:
        position: of the instance, from 0.
        topology: that of the commit instances.
        positions: what the archive has noted; None without an archive.
        mode: QIM_PROMOTION.
    """

    def __init__(self, position: int, topology: Topology, positions: ArchivePositions | None, mode: Promotion) -> None:
        self._position = position
        self._buckets = topology.buckets_of(position)
        self._own = frozenset(b"%03d" % bucket for bucket in self._buckets)
        self._positions = positions
        self._mode = mode
        self._progress: _Progress | None = None

    async def settle(self, source: Connection | Instance, ids: ServerIds, *, seconds: float) -> None:
        """Bring it into a state in which it may be used, once its ids are stored.

        Raises BackendUnavailable: also where the conversations are not through within `seconds`; the next call goes on.
        """
        end = asyncio.get_running_loop().time() + seconds
        await self._raise_log_ends(source)
        if self._mode == "accept":
            return
        recovery = recovery_of(ids)
        if self._progress is None or self._progress.recovery != recovery:
            self._progress = _Progress(recovery)
        await self._raise_generations(source, ids, self._progress, end)
        await self._begin_logs_anew(source, recovery.hex())

    async def _raise_log_ends(self, source: Connection | Instance) -> dict[int, Position]:
        """To the time of whichever clock is further; the new ends by bucket."""
        (seconds, micros), _ = checked(
            await source.pipeline([("TIME",), ("SCRIPT", "LOAD", RAISE_LOG_END.source)]),
        )
        there, here = int(seconds) * 1000 + int(micros) // 1000, time.time_ns() // 1_000_000
        if abs(there - here) > _SKEW_MS:
            _log.warning(
                "the clocks of Redis %s and of this machine differ by %d s", source.address, (there - here) // 1000
            )
        calls: list[Sequence[Argument]] = [
            ("EVALSHA", RAISE_LOG_END.sha1, 1, BucketKeys(bucket).dispatch, max(there, here) + 1)
            for bucket in self._buckets
        ]
        ends = checked(await source.pipeline(calls))
        return {bucket: Position.parse(end) for bucket, end in zip(self._buckets, ends, strict=True)}

    async def _raise_generations(
        self, source: Connection | Instance, ids: ServerIds, progress: _Progress, end: float
    ) -> None:
        await source.call("SCRIPT", "LOAD", RAISE_GENERATION.source)
        while progress.cursor is not None:
            cursor, keys = await source.call("SCAN", progress.cursor, "MATCH", "*:grpmeta", "COUNT", _SCANNED)
            calls = [call for key in keys if (call := self._raise(key, progress.recovery))]
            for at in range(0, len(calls), _RAISED_AT_ONCE):
                mark, now = await read_fence(source)
                if is_known(mark, now):  # another process is through, and new conversations are not concerned
                    progress.cursor = None
                    return
                progress.found += sum(checked(await source.pipeline(calls[at : at + _RAISED_AT_ONCE])))
            progress.cursor = None if cursor == b"0" else cursor
            # After a step, so that each call comes further.
            if progress.cursor is not None and asyncio.get_running_loop().time() > end:
                raise RedisUnavailable(
                    f"Redis {source.address}: a promoted replica; the generations of {progress.found} conversations "
                    "were raised so far"
                )
        _log.warning(
            "Redis %s is a promoted replica: the generations of %d conversations were raised",
            source.address,
            progress.found,
        )

    def _raise(self, key: bytes, recovery: bytes) -> Sequence[Argument] | None:
        found = _META.fullmatch(key)
        if found is None or found[2] not in self._own:
            return None
        bucket = BucketKeys(int(found[2]))
        scope = struct.pack(">Q", int(found[1])) + bytes.fromhex(found[3].decode())
        head = key.removesuffix(b"grpmeta") + b"msgcseq"
        return "EVALSHA", RAISE_GENERATION.sha1, 4, key, head, bucket.meta, bucket.dispatch, recovery, scope

    async def _begin_logs_anew(self, source: Connection | Instance, log_id: str) -> None:
        """Consumers take their places for gaps from now on. Afterwards the archive is told, so that an instance which
        goes back behind this moment is found out; a run that was cut off in between tells it when it is repeated."""
        fingerprint = await read_fingerprint(source)
        if fingerprint is None:
            raise TopologyMismatch(f"Redis {source.address} has lost its fingerprint; see `qimctl recover`")
        if fingerprint.log_id != log_id:
            former = ",".join((*fingerprint.replaces, fingerprint.log_id))
            await source.call("HSET", key_of(Role.COMMIT), "log_id", log_id, "replaces", former)
        if self._positions is not None:
            ends = await self._raise_log_ends(source)
            before = tuple(one for one in (*fingerprint.replaces, fingerprint.log_id) if one != log_id)
            announced = {bucket: ArchivePosition(log_id, end, before) for bucket, end in ends.items()}
            await self._positions.announce(self._position, announced)


def recovery_of(ids: ServerIds) -> bytes:
    """What names the raising of generations after the promotion to these ids, 16 bytes. Pure."""
    return hashlib.blake2b(f"{ids.run_id}\0{ids.replid}".encode(), digest_size=16).digest()
