"""Probes: all three on the health port, asked in the way that the code answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from qim_common.config import split_listen
from qim_common.server.health import LIVENESS_SERVICE
from qim_devkit.kubernetes.checks.fault import Fault
from qim_devkit.kubernetes.checks.suite import Process, StoreSet, Suite

START_SECONDS: Final = 60
"""How long a process may take before it listens: imports, files, stores that do not answer at once."""

LOAD_SECONDS: Final = 60
"""How long a store may take before it listens. It does so before it loads its file, which takes far longer."""

HUNG_SECONDS: Final = 30
"""A liveness probe has to fail so long before it kills: a machine that is busy for a moment is no reason."""

DEAD_SECONDS: Final = 300
"""A liveness probe has to have restarted what is hung by then."""

UNREADY_SECONDS: Final = 60
"""A readiness probe has to have taken out what does not answer by then, or let in what does."""

_KINDS: Final = ("startup", "liveness", "readiness")


def faults(suite: Suite) -> list[Fault]:
    """Probes that are missing, ask the wrong port or service, or give up too soon."""
    found: list[Fault] = []
    for process in suite.processes:
        if process.program.stays:
            found += _of_process(process)
    for store in suite.stores:
        found += _of_store(store)
    return found


def _of_process(process: Process) -> Iterator[Fault]:
    listen = process.value("health_listen")
    if listen is None:
        return
    _, port = split_listen(listen)
    container = process.container
    for kind in _KINDS:
        probe: dict[str, Any] | None = getattr(container, kind)
        service = "" if kind == "readiness" else LIVENESS_SERVICE
        remedy = f"write {kind}Probe: {{grpc: {{port: {port}{f', service: {service}' if service else ''}}}}}"
        if probe is None:
            yield Fault(process.where, f"has no {kind} probe", remedy)
            continue
        asked = probe.get("grpc")
        if asked is None or asked.get("port") != port:
            yield Fault(process.where, f"its {kind} probe does not ask the health port {port} by gRPC", remedy)
        elif (asked.get("service") or "") != service:
            yield Fault(process.where, f"its {kind} probe asks for the service {asked.get('service', '')!r}", remedy)
    yield from _windows(process.where, container.startup, container.liveness, container.readiness, START_SECONDS)


def _of_store(store: StoreSet) -> Iterator[Fault]:
    where = store.where
    numbers = {*store.container.ports, *store.container.ports.values()}
    for kind in _KINDS:
        probe: dict[str, Any] | None = getattr(store.container, kind)
        if probe is None:
            yield Fault(where, f"has no {kind} probe", "startup and liveness: tcpSocket; readiness: an answer to PING")
        elif lacking := sorted(_named_files(probe) - store.container.files.keys()):
            yield Fault(where, f"its {kind} probe reads {', '.join(lacking)}, which is not mounted", "mount it")
        elif kind == "readiness" and "ping" not in " ".join(probe.get("exec", {}).get("command", ())).lower():
            yield Fault(where, "its readiness probe does not ask for PONG", "a server that loads is not ready")
        elif kind != "readiness" and probe.get("tcpSocket", {}).get("port") not in numbers:
            remedy = "ask its port by tcpSocket: a server that loads is alive"
            yield Fault(where, f"its {kind} probe does not ask whether the port is open", remedy)
    container = store.container
    yield from _windows(where, container.startup, container.liveness, container.readiness, LOAD_SECONDS)


def _named_files(probe: dict[str, Any]) -> set[str]:
    """The files below /etc that a command of a probe names."""
    return set(re.findall(r"/etc/[\w./-]+", " ".join(probe.get("exec", {}).get("command", ()))))


def _windows(
    where: str,
    startup: dict[str, Any] | None,
    liveness: dict[str, Any] | None,
    readiness: dict[str, Any] | None,
    seconds: int,
) -> Iterator[Fault]:
    if startup is not None and _window(startup) < seconds:
        yield Fault(where, f"its startup probe gives up after {_window(startup)} s", f"give it {seconds} s or more")
    for kind, probe, most in (("liveness", liveness, DEAD_SECONDS), ("readiness", readiness, UNREADY_SECONDS)):
        if probe is not None and int(probe.get("initialDelaySeconds", 0)) + _window(probe) > most:
            yield Fault(where, f"its {kind} probe takes longer than {most} s to notice anything", "ask more often")
    for kind, probe in (("startup", startup), ("liveness", liveness)):
        if probe is not None and "terminationGracePeriodSeconds" in probe:
            yield Fault(where, f"its {kind} probe has a grace of its own", "remove it: the pod's is for a whole drain")
    if liveness is not None and _window(liveness) < HUNG_SECONDS:
        remedy = f"let it take {HUNG_SECONDS} s or more"
        yield Fault(where, f"its liveness probe kills after {_window(liveness)} s", remedy)


def _window(probe: dict[str, Any]) -> int:
    """Seconds of failures before something happens; Kubernetes' defaults are 10 s and 3 times."""
    return int(probe.get("periodSeconds", 10)) * int(probe.get("failureThreshold", 3))
