"""With whom the suite's pods may be connected, as policies see it: each other, those outside with a role, strangers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

from qim_common.identity import Role
from qim_devkit.kubernetes.checks.calls import (
    CASSANDRA,
    COLLECTOR,
    DNS,
    MONITORING,
    WEBHOOK,
    cassandra_endpoints,
    cassandra_ports,
    collector_port,
    webhook_port,
)
from qim_devkit.kubernetes.checks.policies import in_block
from qim_devkit.kubernetes.checks.selecting import NAMESPACE_NAME, Pod, pod_of, witness, witnesses
from qim_devkit.kubernetes.checks.suite import COMPONENT, Suite, namespace_of
from qim_devkit.kubernetes.pods import workloads
from qim_devkit.kubernetes.render import Document

CLIENTS: Final = {"qim-clients": "true"}
"""Labels of namespaces whose pods may call, each what its label ROLE allows."""

ROLE: Final = "qim-role"
MONITORS: Final = {"qim-monitoring": "true"}
"""Labels of namespaces whose pods read the metrics ports."""

KUBE_DNS: Final = Pod("kube-system", {"k8s-app": "kube-dns"}, {NAMESPACE_NAME: "kube-system"})
OUTSIDE_ROLES: Final = (Role.GATEWAY, Role.BACKEND, Role.OPERATOR)

_WIDEST: Final = 1024
"""Addresses of a block that is a cluster of Cassandra, not a network."""


@dataclass(frozen=True)
class Peer:
    """The other end of a call.

    Attributes:
        name: as flows name it (qim_devkit.kubernetes.checks.calls); empty for a stranger.
        description: for messages.
        pod: None for an address outside of the cluster.
        ip: that address.
        supposed: made up from a selector; it may have no more than its name needs, and nobody misses it.
    """

    name: str
    description: str
    pod: Pod | None
    ip: str = ""
    supposed: bool = False

    def __str__(self) -> str:
        return self.description


def known_peers(suite: Suite) -> Iterator[Peer]:
    """Those that have a name."""
    for workload in suite.workloads:
        pod = pod_of(workload)
        yield Peer(pod.labels.get(COMPONENT, ""), f"{pod.labels.get(COMPONENT)} pods", pod)
    for role in OUTSIDE_ROLES:
        yield Peer(role, f"role {role}", Pod("clients", {ROLE: role}, CLIENTS))
    yield Peer(MONITORING, "Prometheus", Pod("monitoring", {}, MONITORS))
    yield Peer(DNS, "DNS", KUBE_DNS)
    yield from _cassandra(suite)
    yield from _webhook(suite)
    yield from _collector(suite)


def strangers(suite: Suite) -> Iterator[Peer]:
    """Pods and addresses that have no business here: some that anybody might be, and one for each peer of a policy."""
    namespace = namespace_of(suite.processes[0].workload)
    own = {NAMESPACE_NAME: namespace}
    yield Peer("", "any pod of the namespace", Pod(namespace, {}, own))
    yield Peer("", "a pod of another namespace", Pod("elsewhere", {}, {NAMESPACE_NAME: "elsewhere"}))
    yield Peer("", "a client without a role", Pod("clients", {}, CLIENTS))
    for role in OUTSIDE_ROLES:
        yield Peer("", f"a pod of another namespace with {ROLE}={role}", Pod("elsewhere", {ROLE: role}))
    yield Peer("", "any pod of kube-system", Pod("kube-system", {}, KUBE_DNS.namespace_labels))
    yield Peer("", "an address inside", None, "10.123.45.67")
    for policy in suite.manifests.of("NetworkPolicy"):
        for rule in (*(policy["spec"].get("ingress") or ()), *(policy["spec"].get("egress") or ())):
            for one in (*(rule.get("from") or ()), *(rule.get("to") or ())):
                yield from _of(suite, policy, one)


def _of(suite: Suite, policy: Document, one: Document) -> Iterator[Peer]:
    """Whoever has nothing but what this selector asks for."""
    if "ipBlock" in one:
        address = next(iter(ip_network(one["ipBlock"]["cidr"], strict=False).hosts()))
        cassandra, webhook = _is_cassandra_block(suite, one), _is_webhook_block(suite, one)
        name = CASSANDRA if cassandra else WEBHOOK if webhook else ""
        yield Peer(name, f"the addresses {one['ipBlock']['cidr']}", None, str(address), supposed=True)
        return
    namespace = namespace_of(policy)
    inside = "namespaceSelector" not in one
    for outer in [{NAMESPACE_NAME: namespace}] if inside else list(witnesses(one["namespaceSelector"])):
        where = namespace if inside else outer.get(NAMESPACE_NAME, "elsewhere")
        for labels in witnesses(one.get("podSelector")):
            pod = Pod(where, labels, outer)
            elsewhere = CASSANDRA if _is_cassandra(suite, one) else COLLECTOR if _is_collector(suite, one) else ""
            name = elsewhere or _name_of(suite, pod)
            told = ", ".join(f"{key}={value}" for key, value in (*outer.items(), *labels.items()))
            yield Peer(name, f"a pod with {told or 'any label'}", pod, supposed=True)


def _name_of(suite: Suite, pod: Pod) -> str:
    """Who it is as far as its labels say; empty for nobody in particular."""
    if pod.namespace == namespace_of(suite.processes[0].workload):
        components = {pod_of(workload).labels.get(COMPONENT) for workload in workloads(suite.manifests)}
        component = pod.labels.get(COMPONENT, "")
        return component if component in components else ""
    if pod.namespace_labels.get(NAMESPACE_NAME) == KUBE_DNS.namespace:
        return DNS if KUBE_DNS.labels.items() <= pod.labels.items() else ""
    if MONITORS.items() <= pod.namespace_labels.items():
        return MONITORING
    role = pod.labels.get(ROLE, "")
    return role if CLIENTS.items() <= pod.namespace_labels.items() and role in OUTSIDE_ROLES else ""


def _egress_peers(suite: Suite, port: int) -> Iterator[Document]:
    """Those to whom policies open nothing but this port."""
    for policy in suite.manifests.of("NetworkPolicy"):
        for rule in policy["spec"].get("egress") or ():
            if [said.get("port") for said in rule.get("ports") or ()] == [port]:
                yield from rule.get("to") or ()


def _cassandra_peers(suite: Suite) -> Iterator[Document]:
    """Where policies say that Cassandra is: it is not a part of these manifests."""
    return (one for port in cassandra_ports(suite) for one in _egress_peers(suite, port))


def _is_cassandra(suite: Suite, one: Document) -> bool:
    """A namespace or pods that are named, outside of the suite's and the system's."""
    selector = one.get("namespaceSelector") or {}
    labels = witness(selector)
    known = {namespace_of(suite.processes[0].workload), KUBE_DNS.namespace}
    named = bool(labels) and labels.get(NAMESPACE_NAME) not in known
    return named and one in list(_cassandra_peers(suite))


def _is_cassandra_block(suite: Suite, one: Document) -> bool:
    """Some addresses; the whole network is no place."""
    small = ip_network(one["ipBlock"]["cidr"], strict=False).num_addresses <= _WIDEST
    return small and one in list(_cassandra_peers(suite))


def _cassandra(suite: Suite) -> Iterator[Peer]:
    """By contact points that are addresses, or by what policies name for the port."""
    points = {host for one in suite.processes for host, _ in cassandra_endpoints(one)}
    addresses = [host for host in sorted(points) if _is_address(host)]
    if addresses:
        for host in addresses:
            yield Peer(CASSANDRA, f"Cassandra at {host}", None, host)
        return
    found = [one for one in _cassandra_peers(suite) if "ipBlock" not in one and _is_cassandra(suite, one)]
    blocks = [one for one in _cassandra_peers(suite) if "ipBlock" in one and _is_cassandra_block(suite, one)]
    for one in found[:1]:
        labels = witness(one["namespaceSelector"])
        where = labels.get(NAMESPACE_NAME, "elsewhere")
        yield Peer(CASSANDRA, "Cassandra", Pod(where, witness(one.get("podSelector")), labels))
    for one in blocks[:1]:
        network = ip_network(one["ipBlock"]["cidr"], strict=False)
        yield Peer(CASSANDRA, "Cassandra", None, str(next(iter(network.hosts()))))
    if points and not found and not blocks:
        yield Peer(CASSANDRA, "Cassandra", Pod("cassandra", {}, {NAMESPACE_NAME: "cassandra"}))


def _is_webhook_block(suite: Suite, one: Document) -> bool:
    """The public network, without the private addresses that pods and nodes have."""
    port = webhook_port(suite)
    if port is None or one not in list(_egress_peers(suite, port)):
        return False
    block = one["ipBlock"]
    private = ("10.1.2.3", "100.64.1.2", "172.16.1.2", "192.168.1.2", "169.254.169.254", "fd00::1", "fe80::1")
    return not any(in_block(block, ip_address(address)) for address in private)


def _webhook(suite: Suite) -> Iterator[Peer]:
    port = webhook_port(suite)
    if port is None:
        return
    blocks = [one for one in _egress_peers(suite, port) if "ipBlock" in one and _is_webhook_block(suite, one)]
    if not blocks:
        yield Peer(WEBHOOK, "the webhook", None, "192.0.2.1")
    for one in blocks[:1]:
        address = next(iter(ip_network(one["ipBlock"]["cidr"], strict=False).hosts()))
        yield Peer(WEBHOOK, "the webhook", None, str(address))


def _is_collector(suite: Suite, one: Document) -> bool:
    """Pods of a namespace that is named, to whom nothing but the collector's port is open."""
    port = collector_port(suite)
    named = bool(witness(one.get("namespaceSelector")))
    return port is not None and named and one in list(_egress_peers(suite, port))


def _collector(suite: Suite) -> Iterator[Peer]:
    port = collector_port(suite)
    if port is None:
        return
    found = [one for one in _egress_peers(suite, port) if _is_collector(suite, one)]
    labels = witness(found[0]["namespaceSelector"]) if found else {NAMESPACE_NAME: "collector"}
    pods = witness(found[0].get("podSelector")) if found else {}
    yield Peer(COLLECTOR, "the collector of traces", Pod(labels.get(NAMESPACE_NAME, "elsewhere"), pods, labels))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
