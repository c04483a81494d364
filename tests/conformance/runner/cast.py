"""The people of one scenario: names as ids of their own, and the clients that act for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qim_client import ActorClient, GatewayClient
from qim_client.names import NameKind, derived_id
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId


class Cast:
    """People who are in no other scenario, so that their lists and mailboxes hold this one's conversation only.

    Parameters:
        gateways: one for each session replica, from 1; people are spread over them by their ids.
        place: distinguishes this performance of the scenario from all others on the same suite.
    """

    def __init__(self, gateways: Sequence[GatewayClient], tenant: TenantId, place: str) -> None:
        self.tenant = tenant
        self.group = ConversationId(derived_id(NameKind.GROUP, place))
        self._gateways = tuple(gateways)
        self._place = place
        self._ids: dict[str, UserId] = {}
        self._names: dict[UserId, str] = {}

    def id(self, name: str) -> UserId:
        """The person's id."""
        if name not in self._ids:
            # An id of a name does not tell upper from lower case; a scenario's names may.
            user = UserId(derived_id(NameKind.USER, f"{self._place}/{name.encode().hex()}"))
            self._ids[name] = user
            self._names[user] = name
        return self._ids[name]

    def ids(self, names: Iterable[str]) -> list[UserId]:
        """The ids of several people, in their order."""
        return [self.id(name) for name in names]

    def name(self, user: UserId) -> str:
        """Who has this id; the id itself where it is nobody's of the scenario."""
        return self._names.get(user, user.hex())

    @property
    def people(self) -> tuple[UserId, ...]:
        """Everybody who has an id."""
        return tuple(self._names)

    def replica(self, name: str, further: int = 0) -> int:
        """The number of the session replica that this person's calls go to, or one that is `further` behind it."""
        return (self.id(name)[-1] + further) % len(self._gateways)

    def acting(self, name: str, further: int = 0, *, device: str = "") -> ActorClient:
        """Calls for this person, through the replica of `replica`, on the device of this name (the first one)."""
        made = DeviceId(derived_id(NameKind.USER, f"{self._place}/{name.encode().hex()}/{device}")) if device else None
        return self._gateways[self.replica(name, further)].as_actor(self.tenant, self.id(name), made)
