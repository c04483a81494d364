"""Fixtures that every test may ask for, and ports of its own for each worker of a parallel run."""

from __future__ import annotations

import os

import pytest

from qim_devkit.ports import CHOICE, RANGE_VARIABLE

pytest_plugins = [
    "tests.support.valkey",
    "tests.support.writers",
    "tests.support.shifted_clock",
    "tests.support.cassandra",
    "tests.support.images",
]
"""The embedded servers; more fixture modules are named here."""

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    share = len(CHOICE) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = CHOICE.start + share * int(worker.removeprefix("gw"))
    os.environ[RANGE_VARIABLE] = f"{first}-{first + share - 1}"

FIRST = (
    # Two that want the Cassandra cluster for themselves, one after the other on the first worker. What the second one
    # plays meanwhile needs no cluster: a worker is given its next file when two tests of the last one are left.
    "tests/faults/tiered/test_at_log.py",
    "tests/model/test_machine.py",
    "tests/e2e/test_import.py",
    "tests/faults/tiered/test_at_archived.py",
    "tests/conformance/test_scenarios.py",
    # What takes minutes must not be left for the end, where one worker would wait for the other.
    "tests/e2e/test_replay_tiered.py",
    "tests/e2e/test_up_tiered.py",
    "tests/conformance/test_scenarios_tiered.py",
    "tests/acceptance",
    "tests/model/consumers",
    "tests/e2e",
    "tests/faults",
)
"""Files and directories in the order in which a parallel run hands them out; all others follow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into that order; within a file it stays as it is."""

    def place(item: pytest.Item) -> int:
        return next((at for at, path in enumerate(FIRST) if item.nodeid.startswith(path)), len(FIRST))

    items.sort(key=place)
