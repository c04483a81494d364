"""What live streams ask of the stores beside the logs: recent conversations, and the commit instances' clocks."""

from __future__ import annotations

from collections.abc import Sequence

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.redis import Argument, Instance, checked
from qim_common.topology import Topology
from qim_session.backends.person_places import PersonPlaces


class RedisRecent:
    """The `RecentConversations` of the redis backend."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._places = PersonPlaces(instances, topology)

    async def since(self, tenant: TenantId, user: UserId, time_ms: int | None) -> dict[ConversationId, int]:
        """As `RecentConversations.since`."""
        instance, keys = self._places.locate(tenant, user)
        lowest: Argument = "-inf" if time_ms is None else time_ms
        # The big ones second: what becomes big after the first command is known to be so by the second.
        flat, big = checked(
            await instance.pipeline(
                [("ZRANGE", keys.convs, lowest, "+inf", "BYSCORE", "WITHSCORES"), ("SMEMBERS", keys.bigconvs)]
            )
        )
        found = {ConversationId(member): int(float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)}
        for member in big:
            found.setdefault(ConversationId(member), time_ms or 0)
        return found


class RedisClock:
    """The `InstanceClock` of one commit instance; its connection must not be one that blocks."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def time_ms(self) -> int:
        """As `InstanceClock.time_ms`."""
        seconds, micros = await self._instance.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000
