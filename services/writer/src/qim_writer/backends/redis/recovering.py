"""A commit instance that is recovered: what is there, the fence around it, its keys removed, its logs begun anew."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from qim_common.keys import BucketKeys
from qim_common.positions import Position
from qim_common.records import DISPATCH_FIELD
from qim_common.recovery import RecoveryRefused
from qim_common.redis import Argument, Instance, Role, checked, load_script, read_fingerprint, run
from qim_common.redis.fence import FENCE_KEY, Fenced, read_fence
from qim_common.redis.fence_by_hand import end_users, users
from qim_common.redis.fingerprint import fingerprint_fields, key_of
from qim_common.topology import Topology
from qim_writer.backends.redis.fence import FenceGuard
from qim_writer.backends.redis.rebuilding import RedisRebuild
from qim_writer.storage_recovery import InstanceSurvey

LOCK_KEY: Final = "qim:recovery"
LOCK_SECONDS: Final = 30
HOLD_LEASE: Final = load_script("qim_writer", "hold_lease")
FINISH_RECOVERY: Final = load_script("qim_writer", "finish_recovery")
RAISE_GENERATION: Final = load_script("qim_writer", "raise_generation")
_TAG: Final = re.compile(rb"(?:\d+:)?\{b(\d{3})\}:")
_META: Final = b"grpmeta"
_HEAD: Final = b"msgcseq"
_SCANNED: Final = 5000
_UNLINKED: Final = 500


class RedisRecovery(RedisRebuild):
    """The `RecoverableInstance`.

    Args:
        instance: started without the hooks that would refuse it.
        topology: that of the commit instances.
        guard: the instance's fence.
        session: the same server's place among the session instances, with their topology; None: it is none.
    """

    def __init__(
        self, instance: Instance, topology: Topology, guard: FenceGuard, session: tuple[int, Topology] | None
    ) -> None:
        super().__init__(instance, topology)
        self._guard = guard
        self._session = session
        self._token = ""
        self._buckets = topology.buckets_of(instance.position)

    async def lock(self, token: str) -> bool:
        """See the Protocol."""
        self._token = token
        return bool(await run(self._instance, HOLD_LEASE, [LOCK_KEY], [token, LOCK_SECONDS * 1000]))

    async def unlock(self, token: str) -> None:
        """See the Protocol."""
        await run(self._instance, HOLD_LEASE, [LOCK_KEY], [token, 0])

    async def survey(self) -> InstanceSurvey:
        """See the Protocol."""
        fingerprint = await read_fingerprint(self._instance)
        differences = [] if fingerprint is None else fingerprint.differences(self._instance.position, self._topology)
        mark, _ = await read_fence(self._instance)
        fenced = mark.fenced
        if fingerprint is not None and not differences and not fenced:
            verdict = await self._guard.look(self._instance)
            fenced = verdict.why if isinstance(verdict, Fenced) else ""
        rebuilding = bool(await self._instance.call("HEXISTS", FENCE_KEY, "rebuilding"))
        seconds, micros = await self._instance.call("TIME")
        return InstanceSurvey(
            known=fingerprint is not None,
            differences=tuple(differences),
            fenced=fenced,
            recovery=mark.recovery,
            rebuilding=rebuilding,
            log_id="" if fingerprint is None else fingerprint.log_id,
            replaces=() if fingerprint is None else fingerprint.replaces,
            waiting=await self._waiting(),
            users=len(await users(self._instance)),
            now_ms=int(seconds) * 1000 + int(micros) // 1000,
        )

    async def _waiting(self) -> int:
        counted = checked(
            await self._instance.pipeline(
                [("HMGET", BucketKeys(bucket).meta, "rec", "arcd") for bucket in self._buckets]
            )
        )
        return sum(max(int(recorded or 0) - int(archived or 0), 0) for recorded, archived in counted)

    async def begin(self, recovery: str, why: str) -> None:
        """See the Protocol."""
        await self._instance.call("HSET", FENCE_KEY, "fenced", why, "recovery", recovery)

    async def abandon(self) -> None:
        """See the Protocol."""
        await self._instance.call("HDEL", FENCE_KEY, "fenced", "recovery")

    async def disconnect_users(self) -> None:
        """See the Protocol."""
        await end_users(self._instance)

    async def wipe(self) -> int:
        """See the Protocol."""
        await self._instance.call("HSET", FENCE_KEY, "rebuilding", 1)
        removed = 0
        async for doomed in self._own_keys():
            for at in range(0, len(doomed), _UNLINKED):
                removed += await self._instance.call("UNLINK", *doomed[at : at + _UNLINKED])
        return removed

    async def _own_keys(self) -> AsyncIterator[list[bytes]]:
        """The keys of the instance's commit buckets; one may come twice."""
        own = frozenset(b"%03d" % bucket for bucket in self._buckets)
        cursor = None
        while cursor != b"0":
            cursor, keys = await self._instance.call("SCAN", cursor or b"0", "COUNT", _SCANNED)
            yield [key for key in keys if (tag := _TAG.match(key)) and tag[1] in own]

    async def raise_generations(self, recovery: str) -> int:
        """See the Protocol."""
        found = 0
        async for keys in self._own_keys():
            for meta in keys:
                if meta.endswith(b":" + _META):
                    head = meta.removesuffix(_META) + _HEAD
                    await run(self._instance, RAISE_GENERATION, [meta, head], [bytes.fromhex(recovery)])
                    found += 1
        return found

    async def add_bucket(self, bucket: int, base: Position, entries_low_ms: int) -> None:
        """See the Protocol. Two entries without content, of which the first goes: the log has lost something, so that
        who has no place in it begins anew; and the place up to which it is archived stands in it."""
        keys = BucketKeys(bucket)
        commands: list[Sequence[Argument]] = [
            ("XADD", keys.dispatch, str(base.before()), DISPATCH_FIELD, b""),
            ("XADD", keys.dispatch, str(base), DISPATCH_FIELD, b""),
            ("XTRIM", keys.dispatch, "MINID", str(base)),
            ("HSET", keys.meta, "arch", str(base), "g", 1, "s", base.ms, "low", entries_low_ms, "b", 0),
        ]
        checked(await self._instance.pipeline(commands))

    async def finish(self, log_id: str, replaces: Sequence[str]) -> None:
        """See the Protocol: in one step."""
        position = self._instance.position
        _, ids = await read_fence(self._instance)
        commit = _flat(fingerprint_fields(position, self._topology, log_id, replaces=replaces))
        session: list[Argument] = []
        if self._session is not None:
            place, topology = self._session
            if await read_fingerprint(self._instance, Role.SESSION) is None:
                session = _flat(fingerprint_fields(place, topology, log_id))
        keys = [LOCK_KEY, key_of(Role.COMMIT), key_of(Role.SESSION), FENCE_KEY]
        args = [self._token, ids.run_id, ids.replid, len(commit), *commit, *session]
        if not await run(self._instance, FINISH_RECOVERY, keys, args):
            raise RecoveryRefused("another recovery of this instance has begun")


def _flat(fields: dict[str, Argument]) -> list[Argument]:
    return [part for pair in fields.items() for part in pair]
