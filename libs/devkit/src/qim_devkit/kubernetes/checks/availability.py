"""Availability: pods end in order, and neither an autoscaler nor a drained node takes more of them than may go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from qim_common.server.harness import CLOSE_SECONDS
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.programs import StoreKind
from qim_devkit.kubernetes.checks.selecting import matches, pod_of, selected
from qim_devkit.kubernetes.checks.suite import Process, Suite, namespace_of
from qim_devkit.kubernetes.pods import containers_of, replicas, strategy
from qim_devkit.kubernetes.render import Document

CLOSED_BESIDE: Final = 2
"""What a process closes at its end beside its connections to stores: background work with its channels, its traces."""

SPREAD: Final = frozenset({"kubernetes.io/hostname", "topology.kubernetes.io/zone"})
"""Over what several pods of one kind are spread."""

STORE_GRACE_SECONDS: Final = 30
"""What a store needs at least to write and sync what it holds back."""


def faults(suite: Suite) -> list[Fault]:
    """Ends that are cut short, selectors that mean nobody, and numbers that contradict each other."""
    found: list[Fault] = []
    for process in suite.processes:
        found += _grace(process)
    for store in suite.stores:
        if store.container.grace_seconds < STORE_GRACE_SECONDS:
            what = f"a store is killed after {store.container.grace_seconds} s"
            found.append(Fault(place(store.workload), what, f"give it {STORE_GRACE_SECONDS} s or more"))
    for workload in suite.workloads:
        found += _workload(suite, workload)
    return [*found, *_scalers(suite), *_budgets(suite)]


def grace_needed(drain_pause: float, drain: float, stores: int) -> float:
    """Seconds that an orderly end may take: the pause, the calls in flight, the commits behind them, and what closes
    afterwards, each in CLOSE_SECONDS (qim_common.server.harness)."""
    return drain_pause + 2 * drain + (stores + CLOSED_BESIDE) * CLOSE_SECONDS


def _grace(process: Process) -> Iterator[Fault]:
    pause, drain = process.value("drain_pause_seconds"), process.value("drain_seconds")
    if pause is None or drain is None:
        return
    addresses = (process.value("redis_addr"), *(process.value("message_store_addrs") or ()))
    if StoreKind.SESSION in process.program.stores:
        addresses += tuple(process.value("session_redis_addrs") or ())
    needed = grace_needed(pause, drain, len(list(filter(None, addresses))))
    given = process.container.grace_seconds
    if given <= needed:
        what = f"it is killed after {given} s, and an orderly end may take {needed:g} s"
        yield Fault(place(process.workload), what, "raise terminationGracePeriodSeconds, or lower QIM_DRAIN_SECONDS")
    if process.program.serves and pause == 0:
        remedy = "set QIM_DRAIN_PAUSE_SECONDS to the seconds in which names are looked up again"
        yield Fault(place(process.workload), "it takes no more calls while clients still find it", remedy)


def _workload(suite: Suite, workload: Document) -> Iterator[Fault]:
    spec, pod = workload["spec"], pod_of(workload)
    for raw in containers_of(workload):
        if raw.get("lifecycle"):
            what = "has lifecycle hooks, whose time the grace does not count and which may change what runs"
            yield Fault(f"{place(workload)}, container {raw['name']}", what, "remove them: SIGTERM drains")
    if spec.get("paused"):
        yield Fault(place(workload), "is paused: no change reaches its pods", "remove paused")
    if workload["kind"] in ("Deployment", "StatefulSet"):
        found = selected(suite, workload, spec.get("selector"))
        if not any(one is workload for one in found):
            yield Fault(place(workload), "its selector does not match its pods' labels", "make them the same")
        if any(one is not workload for one in found):
            yield Fault(place(workload), "its selector matches pods of others", "let it name one workload")
    template = spec.get("template", {}).get("spec", {})
    over = {constraint.get("topologyKey") for constraint in template.get("topologySpreadConstraints", ())}
    for key in sorted(SPREAD - over) if _several(suite, workload) else ():
        yield Fault(place(workload), f"its pods may all run in one {key}", "add a topologySpreadConstraint")
    for constraint in template.get("topologySpreadConstraints", ()):
        keys = constraint.get("matchLabelKeys") or ()
        selector = constraint.get("labelSelector")
        if not matches(selector, pod.labels) or any(_unknown(key, pod.labels) for key in keys):
            what = f"its pods are not spread over {constraint.get('topologyKey')}: the selector means others"
            yield Fault(place(workload), what, "name labels of its own pods")
            continue
        same = {key: pod.labels[key] for key in keys if key in pod.labels}
        others = [
            other
            for other in selected(suite, workload, selector)
            if other is not workload and matches({"matchLabels": same}, pod_of(other).labels)
        ]
        if others:
            what = f"spreading over {constraint.get('topologyKey')} counts pods of {place(others[0])} too"
            yield Fault(place(workload), what, "add app.kubernetes.io/name to matchLabelKeys")
    if workload["kind"] == "Deployment":
        yield from _rolling(suite, workload)


def _unknown(key: str, labels: Mapping[str, str]) -> bool:
    # The controller adds this one to each pod.
    return key != "pod-template-hash" and key not in labels


def _rolling(suite: Suite, workload: Document) -> Iterator[Fault]:
    name = workload["metadata"]["name"]
    process = next((one for one in suite.processes if one.workload is workload), None)
    if process is None or not process.program.stays:
        return
    try:
        found = strategy(suite.manifests, name)
    except ValueError as error:
        yield Fault(place(workload), str(error), "write type: RollingUpdate")
        return
    if found.max_unavailable > 0 or found.max_surge < 1:
        remedy = "write rollingUpdate: {maxUnavailable: 0, maxSurge: 1}"
        yield Fault(place(workload), "an update takes pods away before new ones are ready", remedy)


def _scalers(suite: Suite) -> Iterator[Fault]:
    for scaler in suite.manifests.of("HorizontalPodAutoscaler"):
        target = scaler["spec"].get("scaleTargetRef", {})
        workload = _named(suite, target.get("kind", ""), target.get("name", ""), namespace_of(scaler))
        if workload is None:
            what = f"scales {target.get('kind')} {target.get('name')}, which is not there"
            yield Fault(place(scaler), what, "name a workload")
            continue
        if workload["kind"] != "Deployment":
            yield Fault(place(scaler), f"scales {place(workload)}, whose number is fixed for ever", "remove it")
        if "replicas" in workload["spec"]:
            remedy = "leave it out: each apply would undo what was scaled"
            yield Fault(place(workload), f"says replicas beside {place(scaler)}", remedy)
        least, most = scaler["spec"].get("minReplicas", 1), scaler["spec"].get("maxReplicas", 1)
        if least < 2 or most <= least:
            remedy = "have two at least, and more at most"
            yield Fault(place(scaler), f"has from {least} to {most} pods", remedy)


def _budgets(suite: Suite) -> Iterator[Fault]:
    held: set[int] = set()
    for budget in suite.manifests.of("PodDisruptionBudget"):
        spec = budget["spec"]
        found = selected(suite, budget, spec.get("selector"))
        if len(found) != 1:
            names = ", ".join(map(place, found)) or "nobody's"
            yield Fault(place(budget), f"means {names} pods", "let it name one workload's")
            continue
        held.add(id(found[0]))
        yield from _budget(suite, budget, found[0])
    for workload in suite.workloads:
        if _several(suite, workload) and id(workload) not in held:
            what = "a drained node may take all of its pods at once"
            yield Fault(place(workload), what, "write a PodDisruptionBudget")


def _several(suite: Suite, workload: Document) -> bool:
    """Whether it runs more than one pod."""
    named = workload["kind"] in ("Deployment", "StatefulSet")
    return named and replicas(suite.manifests, workload["metadata"]["name"]) > 1


def _budget(suite: Suite, budget: Document, workload: Document) -> Iterator[Fault]:
    spec: Mapping[str, Any] = budget["spec"]
    count = replicas(suite.manifests, workload["metadata"]["name"])
    unavailable = spec.get("maxUnavailable")
    if unavailable is None:
        least = spec.get("minAvailable")
        unavailable = count - least if isinstance(least, int) else None
    if not isinstance(unavailable, int) or not 0 < unavailable < max(count, 2):
        what = f"lets {unavailable} of {count} pods go: either all may, or no node can ever be drained"
        yield Fault(place(budget), what, "write maxUnavailable: 1")


def _named(suite: Suite, kind: str, name: str, namespace: str) -> Document | None:
    return next(
        (
            document
            for document in suite.manifests.of(kind)
            if document["metadata"]["name"] == name and namespace_of(document) == namespace
        ),
        None,
    )
