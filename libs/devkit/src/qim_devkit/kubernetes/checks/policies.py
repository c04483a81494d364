"""What NetworkPolicies come to for one pod: the union of all that select it, as network plugins take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, TypeAlias

from qim_devkit.kubernetes.checks.selecting import Pod, matches
from qim_devkit.kubernetes.checks.suite import namespace_of
from qim_devkit.kubernetes.render import Document

DIRECTIONS: Final = ("ingress", "egress")

Space: TypeAlias = frozenset[tuple[int, str]]
"""Ports with their protocol."""

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")


@dataclass(frozen=True)
class Rule:
    """One rule of a policy in one direction. No peers means everybody, no ports means every port."""

    policy: str
    namespace: str
    peers: Sequence[Document]
    ports: Sequence[Document]


@dataclass(frozen=True)
class Rules:
    """The rules for one pod in one direction; without isolation everything is open."""

    isolated: bool
    direction: str
    rules: tuple[Rule, ...]

    def open_to(self, peer: Pod | None, ip: str, own: Pod, others: frozenset[int]) -> Space:
        """The ports that are open between the pod and a peer: those that rules name, and of `others` those in ranges.

        Args:
            peer: a pod, or None for an address outside of the cluster.
            ip: that address.
            own: the pod itself, whose port names count for ingress.
        """
        target = own if self.direction == "ingress" else peer
        found: set[tuple[int, str]] = set()
        for rule in self.rules:
            if _reaches(rule, peer, ip):
                found |= set(_ports(rule, target, others))
        return frozenset(found)

    def names_opening(self, peer: Pod | None, ip: str, own: Pod, port: int, protocol: str) -> list[str]:
        """The policies that open this port."""
        target = own if self.direction == "ingress" else peer
        return sorted(
            {
                rule.policy
                for rule in self.rules
                if _reaches(rule, peer, ip) and (port, protocol) in set(_ports(rule, target, frozenset({port})))
            }
        )


def rules_of(policies: Sequence[Document], pod: Pod, direction: str) -> Rules:
    """What all policies come to for `pod`; direction is one of DIRECTIONS."""
    isolated, found = False, []
    for policy in policies:
        spec = policy["spec"]
        if namespace_of(policy) != pod.namespace or not matches(spec.get("podSelector", {}), pod.labels):
            continue
        kinds = spec.get("policyTypes") or (["Ingress", "Egress"] if "egress" in spec else ["Ingress"])
        if direction.capitalize() not in kinds:
            continue
        isolated = True
        peers = "from" if direction == "ingress" else "to"
        found += [
            Rule(policy["metadata"]["name"], namespace_of(policy), rule.get(peers) or (), rule.get("ports") or ())
            for rule in spec.get(direction) or ()
        ]
    return Rules(isolated, direction, tuple(found))


def _reaches(rule: Rule, peer: Pod | None, ip: str) -> bool:
    return not rule.peers or any(_is(one, rule.namespace, peer, ip) for one in rule.peers)


def _is(one: Document, namespace: str, peer: Pod | None, ip: str) -> bool:
    if "ipBlock" in one:
        return peer is None and in_block(one["ipBlock"], ip_address(ip))
    if peer is None:
        return False
    if "namespaceSelector" in one:
        if not matches(one["namespaceSelector"], peer.namespace_labels):
            return False
    elif peer.namespace != namespace:
        return False
    return "podSelector" not in one or matches(one["podSelector"], peer.labels)


def in_block(block: Document, address: IPv4Address | IPv6Address) -> bool:
    """Whether an ipBlock has an address."""
    excepted = (ip_network(cidr, strict=False) for cidr in block.get("except") or ())
    return address in ip_network(block["cidr"], strict=False) and not any(address in network for network in excepted)


def _ports(rule: Rule, target: Pod | None, others: frozenset[int]) -> Iterator[tuple[int, str]]:
    if not rule.ports:
        yield from ((port, protocol) for port in others for protocol in PROTOCOLS)
    for said in rule.ports:
        protocol, port = said.get("protocol", "TCP"), said.get("port")
        if port is None:
            yield from ((one, protocol) for one in others)
        elif isinstance(port, str):
            if target is not None and port in target.ports:
                yield target.ports[port], protocol
        else:
            yield from _range(port, said.get("endPort"), protocol, others)


def _range(port: int, end: Any, protocol: str, others: frozenset[int]) -> Iterator[tuple[int, str]]:
    yield port, protocol
    if end is not None:
        yield end, protocol
        yield from ((one, protocol) for one in others if port <= one <= end)
