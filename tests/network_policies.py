"""NetworkPolicies of manifests as nftables rules of one pod: what a network plugin does, for the few forms used here.

A pod that a policy selects takes (sends) only what some rule allows, answers to what it sent (took), and what it says
to itself. Selectors are by matchLabels.
"""
from typing import Iterable

NAMESPACE = {"kubernetes.io/metadata.name": "clrec"}  # labels of the namespace that everything is applied to
_HOOKS = {"Ingress": ("input", "from", "saddr", "ingress"), "Egress": ("output", "to", "daddr", "egress")}


def rules(policies: list[dict], labels: dict, pods: Iterable[tuple[dict, str, dict]], node: str) -> str:
    """A script for nft that replaces the rules of a pod.

    Args:
      policies: NetworkPolicies.
      labels: the pod's.
      pods: labels, address and labels of the namespace of every pod.
      node: the node's address, from which kubelets' probes come.
    """
    chosen = [policy["spec"] for policy in policies if _selects(policy["spec"]["podSelector"], labels)]
    lines = ["flush ruleset", "table inet pod {"]
    for kind, (hook, peers, address, key) in _HOOKS.items():
        if not any(kind in spec["policyTypes"] for spec in chosen):
            continue
        lines += [f"chain {key} {{ type filter hook {hook} priority 0; policy drop;",
                  "oifname lo accept" if kind == "Egress" else "iifname lo accept",
                  "ct state established,related accept"]
        lines += [f"ip saddr {node} accept"] * (kind == "Ingress")
        for spec in chosen:
            for rule in spec.get(key) or ():
                lines += _rule(rule, peers, address, list(pods))
        lines.append("}")
    return "\n".join([*lines, "}\n"])


def _rule(rule: dict, peers: str, address: str, pods) -> list[str]:
    assert set(rule) <= {peers, "ports"}, rule
    addresses = [own for labels, own, namespace in pods if any(_peer(peer, labels, namespace) for peer in rule[peers])]
    return [f"ip {address} {{ {', '.join(addresses)} }} {port['protocol'].lower()} dport {port['port']} accept"
            for port in rule["ports"] if addresses]


def _peer(peer: dict, labels: dict, namespace: dict) -> bool:
    """Without a selector of namespaces, only pods of the policy's own are meant."""
    assert set(peer) <= {"podSelector", "namespaceSelector"}, peer
    return _selects(peer.get("namespaceSelector", {"matchLabels": NAMESPACE}), namespace) and _selects(
        peer.get("podSelector", {}), labels)


def _selects(selector: dict, labels: dict) -> bool:
    assert set(selector) <= {"matchLabels"}, selector
    return selector.get("matchLabels", {}).items() <= labels.items()
