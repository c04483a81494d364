"""NetworkPolicies: together they let exactly the calls of the role table through, and what else a process needs.

They are evaluated as a network plugin does, not compared as text: for each pod, what may it call, and who may call it?
Those asked for are the suite's own pods, everybody outside who has a role, and one stranger for each selector of a
policy, so that a selector which is too wide lets in somebody who has no business there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qim_devkit.kubernetes.checks.calls import Flow, wanted_flows
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.policies import DIRECTIONS, Rules, Space, rules_of
from qim_devkit.kubernetes.checks.selecting import Pod, pod_of
from qim_devkit.kubernetes.checks.strangers import Peer, known_peers, strangers
from qim_devkit.kubernetes.checks.suite import COMPONENT, Suite, namespace_of
from qim_devkit.kubernetes.render import Document

ANY_PORT: Final = 1
"""A port that nobody uses: open only where a rule names none, or a range."""


def faults(suite: Suite) -> list[Fault]:
    """Calls that are needed and closed, and what is open without need."""
    if not suite.processes:
        return []
    found: list[Fault] = []
    flows = wanted_flows(suite)
    policies = suite.manifests.of("NetworkPolicy")
    peers = [*known_peers(suite), *strangers(suite)]
    namespace = namespace_of(suite.processes[0].workload)
    for direction in DIRECTIONS:
        nobody = Pod(namespace, {})
        if not rules_of(policies, nobody, direction).isolated:
            what = f"a pod without a policy of its own is open for {direction}"
            found.append(Fault(f"Namespace {namespace}", what, f"deny {direction} to podSelector {{}} by default"))
        for workload in suite.workloads:
            rules = rules_of(policies, pod_of(workload), direction)
            if not rules.isolated:
                what = f"is open for {direction}: no policy of it selects its pods"
                found.append(Fault(place(workload), what, "deny by default"))
                continue
            for peer in peers:
                found += _compared(workload, rules, peer, direction, flows)
    return found


def _compared(workload: Document, rules: Rules, peer: Peer, direction: str, flows: frozenset[Flow]) -> Iterator[Fault]:
    component = pod_of(workload).labels.get(COMPONENT, "")
    needed: Space = frozenset(
        (flow.port, flow.protocol)
        for flow in flows
        if ((flow.caller, flow.server) if direction == "egress" else (flow.server, flow.caller))
        == (component, peer.name)
    )
    open_to = rules.open_to(peer.pod, peer.ip, pod_of(workload), frozenset({ANY_PORT, *(port for port, _ in needed)}))
    toward = "calls to" if direction == "egress" else "calls from"
    for port, protocol in [] if peer.supposed else sorted(needed - open_to):
        what = f"{toward} {peer} at port {port}/{protocol} are closed"
        yield Fault(place(workload), what, f"allow them in a NetworkPolicy ({direction})")
    for port, protocol in sorted(open_to - needed):
        names = ", ".join(rules.names_opening(peer.pod, peer.ip, pod_of(workload), port, protocol))
        at = "any port" if port == ANY_PORT else f"port {port}/{protocol}"
        what = f"{toward} {peer} at {at} are open to {place(workload)}, and nothing needs them"
        yield Fault(f"NetworkPolicy {names}", what, "close them")
