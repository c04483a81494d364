"""The start of a suite of the backend `tiered` where Cassandra is not as it must be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.valkey import require_valkey

from qim_devkit.cassandra import ExistingCluster
from qim_devkit.processes import SuiteError
from qim_devkit.suite import Suite
from qim_devkit.tiered import Backend

pytestmark = pytest.mark.server


async def test_a_suite_whose_cassandra_does_not_answer_says_so_and_leaves_nothing_running(tmp_path: Path) -> None:
    require_valkey()
    suite = Suite(tmp_path / "suite", valkeys=1, backend=Backend.TIERED, cassandra=ExistingCluster("127.0.0.1:1"))
    with pytest.raises(SuiteError, match=r"^Cassandra at 127\.0\.0\.1:1: "):
        await suite.start()
    assert not any(map(suite.running, ("valkey-0", "writer", "archiver")))
    assert suite.addresses.keys() == {"writer", "session", "admin"}
