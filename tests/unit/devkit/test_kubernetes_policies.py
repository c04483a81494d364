"""Selectors, NetworkPolicies and amounts, read as Kubernetes and Valkey read them."""

from __future__ import annotations

from typing import Any

import pytest

from qim_devkit.kubernetes.checks.policies import Space, rules_of
from qim_devkit.kubernetes.checks.selecting import Pod, matches, witness
from qim_devkit.kubernetes.quantities import bytes_of, config_bytes

OWN = Pod("qim", {"app": "writer"}, {"name": "qim"}, {"grpc": 7401})
NEIGHBOUR = Pod("qim", {"app": "session"}, {"name": "qim"}, {"grpc": 7402})
GUEST = Pod("chat", {"app": "session"}, {"name": "chat", "clients": "yes"}, {})
PORT: dict[str, Any] = {"ports": [{"port": 7401}]}


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (None, {"a": "1"}, False),
        ({}, {}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ],
)
def test_selectors_match(selector: dict[str, Any] | None, labels: dict[str, str], expected: bool) -> None:
    assert matches(selector, labels) is expected


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"matchLabels": {"a": "1"}},
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["x", "y"]}]},
        {"matchExpressions": [{"key": "b", "operator": "Exists"}, {"key": "c", "operator": "DoesNotExist"}]},
    ],
)
def test_a_witness_matches_its_selector(selector: dict[str, Any]) -> None:
    assert matches(selector, witness(selector))


def policy(spec: dict[str, Any], namespace: str = "qim") -> dict[str, Any]:
    return {"kind": "NetworkPolicy", "metadata": {"name": "one", "namespace": namespace}, "spec": spec}


def opened(rule: dict[str, Any], peer: Pod | None, ip: str = "", direction: str = "ingress") -> Space:
    spec = {"podSelector": {}, "policyTypes": [direction.capitalize()], direction: [rule]}
    return rules_of([policy(spec)], OWN, direction).open_to(peer, ip, OWN, frozenset({1, 7401}))


@pytest.mark.parametrize(
    ("peers", "neighbour", "guest"),
    [
        ([], True, True),
        ([{"podSelector": {}}], True, False),
        ([{"podSelector": {"matchLabels": {"app": "session"}}}], True, False),
        ([{"podSelector": {"matchLabels": {"app": "admin"}}}], False, False),
        ([{"namespaceSelector": {}}], True, True),
        ([{"namespaceSelector": {"matchLabels": {"clients": "yes"}}}], False, True),
        (
            [{"namespaceSelector": {"matchLabels": {"clients": "yes"}}, "podSelector": {"matchLabels": {"a": "b"}}}],
            False,
            False,
        ),
        ([{"ipBlock": {"cidr": "0.0.0.0/0"}}], False, False),
        ([{"podSelector": {"matchLabels": {"app": "admin"}}}, {"namespaceSelector": {}}], True, True),
    ],
)
def test_peers_are_pods_of_the_own_namespace_unless_another_is_named(
    peers: list[dict[str, Any]], neighbour: bool, guest: bool
) -> None:
    rule = {**PORT, "from": peers}
    assert bool(opened(rule, NEIGHBOUR)) is neighbour
    assert bool(opened(rule, GUEST)) is guest


@pytest.mark.parametrize(
    ("block", "ip", "expected"),
    [
        ({"cidr": "10.0.0.0/8"}, "10.1.2.3", True),
        ({"cidr": "10.0.0.0/8"}, "11.1.2.3", False),
        ({"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}, "10.1.2.3", False),
        ({"cidr": "::/0"}, "10.1.2.3", False),
    ],
)
def test_blocks_have_addresses(block: dict[str, Any], ip: str, expected: bool) -> None:
    assert bool(opened({**PORT, "from": [{"ipBlock": block}]}, None, ip)) is expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"port": 7401}], {(7401, "TCP")}),
        ([{"port": "grpc"}], {(7401, "TCP")}),
        ([{"port": "other"}], set()),
        ([{"port": 53, "protocol": "UDP"}], {(53, "UDP")}),
        ([{"protocol": "TCP"}], {(1, "TCP"), (7401, "TCP")}),
        ([{"port": 7400, "endPort": 7500}], {(7400, "TCP"), (7401, "TCP"), (7500, "TCP")}),
        ([], {(port, protocol) for port in (1, 7401) for protocol in ("TCP", "UDP", "SCTP")}),
    ],
)
def test_ports_are_numbers_names_ranges_or_all(ports: list[dict[str, Any]], expected: Space) -> None:
    assert opened({"ports": ports}, NEIGHBOUR) == expected


def test_a_port_name_of_egress_is_the_other_pods() -> None:
    rule = {"to": [{"podSelector": {}}], "ports": [{"port": "grpc"}]}
    assert opened(rule, NEIGHBOUR, direction="egress") == {(7402, "TCP")}


def test_policies_add_up_and_isolate_only_the_pods_and_directions_that_they_name() -> None:
    deny = policy({"podSelector": {}, "policyTypes": ["Ingress"]})
    allow = policy({"podSelector": {"matchLabels": {"app": "writer"}}, "ingress": [PORT]})
    other = policy({"podSelector": {"matchLabels": {"app": "admin"}}, "ingress": [{}]})
    elsewhere = policy({"podSelector": {}, "ingress": [{}]}, "chat")
    found = rules_of([deny, allow, other, elsewhere], OWN, "ingress")
    assert found.isolated
    assert found.open_to(NEIGHBOUR, "", OWN, frozenset({1})) == {(7401, "TCP")}
    assert found.names_opening(NEIGHBOUR, "", OWN, 7401, "TCP") == ["one"]
    assert not rules_of([deny, allow], OWN, "egress").isolated
    assert rules_of([policy({"podSelector": {}, "egress": []})], OWN, "egress").isolated


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512Mi", 512 * 2**20), ("4Gi", 4 * 2**30), ("1G", 10**9), ("100", 100), (7, 7), ("1.5Ki", 1536)],
)
def test_quantities_are_bytes(text: str | int, expected: float) -> None:
    assert bytes_of(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("300mb", 300 * 2**20), ("5gb", 5 * 2**30), ("1m", 10**6), ("64", 64)])
def test_amounts_of_the_configuration_are_bytes(text: str, expected: int) -> None:
    assert config_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "much", "5 gb", "-1", "3XB"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        bytes_of(text)
    with pytest.raises(ValueError, match="is no"):
        config_bytes(text)
