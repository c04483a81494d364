"""Addresses: the names in the settings are Services and pods of the manifests, stores in their order and each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from qim_common.config import AdminSettings, PushWebhookSettings, SessionSettings, WriterSettings, split_listen
from qim_common.redis.address import RedisAddress
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.programs import StoreKind
from qim_devkit.kubernetes.checks.selecting import service_targets
from qim_devkit.kubernetes.checks.suite import Process, StoreSet, Suite, namespace_of
from qim_devkit.kubernetes.pods import pod_template, replicas
from qim_devkit.kubernetes.render import Document

CLUSTER_DOMAIN: Final = "cluster.local"

SERVICE_FIELDS: Final = frozenset(
    name
    for cls in (WriterSettings, SessionSettings, AdminSettings, PushWebhookSettings)
    for name in cls.model_fields
    if name.endswith("_addr") and name != "redis_addr"
)
"""Settings that are the address of a service, such as `writer_addr`. What is before `_addr` is its component."""

_COMMIT: Final = "QIM_REDIS_ADDR, QIM_MESSAGE_STORE_ADDRS"
_SESSION: Final = "QIM_SESSION_REDIS_ADDRS"


def faults(suite: Suite) -> list[Fault]:
    """Addresses where nobody is, of somebody else, or in another order than the pods'."""
    found: list[Fault] = []
    for process in suite.processes:
        found += _services(suite, process)
        found += _stores(suite, process)
    for workload in suite.workloads:
        found += _names(workload)
    return found


def _names(workload: Document) -> Iterator[Fault]:
    """Every pod looks names up where the cluster answers."""
    spec = pod_template(workload)["spec"]
    if spec.get("hostAliases"):
        yield Fault(place(workload), "has hostAliases, which lead elsewhere than Services do", "remove them")
    if (policy := spec.get("dnsPolicy", "ClusterFirst")) != "ClusterFirst":
        yield Fault(place(workload), f"its dnsPolicy {policy} knows no Service", "remove it")


def service_address(process: Process, component: str) -> str:
    """`host:port` under which a process calls another; empty where it does not."""
    return str(process.value(f"{component}_addr") or "")


def names_of(service: Document) -> tuple[str, ...]:
    """Every name that a Service has, the shortest first."""
    name, namespace = service["metadata"]["name"], namespace_of(service)
    return (name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{CLUSTER_DOMAIN}")


def service_named(suite: Suite, host: str) -> Document | None:
    """The Service that a host name means, None for what is elsewhere."""
    return next((service for service in suite.manifests.of("Service") if host in names_of(service)), None)


def _services(suite: Suite, process: Process) -> Iterator[Fault]:
    for name in sorted(SERVICE_FIELDS):
        component, variable = name.removesuffix("_addr"), f"QIM_{name.upper()}"
        address = service_address(process, component)
        if not address:
            continue
        host, port = split_listen(address)
        service, server = service_named(suite, host), suite.serving(component)
        if service is None or server is None:
            yield Fault(process.where, f"{variable} is {address}, and no Service has this name", "name the Service")
            continue
        if not any(target is server.workload for target in service_targets(suite, service)):
            yield Fault(
                process.where,
                f"{variable} is {address}, and {place(service)} does not lead to {place(server.workload)}",
                "name the Service that does",
            )
        if port != server.container.ports.get("grpc"):
            there = server.container.ports.get("grpc")
            yield Fault(process.where, f"{variable} is {address}, and its gRPC port is {there}", "name that port")


def _stores(suite: Suite, process: Process) -> Iterator[Fault]:
    if not process.has("redis_addr") or process.value("backend") is None:
        return
    commits = [address for address in (process.value("redis_addr"), *process.value("message_store_addrs")) if address]
    yield from _instances(suite, process, _COMMIT, commits, suite.store(StoreKind.COMMIT))
    sessions = process.value("session_redis_addrs")
    yield from _instances(suite, process, _SESSION, sessions, suite.store(StoreKind.SESSION))


def _instances(
    suite: Suite, process: Process, variable: str, addresses: Sequence[str], store: StoreSet | None
) -> Iterator[Fault]:
    parsed = [RedisAddress.parse(address) for address in addresses]
    hosts = [(found.host, found.port) for found in parsed]
    if store is None:
        for host, _ in hosts:
            if any(host.endswith(f".{name}") for one in suite.stores for name in _own_names(suite, one)):
                continue  # stores of the other kind serve both
            if "." not in host or host.count(".") == 1:
                remedy = "name pods of a StatefulSet, or a store outside by its full name"
                yield Fault(process.where, f"{variable} names {host}, and no pod has this name", remedy)
        return
    for address in parsed:
        if address.tls or address.database:
            what = f"{variable} is {address}, and {place(store.workload)} has neither TLS nor other databases"
            yield Fault(process.where, what, "write host:port")
    count = replicas(suite.manifests, store.workload["metadata"]["name"])
    first = (store.workload["spec"].get("ordinals") or {}).get("start", 0)
    numbers = range(first, first + count)
    name, names = store.workload["metadata"]["name"], _own_names(suite, store)
    if not names:
        service = store.workload["spec"].get("serviceName")
        yield Fault(place(store.workload), f"its serviceName {service} is no Service", "name its headless Service")
        return
    port = next(iter(store.container.ports.values()), 0)
    wanted = [[f"{name}-{number}.{service}" for service in names] for number in numbers]
    told = ", ".join(f"{name}-{number}.{names[0]}:{port}" for number in numbers)
    if len(hosts) != count or any(
        host not in forms or at != port for (host, at), forms in zip(hosts, wanted, strict=True)
    ):
        there = ", ".join(f"{host}:{at}" for host, at in hosts) or "nothing"
        remedy = f"write {told}: each pod of {place(store.workload)} once, in this order"
        yield Fault(process.where, f"{variable}: {there}", remedy)


def _own_names(suite: Suite, store: StoreSet) -> tuple[str, ...]:
    """The names of the Service that gives its pods theirs; none where it is not there or selects others."""
    name, namespace = store.workload["spec"].get("serviceName"), namespace_of(store.workload)
    for service in suite.manifests.of("Service"):
        if service["metadata"]["name"] == name and namespace_of(service) == namespace:
            leads = any(target is store.workload for target in service_targets(suite, service))
            return names_of(service) if leads else ()
    return ()
