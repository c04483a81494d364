"""The fence that an operator sets: nothing uses an instance until it is recovered, or the fence is lifted again.

It is the same stored fence as any other (qim_common.redis.fence), so that `qimctl recover` takes it up. Only one that
was set by hand is lifted by hand: whoever comes back then is compared as after every new connection.
"""

from __future__ import annotations

from typing import Final

from qim_common.redis.connection import checked
from qim_common.redis.errors import ReplyError
from qim_common.redis.fence import FENCE_KEY, fence_off, read_fence
from qim_common.redis.instance import Instance

BY_HAND: Final = "by an operator"
"""How the reason of such a fence begins."""

USERS: Final = frozenset({"writer", "qim-archiver", "qim-archiver-lease"})
"""The names in CLIENT LIST of those who write to a commit instance or archive from it."""


async def fence_by_hand(instance: Instance, why: str) -> str:
    """Fence an instance and end the connections of those who use it, who meet the fence then. The reason that stands:
    that of a fence which was there before stays. Raises BackendUnavailable."""
    mark, _ = await read_fence(instance)
    standing = mark.fenced or (f"{BY_HAND}: {why}" if why else BY_HAND)
    if not mark.fenced:
        await fence_off(instance, standing)
    await end_users(instance)
    return standing


async def lift_by_hand(instance: Instance) -> str:
    """Lift a fence that was set by hand; why that is not done, empty where it was. Raises BackendUnavailable."""
    mark, _ = await read_fence(instance)
    if not mark.fenced:
        return "it is not fenced"
    if mark.recovery:
        return "a recovery of it has begun, and only a recovery ends that"
    if not mark.fenced.startswith(BY_HAND):
        return f"it was not fenced by hand: {mark.fenced}"
    await instance.call("HDEL", FENCE_KEY, "fenced")
    return ""


async def users(instance: Instance) -> list[bytes]:
    """The ids of the connections of those who use it. Raises BackendUnavailable."""
    listed: bytes = await instance.call("CLIENT", "LIST")
    clients = (dict(part.partition(b"=")[::2] for part in line.split()) for line in listed.splitlines())
    return [client[b"id"] for client in clients if client.get(b"name", b"").decode() in USERS]


async def end_users(instance: Instance) -> None:
    """End those connections; one that has ended by itself is none. Raises BackendUnavailable."""
    answers = await instance.pipeline([("CLIENT", "KILL", "ID", client) for client in await users(instance)])
    checked([answer for answer in answers if not isinstance(answer, ReplyError)])
