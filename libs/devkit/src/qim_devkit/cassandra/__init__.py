"""A real Cassandra cluster on one machine: three nodes on loopback addresses, started from Maven's jars.

`CassandraCluster` is what `make cassandra-up`, the tests and the suite use. Needs Java 11 or 17, and Maven once.
"""

from qim_devkit.cassandra.cluster import CassandraCluster
from qim_devkit.cassandra.existing import CONTACT_POINTS_VARIABLE, ExistingCluster
from qim_devkit.cassandra.jars import CassandraNotAvailable, find_java, provide_jars
from qim_devkit.cassandra.node import CassandraNode, CassandraStartError

__all__ = [
    "CONTACT_POINTS_VARIABLE",
    "CassandraCluster",
    "CassandraNode",
    "CassandraNotAvailable",
    "CassandraStartError",
    "ExistingCluster",
    "find_java",
    "provide_jars",
]
