"""Fixtures that every test may ask for, and ports of its own for each worker of a parallel run."""

from __future__ import annotations

import os

from qim_devkit.ports import CHOICE, RANGE_VARIABLE

pytest_plugins = [
    "tests.support.valkey",
    "tests.support.writers",
    "tests.support.shifted_clock",
    "tests.support.cassandra",
]
"""The embedded servers; more fixture modules are named here."""

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    share = len(CHOICE) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = CHOICE.start + share * int(worker.removeprefix("gw"))
    os.environ[RANGE_VARIABLE] = f"{first}-{first + share - 1}"
