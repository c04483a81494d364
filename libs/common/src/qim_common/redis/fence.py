"""The fence: is an instance that is met again the one that was served before (storage.md, "Backends": fence)?

Each commit instance keeps, in the hash `qim:fence`, the ids that its server had when it was last found good. A server
that restarted has another run id, and one that was promoted names a former history beside its own: what it holds may
be older than what was acknowledged. What to do then is a pure decision; the comparison with the archive is the
writer's.

That a promoted server names the history which was stored would be too much to ask: a primary begins a new one when its
first replica comes, and tells nobody. A server that restarted names none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from qim_common.redis.connection import Connection, checked
from qim_common.redis.errors import FencedInstance
from qim_common.redis.instance import Instance

FENCE_KEY: Final = "qim:fence"
"""Hash: `run_id` and `replid` of the server that was last found good; `fenced`, why nothing may use the instance;
`recovery`, the log identity that a recovery under way gives it."""

NO_ID: Final = "0" * 40
"""What INFO tells where there is no second replication id."""


@dataclass(frozen=True, slots=True)
class ServerIds:
    """What tells one life of a server from another: `run_id` of the process, `replid` of its data's history, `former`
    the history that it went on with when it was promoted."""

    run_id: str
    replid: str
    former: str = NO_ID


@dataclass(frozen=True, slots=True)
class FenceMark:
    """What `qim:fence` holds; empty strings where nothing is stored."""

    run_id: str = ""
    replid: str = ""
    fenced: str = ""
    recovery: str = ""


class Verdict(Enum):
    """What an instance's ids allow, where it is not fenced."""

    KNOWN = "known"
    """It is the server that was found good before."""

    ACCEPT = "accept"
    """Another life of it, which nothing can be compared with: without an archive a restart is accepted."""

    COMPARE = "compare"
    """Another life of it: its logs are compared with what the archive has seen, before anything is allocated."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Nothing may use the instance until it is recovered; `why` in words for operators."""

    why: str


def decide(mark: FenceMark, ids: ServerIds, *, archive: bool, ack_level: str) -> Verdict | Fenced:
    """What becomes of an instance that was just connected. Pure.

    Args:
        mark: what it stores.
        ids: what its server says now.
        archive: whether there is one (backend tiered).
        ack_level: `log`, `replicated` or `archived`; at `log` a promoted replica may lack what was acknowledged, and
            with `log` nothing else is promised.
    """
    if mark.fenced:
        return Fenced(mark.fenced)
    if is_known(mark, ids):
        return Verdict.KNOWN
    if was_promoted(mark, ids) and ack_level == "log":
        return Fenced("a replica was promoted, which at ack_level log may lack what its primary had acknowledged")
    return Verdict.COMPARE if archive else Verdict.ACCEPT


def is_known(mark: FenceMark, ids: ServerIds) -> bool:
    """Whether it is the server that was found good before. Pure."""
    return (mark.run_id, mark.replid) == (ids.run_id, ids.replid)


def was_promoted(mark: FenceMark, ids: ServerIds) -> bool:
    """Whether a server that is not known is a replica that was promoted: it may lack what its primary had. Pure."""
    return bool(mark.run_id) and ids.former != NO_ID


async def read_fence(source: Connection | Instance) -> tuple[FenceMark, ServerIds]:
    """What an instance stores, and its server's ids now. Raises BackendUnavailable."""
    stored, server, replication = checked(
        await source.pipeline([("HGETALL", FENCE_KEY), ("INFO", "server"), ("INFO", "replication")])
    )
    fields = {name.decode(): value.decode() for name, value in zip(stored[::2], stored[1::2], strict=True)}
    known = FenceMark(*(fields.get(name, "") for name in ("run_id", "replid", "fenced", "recovery")))
    facts = _info(server) | _info(replication)
    return known, ServerIds(facts.get("run_id", ""), facts.get("master_replid", ""), facts.get("master_replid2", NO_ID))


async def note_good(source: Connection | Instance, ids: ServerIds) -> None:
    """Store the ids of a server that was found good. Raises BackendUnavailable."""
    await source.call("HSET", FENCE_KEY, "run_id", ids.run_id, "replid", ids.replid)


async def fence_off(source: Connection | Instance, why: str) -> None:
    """Store that nothing may use the instance, so that no later restart forgets it. Raises BackendUnavailable."""
    await source.call("HSET", FENCE_KEY, "fenced", why)


def fenced_error(address: object, why: str) -> FencedInstance:
    """The refusal, with the remedy."""
    return FencedInstance(f"Redis {address} is fenced: {why}; see `qimctl recover`")


def _info(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}
