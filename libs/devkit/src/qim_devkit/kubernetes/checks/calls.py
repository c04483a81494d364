"""Who calls whom: the role table (qim_common.roles) put on the programs, and the stores, DNS and metrics they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from qim_common.cassandra import CassandraSettings
from qim_common.config import split_listen
from qim_common.identity import Role
from qim_common.roles import CALLERS
from qim_devkit.kubernetes.checks.programs import PROGRAMS
from qim_devkit.kubernetes.checks.suite import Process, StoreSet, Suite

SERVED_BY: Final = {
    "qim.membership.v1.GroupMembership": "writer",
    "qim.writer.v1.Writer": "writer",
    "qim.writer.v1.GroupControl": "writer",
    "qim.writer.v1.Internal": "writer",
    "qim.session.v1.Session": "session",
    "qim.admin.v1.GroupAdmin": "admin",
}
"""Full name of a gRPC service -> the component whose program serves it. A test compares it with the role table."""

MONITORING: Final = "monitoring"
DNS: Final = "dns"
CASSANDRA: Final = "cassandra"
WEBHOOK: Final = "webhook"
COLLECTOR: Final = "collector"
DNS_PORTS: Final = frozenset({(53, "TCP"), (53, "UDP")})
_HTTPS: Final = 443
_OTLP: Final = 4317


@dataclass(frozen=True, slots=True)
class Flow:
    """One call that is needed: components, roles from outside, or one of the names above."""

    caller: str
    server: str
    port: int
    protocol: str = "TCP"


def callers_of(component: str) -> frozenset[Role]:
    """The roles that may call any method of a component."""
    return frozenset(
        role
        for method, callers in CALLERS.items()
        if SERVED_BY.get(method.split("/")[1]) == component
        for role in callers
    )


def wanted_flows(suite: Suite) -> frozenset[Flow]:
    """Every connection that the suite needs, and no other."""
    found: set[Flow] = set()
    for process in suite.processes:
        found |= set(_served(suite, process))
        found |= set(_needed(suite, process))
    return frozenset(found)


def _served(suite: Suite, server: Process) -> Iterator[Flow]:
    component = server.program.component
    if (metrics := server.value("metrics_listen")) is not None:
        yield Flow(MONITORING, component, split_listen(metrics)[1])
    if (listen := server.value("listen")) is None:
        return
    port, roles = split_listen(listen)[1], callers_of(component)
    own_roles = {program.role for program in PROGRAMS}
    for role in roles - own_roles:
        yield Flow(role, component, port)
    for caller in suite.processes:
        # A role may be that of several programs; who is told no address calls nobody.
        if caller.program.role in roles and caller.has(f"{component}_addr"):
            yield Flow(caller.program.component, component, port)


def _needed(suite: Suite, caller: Process) -> Iterator[Flow]:
    component = caller.program.component
    for port, protocol in DNS_PORTS:
        yield Flow(component, DNS, port, protocol)
    for kind in caller.program.stores:
        store = suite.store(kind)
        for port in () if store is None else _store_ports(store):
            yield Flow(component, kind, port)
    for _, port in cassandra_endpoints(caller):
        yield Flow(component, CASSANDRA, port)
    if url := caller.value("otlp_endpoint"):
        yield Flow(component, COLLECTOR, urlsplit(url).port or _OTLP)
    if (url := caller.value("webhook_url")) is not None:
        yield Flow(component, WEBHOOK, urlsplit(url).port or _HTTPS)


def _store_ports(store: StoreSet) -> list[int]:
    return sorted(set(store.container.ports.values()))


def cassandra_endpoints(process: Process) -> list[tuple[str, int]]:
    """Hosts and ports of the contact points; none for who does without."""
    found = process.read.get(CassandraSettings)
    settings = None if found is None else found.settings
    return settings.endpoints if isinstance(settings, CassandraSettings) else []


def cassandra_ports(suite: Suite) -> list[int]:
    """The ports of the contact points."""
    return sorted({port for process in suite.processes for _, port in cassandra_endpoints(process)})


def webhook_port(suite: Suite) -> int | None:
    """The port of the webhook; None without one."""
    urls = [url for process in suite.processes if (url := process.value("webhook_url")) is not None]
    return (urlsplit(urls[0]).port or _HTTPS) if urls else None


def collector_port(suite: Suite) -> int | None:
    """The port of the collector of traces; None without one."""
    urls = [url for process in suite.processes if (url := process.value("otlp_endpoint"))]
    return (urlsplit(urls[0]).port or _OTLP) if urls else None
