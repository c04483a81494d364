"""Policies that are too wide or too narrow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.spoiling import (
    add_peer,
    add_port,
    add_rule,
    component,
    remove,
    set_in,
    set_variable,
    spec,
    without_rule,
)

from qim_devkit.kubernetes.render import Document

POLICY = "NetworkPolicy"
ANYBODY: Document = {"ports": [{"protocol": "TCP", "port": 7401}]}


STORIES: list[Any] = [
    pytest.param(
        add_rule(
            "qim-valkey",
            "ingress",
            {
                "from": [
                    {
                        "namespaceSelector": {"matchLabels": {"qim-monitoring": "true"}},
                        "podSelector": {"matchLabels": {"app": "other"}},
                    }
                ],
                "ports": [{"port": 6379}],
            },
        ),
        "app=other at port 6379/TCP are open to StatefulSet qim-valkey",
        id="somebody-among-the-monitors",
    ),
    pytest.param(
        add_rule(
            "qim-valkey",
            "ingress",
            {
                "from": [
                    {
                        "podSelector": {
                            "matchExpressions": [
                                {
                                    "key": "app.kubernetes.io/component",
                                    "operator": "In",
                                    "values": ["writer", "stranger"],
                                }
                            ]
                        }
                    }
                ],
                "ports": [{"port": 6379}],
            },
        ),
        "component=stranger at port 6379/TCP are open to StatefulSet qim-valkey",
        id="the-second-of-two-values",
    ),
    pytest.param(
        add_rule("qim-writer", "egress", {"to": [{"ipBlock": {"cidr": "::/0"}}], "ports": [{"port": 443}]}),
        "open to Deployment qim-writer",
        id="the-webhooks-network-for-the-writer",
    ),
    pytest.param(
        add_rule("qim-valkey", "ingress", {"from": [{"ipBlock": {"cidr": "::/0"}}], "ports": [{"port": 6379}]}),
        "open to StatefulSet qim-valkey",
        id="the-network-for-a-store",
    ),
    pytest.param(
        set_variable("qim-process-config", "QIM_OTLP_ENDPOINT", "http://collector.telemetry:4317"),
        "calls to the collector of traces at port 4317/TCP are closed",
        id="traces-that-nobody-lets-out",
    ),
    pytest.param(
        set_in(POLICY, "qim-dns", "podSelector.matchExpressions", []), "open to StatefulSet", id="dns-for-stores"
    ),
    pytest.param(remove(POLICY, "qim-default-deny"), "Namespace qim: a pod without a policy", id="no-default-deny"),
    pytest.param(
        set_in(POLICY, "qim-default-deny", "policyTypes", ["Ingress"]), "is open for egress", id="only-ingress-denied"
    ),
    pytest.param(
        set_in(POLICY, "qim-default-deny", "ingress", [{}]), "NetworkPolicy qim-default-deny", id="denies-nothing"
    ),
    pytest.param(
        add_port("qim-writer", "ingress", {"protocol": "TCP", "port": 9999}),
        "NetworkPolicy qim-writer: calls from",
        id="another-port",
    ),
    pytest.param(
        add_port("qim-writer", "ingress", {"protocol": "TCP", "port": 7411}),
        "NetworkPolicy qim-writer",
        id="health-port",
    ),
    pytest.param(
        add_port("qim-writer", "ingress", {"protocol": "UDP", "port": 7401}), "7401/UDP", id="another-protocol"
    ),
    pytest.param(
        set_in(POLICY, "qim-writer", "ingress.0.ports.0.endPort", 7500),
        "NetworkPolicy qim-writer",
        id="a-range-of-ports",
    ),
    pytest.param(set_in(POLICY, "qim-writer", "ingress.0.ports", None), "at any port are open", id="every-port"),
    pytest.param(set_in(POLICY, "qim-writer", "ingress.0.from", []), "any pod of the namespace", id="from-everybody"),
    pytest.param(add_rule("qim-session", "ingress", {}), "NetworkPolicy qim-session: calls from", id="everything-open"),
    pytest.param(add_rule("qim-session", "ingress", ANYBODY), "NetworkPolicy qim-session: calls from", id="anybody"),
    pytest.param(
        add_peer("qim-writer", "ingress", component("archiver")), "calls from archiver pods", id="the-archiver"
    ),
    pytest.param(add_peer("qim-writer", "ingress", component("shop")), "component=shop at port 7401", id="a-new-pod"),
    pytest.param(
        add_peer("qim-writer", "ingress", {"podSelector": {"matchLabels": {"app": "shop"}}}), "app=shop", id="some-app"
    ),
    pytest.param(
        add_peer("qim-writer", "ingress", {"podSelector": {}}),
        "calls from any pod of the namespace",
        id="the-namespace",
    ),
    pytest.param(
        add_peer("qim-writer", "ingress", {"namespaceSelector": {}}), "a pod of another namespace", id="all-namespaces"
    ),
    pytest.param(
        add_peer("qim-admin", "ingress", {"ipBlock": {"cidr": "10.0.0.0/8"}}), "NetworkPolicy qim-admin", id="addresses"
    ),
    pytest.param(
        set_in(POLICY, "qim-writer", "ingress.0.from.2.podSelector", None), "NetworkPolicy qim-writer", id="any-client"
    ),
    pytest.param(
        set_in(POLICY, "qim-writer", "ingress.0.from.2.namespaceSelector", {}),
        "another namespace with",
        id="any-namespace",
    ),
    pytest.param(
        set_in(POLICY, "qim-writer", "ingress.0.from.2.podSelector.matchLabels.qim-role", "operator"),
        "calls from role gateway at port 7401/TCP are closed",
        id="another-role-lets-in",
    ),
    pytest.param(without_rule("qim-writer", "ingress", 0), "Deployment qim-writer: calls from", id="no-callers"),
    pytest.param(without_rule("qim-writer", "ingress", 1), "calls from Prometheus", id="no-metrics"),
    pytest.param(
        without_rule("qim-writer", "egress", 0), "Deployment qim-writer: calls to session pods", id="only-one-side"
    ),
    pytest.param(without_rule("qim-push", "egress", 3), "calls to the webhook", id="no-webhook"),
    pytest.param(
        set_in(POLICY, "qim-push", "egress.3.to.0.ipBlock.except", None), "NetworkPolicy qim-push", id="webhook-inside"
    ),
    pytest.param(remove(POLICY, "qim-dns"), "calls to DNS", id="no-dns"),
    pytest.param(
        set_in(POLICY, "qim-dns", "egress.0.to", [{"namespaceSelector": {}}]),
        "NetworkPolicy qim-dns",
        id="dns-anywhere",
    ),
    pytest.param(
        set_in(POLICY, "qim-cassandra", "egress.0.to", [{"ipBlock": {"cidr": "0.0.0.0/0"}}]),
        "NetworkPolicy qim-cassandra",
        id="cassandra-anywhere",
    ),
    pytest.param(set_in(POLICY, "qim-cassandra", "egress.0.to", []), "NetworkPolicy qim-cassandra", id="to-everybody"),
    pytest.param(
        lambda draft: spec(draft, POLICY, "qim-cassandra")["podSelector"]["matchExpressions"][0]["values"].append(
            "admin"
        ),
        "NetworkPolicy qim-cassandra: calls to Cassandra",
        id="cassandra-for-the-admin",
    ),
    pytest.param(
        lambda draft: spec(draft, POLICY, "qim-cassandra")["podSelector"]["matchExpressions"][0]["values"].remove(
            "writer"
        ),
        "Deployment qim-writer: calls to Cassandra at port 9042/TCP are closed",
        id="no-cassandra-for-the-writer",
    ),
    pytest.param(
        add_peer("qim-session-valkey", "ingress", component("admin")),
        "NetworkPolicy qim-session-valkey",
        id="store-opened",
    ),
    pytest.param(
        add_rule("qim-archiver", "egress", {"to": [component("session")], "ports": [{"port": 7402}]}),
        "NetworkPolicy qim-archiver: calls to session pods",
        id="the-archiver-calls-session",
    ),
]
