"""The projected lists as a rebuild writes them: places, big conversations and the epoch mark of one person."""

from __future__ import annotations

from collections.abc import Sequence

from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.keys import projection_epoch
from qim_common.redis import Argument, Instance, checked
from qim_common.topology import Topology
from qim_session.backends.person_places import PersonPlaces
from qim_session.domain.list_pages import ListPosition


class RedisListRestore:
    """The `ListRestore` of the session instances. Its calls each touch the keys of one person only, but for `epoch`."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._places = PersonPlaces(instances, topology)

    async def epoch(self, tenant: TenantId, user: UserId) -> tuple[int, int | None]:
        """As `ListRestore.epoch`."""
        instance, keys = self._places.locate(tenant, user)
        commands = [("GET", projection_epoch(instance.position)), ("GET", keys.epoch)]
        epoch, mark = checked(await instance.pipeline(commands))
        return int(epoch or 0), None if mark is None else int(mark)

    async def restore(
        self, tenant: TenantId, user: UserId, places: Sequence[ListPosition], big: Sequence[ConversationId]
    ) -> None:
        """As `ListRestore.restore`."""
        instance, keys = self._places.locate(tenant, user)
        commands: list[Sequence[Argument]] = []
        if places:
            pairs = [value for place in places for value in (place.time_ms, place.conversation)]
            commands.append(("ZADD", keys.convs, "GT", *pairs))
        if big:
            commands.append(("SADD", keys.bigconvs, *big))
        checked(await instance.pipeline(commands))

    async def mark(self, tenant: TenantId, user: UserId, epoch: int) -> None:
        """As `ListRestore.mark`."""
        instance, keys = self._places.locate(tenant, user)
        await instance.call("SET", keys.epoch, epoch)
