"""What the start of a suite, and of the cluster that it uses, may be refused with; each message says what to do."""

from __future__ import annotations

from typing import Final

from qim_devkit.cassandra import CassandraNotAvailable, CassandraStartError
from qim_devkit.processes import SuiteError
from qim_devkit.valkey import ValkeyNotAvailable, ValkeyStartError

START_FAULTS: Final = (SuiteError, ValkeyStartError, ValkeyNotAvailable, CassandraStartError, CassandraNotAvailable)
