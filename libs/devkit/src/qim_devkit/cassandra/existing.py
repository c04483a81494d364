"""A Cassandra cluster that somebody else starts and stops, named in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Self

from qim_devkit.cassandra.config import DATACENTER

CONTACT_POINTS_VARIABLE: Final = "QIM_CASSANDRA_CONTACT_POINTS"
LOCAL_DC_VARIABLE: Final = "QIM_CASSANDRA_LOCAL_DC"


@dataclass(frozen=True, slots=True)
class ExistingCluster:
    """Nodes that run already and go on. They ask for no login and speak no TLS.

    Attributes:
        contact_points: as QIM_CASSANDRA_CONTACT_POINTS takes them. New tables have a copy for each of them, three at
            most.
        datacenter: as QIM_CASSANDRA_LOCAL_DC takes it.
    """

    contact_points: str
    datacenter: str = DATACENTER

    @classmethod
    def named(cls) -> Self | None:
        """The one that the two variables name; None where the first is not set, or empty."""
        contact_points = os.environ.get(CONTACT_POINTS_VARIABLE, "").strip()
        return cls(contact_points, os.environ.get(LOCAL_DC_VARIABLE) or DATACENTER) if contact_points else None

    @property
    def size(self) -> int:
        """How many nodes are named."""
        return len([one for one in self.contact_points.split(",") if one.strip()])
