"""Who is connected to this replica now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from qim_common.ids import TenantId, UserId
from qim_session.commands.live.attachment import Attachment


class Connected:
    """All attachments of all streams, by person.

    Attributes:
        somebody: set while there is any.
    """

    def __init__(self) -> None:
        self._people: dict[TenantId, dict[UserId, list[Attachment]]] = {}
        self._count = 0
        self.somebody = asyncio.Event()

    def add(self, attachment: Attachment) -> None:
        """From now on what reaches the person is offered to the attachment."""
        people = self._people.setdefault(attachment.actor.tenant, {})
        people.setdefault(attachment.actor.user, []).append(attachment)
        self._count += 1
        self.somebody.set()

    def remove(self, attachment: Attachment) -> None:
        """The attachment has ended."""
        people = self._people[attachment.actor.tenant]
        devices = people[attachment.actor.user]
        devices.remove(attachment)
        self._count -= 1
        if not devices:
            del people[attachment.actor.user]
        if not people:
            del self._people[attachment.actor.tenant]
        if not self._count:
            self.somebody.clear()

    def of_tenant(self, tenant: TenantId) -> bool:
        """Whether anybody of the tenant is connected."""
        return tenant in self._people

    def of_person(self, tenant: TenantId, user: UserId) -> list[Attachment]:
        """The person's attachments."""
        return list(self._people.get(tenant, {}).get(user, ()))

    def among(self, tenant: TenantId, people: AbstractSet[UserId]) -> list[Attachment]:
        """The attachments of those of `people` who are connected."""
        connected = self._people.get(tenant)
        if not connected:
            return []
        found: list[Attachment] = []
        if len(people) <= len(connected):
            for user in people:
                devices = connected.get(user)
                if devices is not None:
                    found += devices
        else:
            for user, devices in connected.items():
                if user in people:
                    found += devices
        return found

    def everybody(self) -> Iterator[Attachment]:
        """All attachments, as they are now."""
        for people in list(self._people.values()):
            for devices in list(people.values()):
                yield from list(devices)

    def __len__(self) -> int:
        return self._count
