"""Checks of manifests against the code's own definitions, in both directions: what the code needs is there, and what is
there the code knows. `faults` runs them all; each is a pure function and has a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qim_devkit.kubernetes.checks import (
    addresses,
    alerts,
    availability,
    certificates,
    contents,
    environment,
    network,
    ports,
    probes,
    security,
    stores,
    suite,
)
from qim_devkit.kubernetes.checks.fault import Fault
from qim_devkit.kubernetes.checks.suite import Suite
from qim_devkit.kubernetes.render import Manifests

CHECKS: Final[tuple[Callable[[Suite], list[Fault]], ...]] = (
    suite.unreadable,
    environment.faults,
    contents.faults,
    addresses.faults,
    ports.faults,
    probes.faults,
    certificates.faults,
    network.faults,
    security.faults,
    availability.faults,
    stores.faults,
    alerts.faults,
)


_BROKEN: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What reading a document of another form than its kind has may raise; the API server says what is wrong with it."""


def faults(manifests: Manifests) -> list[Fault]:
    """Everything that is wrong, without repetition, in the order of places.

    A check that meets an object which is not of its kind's form says so instead of what it would find."""
    try:
        read = Suite.of(manifests)
    except _BROKEN as error:
        return [_unreadable("the manifests", error)]
    found: set[Fault] = set()
    for check in CHECKS:
        try:
            found |= set(check(read))
        except _BROKEN as error:
            found.add(_unreadable(check.__module__.rsplit(".", 1)[1], error))
    return sorted(found)


def _unreadable(what: str, error: Exception) -> Fault:
    return Fault(
        what, f"cannot be read or checked: {error!r}", "an object lacks what its kind demands; ask an API server"
    )


__all__ = ["CHECKS", "Fault", "Suite", "faults"]
