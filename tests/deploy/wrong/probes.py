"""Probes that are missing or wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.spoiling import SERVICES, STORES, in_container

STORIES: list[Any] = [
    pytest.param(
        in_container("qim-writer", "readinessProbe.periodSeconds", 600),
        "its readiness probe takes longer",
        id="ten-minutes",
    ),
    pytest.param(
        in_container("qim-writer", "livenessProbe.initialDelaySeconds", 3600),
        "its liveness probe takes longer",
        id="an-hour-first",
    ),
    pytest.param(
        in_container("qim-writer", "livenessProbe.terminationGracePeriodSeconds", 1),
        "its liveness probe has a grace of its own",
        id="a-grace-of-the-probe",
    ),
    *(
        pytest.param(
            lambda draft, name=name, kind=kind, probe=probe: draft.container(name, kind).pop(f"{probe}Probe"),
            f"{kind} {name}, container {'valkey' if name in STORES else name.split('-')[1]}: has no {probe} probe",
            id=f"no-{probe}-probe-{name}",
        )
        for kind, names in (("Deployment", SERVICES), ("StatefulSet", STORES))
        for name in names
        for probe in ("startup", "liveness", "readiness")
    ),
    pytest.param(in_container("qim-writer", "livenessProbe.grpc.port", 7401), "its liveness probe", id="probe-of-grpc"),
    pytest.param(
        in_container("qim-writer", "livenessProbe.grpc.service", None),
        "its liveness probe asks",
        id="liveness-as-ready",
    ),
    pytest.param(
        in_container("qim-writer", "readinessProbe.grpc.service", "liveness"),
        "its readiness probe asks for the service 'liveness'",
        id="readiness-as-liveness",
    ),
    pytest.param(
        in_container("qim-writer", "startupProbe.failureThreshold", 3), "gives up after 6 s", id="short-startup"
    ),
    pytest.param(
        in_container("qim-writer", "livenessProbe.failureThreshold", 1), "kills after 10 s", id="short-liveness"
    ),
    pytest.param(
        in_container("qim-valkey", "readinessProbe", {"tcpSocket": {"port": 6379}}, "StatefulSet"),
        "does not ask for PONG",
        id="a-store-that-loads-is-ready",
    ),
]
