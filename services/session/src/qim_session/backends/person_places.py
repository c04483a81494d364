"""Where a person's keys are: the one place of the session service that goes from a person to an instance."""

from __future__ import annotations

from collections.abc import Sequence

from qim_common.ids import TenantId, UserId
from qim_common.keys import PersonKeys
from qim_common.redis import Instance
from qim_common.topology import Topology


class PersonPlaces:
    """The session instances in their configured order, and their topology."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._instances = tuple(instances)
        self._topology = topology

    def locate(self, tenant: TenantId, user: UserId) -> tuple[Instance, PersonKeys]:
        """The instance that holds a person, and the person's keys there."""
        bucket = self._topology.person_bucket(tenant, user)
        return self._instances[self._topology.instance_of(bucket)], PersonKeys(tenant, user, bucket)
