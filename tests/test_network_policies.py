"""The manifests' NetworkPolicies, as packet filters between pods: who reaches whom, and that without them all would."""
import contextlib
import copy
import socket
import time

import pytest

from tests import kubernetes_manifests as manifests
from tests import network_policies
from tests import pods

pytestmark = pytest.mark.cluster

PORTS = (2222, 8500, 8501)
LISTEN = """
import socket, time
held = [socket.create_server(("", port)) for port in %s]
time.sleep(1000)
""" % (PORTS,)
MONITORING = {"kubernetes.io/metadata.name": "monitoring"}


def template(objects, kind: str) -> dict:
    """The pod template of a workload, with a container that listens at every port and needs no volume."""
    found = manifests.of_kind(objects, kind)[0]["spec"]
    found = copy.deepcopy(found.get("jobTemplate", {}).get("spec", found)["template"])
    container = found["spec"]["containers"][0]
    container.update(command=["python", "-c"], args=[LISTEN], volumeMounts=[])
    for key in ("env", "envFrom"):
        container.pop(key, None)
    return found


def reaches(node: pods.Node, who: str, to: pods.Pod, port: int) -> bool:
    """Whether a pod, or the node where `who` is empty, can connect."""
    with node.inside(who), contextlib.suppress(OSError), socket.create_connection((to.address, port), 0.3):
        return True
    return False


def start(node, everything) -> dict[str, pods.Pod]:
    """A pod of each kind, and one of somebody else; they listen when this returns."""
    stranger = template(everything, "Deployment")
    stranger["metadata"]["labels"] = {"app": "other"}
    run = {f"{role}-0": manifests.roles(everything)[role].job["spec"] for role in ("chief", "worker")}
    found = {name: node.start(name, template([{"kind": "Job", "spec": spec}], "Job")) for name, spec in run.items()}
    found |= {name: node.start(name, template(everything, kind)) for name, kind in (
        ("server", "Deployment"), ("daily", "CronJob"))}
    found["stranger"] = node.start("stranger", stranger)
    for pod in found.values():
        end = time.monotonic() + 30
        while not reaches(node, "", pod, PORTS[-1]):
            assert time.monotonic() < end and pod.process.poll() is None, pod.log
    return found


def test_pods_reach_what_the_policies_say_and_nothing_else(tmp_path):
    if reason := pods.unavailable():
        pytest.skip(reason)
    everything = [*manifests.built("base-jobs"), *manifests.built("serving"), *manifests.built("daily")]
    allowed = {("chief-0", "worker-0", 2222), ("worker-0", "chief-0", 2222)}
    allowed |= {("stranger", "server", port) for port in (8500, 8501)}
    allowed |= {("stranger", "stranger", port) for port in PORTS}
    for name, policies in (("with", manifests.of_kind(everything, "NetworkPolicy")), ("without", [])):
        folder = tmp_path / name
        folder.mkdir()
        with pods.Node(folder, policies, {}) as node:
            found = start(node, everything)
            seen = {(who, to, port) for who in found for to in found for port in PORTS
                    if who != to or who == "stranger" if reaches(node, who, found[to], port)}
        if policies:
            assert seen == allowed
        else:
            assert len(seen) == len(found) * (len(found) - 1) * len(PORTS) + len(PORTS)


def test_a_namespace_is_let_in_where_a_policy_names_it():
    plain, monitored = (manifests.of_kind(manifests.built(name), "NetworkPolicy") for name in (
        "serving", manifests.MONITORED))
    labels = manifests.of_kind(manifests.built("serving"), "Deployment")[0]["spec"]["template"]["metadata"]["labels"]
    lines = [network_policies.rules(each, labels, [({}, "10.0.0.9", MONITORING)], "10.0.0.1")
             for each in (plain, monitored)]
    assert "10.0.0.9" not in lines[0] and "ip saddr { 10.0.0.9 } tcp dport 8501 accept" in lines[1]
    assert "8500" not in lines[1]


def test_a_form_of_selector_that_is_not_known_is_no_silent_pass():
    policy = manifests.of_kind(manifests.built("base-jobs"), "NetworkPolicy")[0]
    policy["spec"]["podSelector"] = {"matchExpressions": []}
    with pytest.raises(AssertionError):
        network_policies.rules([policy], {}, [], "10.0.0.1")
