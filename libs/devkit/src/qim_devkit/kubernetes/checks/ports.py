"""Ports: those that a program listens on are those of its container, and Services and monitors lead to such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qim_common.config import split_listen
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.selecting import pod_of, selected, service_targets
from qim_devkit.kubernetes.checks.suite import Process, StoreSet, Suite
from qim_devkit.kubernetes.render import Document

LISTENERS: Final = {"grpc": "listen", "health": "health_listen", "metrics": "metrics_listen"}
"""Name of the container's port -> the setting."""

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  a pod's own address, which nobody knows before it runs


def faults(suite: Suite) -> list[Fault]:
    """Ports that are missing, too many, or other ones than those that are listened on."""
    found: list[Fault] = []
    for process in suite.processes:
        found += _containers(process)
    return [*found, *_services(suite), *_monitors(suite)]


def _containers(process: Process) -> Iterator[Fault]:
    wanted: dict[str, int] = {}
    for port, setting in LISTENERS.items():
        address = process.value(setting)
        if address is None:
            if process.has(setting):
                return
            continue
        host, wanted[port] = split_listen(address)
        if host not in EVERYWHERE:
            remedy = f"write 0.0.0.0:{wanted[port]}"
            yield Fault(process.where, f"QIM_{setting.upper()} is {address}, where no other pod reaches it", remedy)
    there = dict(process.container.ports)
    for name in sorted(wanted.keys() | there.keys()):
        if wanted.get(name) != there.get(name):
            listened, said = wanted.get(name, "nothing"), there.get(name, "nothing")
            yield Fault(
                process.where, f"port {name}: it listens on {listened}, the container has {said}", "make them the same"
            )


def _services(suite: Suite) -> Iterator[Fault]:
    both: list[Process | StoreSet] = [*suite.processes, *suite.stores]
    ours = {id(one.workload): one for one in both}
    served: set[int] = set()
    for service in suite.manifests.of("Service"):
        targets = service_targets(suite, service)
        found = [ours[id(target)] for target in targets if id(target) in ours]
        if not targets:
            yield Fault(place(service), "selects no pods", "give it the labels of some")
        if len(found) > 1:
            names = ", ".join(place(one.workload) for one in found)
            yield Fault(place(service), f"selects the pods of {names}", "select one's")
        for one in found:
            served.add(id(one.workload))
            yield from _service(service, one)
    for one in ours.values():
        needs = isinstance(one, StoreSet) or one.program.serves
        if needs and id(one.workload) not in served:
            yield Fault(place(one.workload), "no Service leads to its pods", "make a headless one")


def _service(service: Document, one: Process | StoreSet) -> Iterator[Fault]:
    where, spec = place(service), service["spec"]
    is_store = isinstance(one, StoreSet)
    if spec.get("clusterIP") != "None":
        remedy = "write clusterIP: None"
        yield Fault(where, "is not headless: gRPC clients would keep to one pod, and stores have no names", remedy)
    if bool(spec.get("publishNotReadyAddresses")) != is_store:
        yield Fault(
            where,
            "tells the addresses of pods that are not ready" if not is_store else "hides pods that are not ready",
            "set publishNotReadyAddresses for stores, whose names are looked up while they load, and for nothing else",
        )
    names = {"valkey"} if is_store else {"grpc"}
    if {port.get("name") for port in spec.get("ports", ())} != names:
        yield Fault(where, "has other ports than what is called", f"have the port {', '.join(names)} alone")
    for port in spec.get("ports", ()):
        target = port.get("targetPort", port["port"])
        number = one.container.ports.get(target) if isinstance(target, str) else target
        if number not in one.container.ports.values():
            yield Fault(where, f"leads to port {target}, which {place(one.workload)} does not have", "name one of it")
        elif number != port["port"]:
            remedy = f"write port: {number}"
            yield Fault(where, f"port {port['port']}: who resolves a headless name calls the pod's {number}", remedy)


def _monitors(suite: Suite) -> Iterator[Fault]:
    for monitor in suite.manifests.of("PodMonitor"):
        targets = selected(suite, monitor, monitor["spec"].get("selector"))
        if not monitor["spec"].get("podMetricsEndpoints"):
            yield Fault(place(monitor), "reads no port", "name the port metrics")
        for endpoint in monitor["spec"].get("podMetricsEndpoints", ()):
            port = endpoint.get("port")
            reached = [target for target in targets if port in pod_of(target).ports]
            lacking = [
                process.name
                for process in suite.processes
                if process.has("metrics_listen") and not any(process.workload is target for target in reached)
            ]
            if lacking:
                yield Fault(
                    place(monitor), f"port {port} reaches none of {', '.join(lacking)}", "select the port metrics"
                )
