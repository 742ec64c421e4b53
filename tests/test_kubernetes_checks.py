"""The checks of the manifests can fail: each case breaks one thing in the built objects, and it is found."""
import pytest

from tests import kubernetes_manifests as manifests


def worker_pod(objects):
    return manifests.roles(objects)["worker"].pod


@pytest.mark.parametrize("variant", manifests.RUNS[:1])
@pytest.mark.parametrize("breakage", [
    lambda pod: pod.update(restartPolcy="Never"),
    lambda pod: pod["containers"][0]["securityContext"].update(readOnlyRootFileSystem=True),
    lambda pod: pod["containers"][0]["ports"][0].update(containerPort="2222"),
    lambda pod: pod["containers"][0].pop("name"),
])
def test_misspelt_wrong_and_missing_fields_are_found(variant, breakage):
    objects = manifests.built(variant)
    breakage(worker_pod(objects))
    assert all(manifests.core_problems(objects, version) for version in manifests.VERSIONS)


@pytest.mark.parametrize("breakage", [
    lambda spec: spec.update(sucessPolicy={}),
    lambda spec: spec["successPolicy"].pop("operator"),
    lambda spec: spec["failurePolicy"].update(restartStrategy="Restart"),
    lambda spec: spec["failurePolicy"].update(maxRestarts="20"),
    lambda spec: spec["replicatedJobs"][1]["template"]["spec"]["template"]["spec"].update(restartPolcy="Never"),
])
def test_a_wrong_jobset_is_found(shared_data, breakage):
    jobset, = manifests.of_kind(manifests.built("base-jobset"), "JobSet")
    breakage(jobset["spec"])
    assert manifests.crd_problems(jobset, manifests.crd(shared_data, "JobSet"))


@pytest.mark.parametrize("breakage", [
    lambda spec: spec["runPolicy"].update(cleanPodPolcy="None"),
    lambda spec: spec["tfReplicaSpecs"]["Worker"].update(replicas="4"),
    lambda spec: spec["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0].pop("name"),
    lambda spec: spec.pop("tfReplicaSpecs"),
])
def test_a_wrong_tfjob_is_found(shared_data, breakage):
    tfjob, = manifests.of_kind(manifests.built(manifests.TFJOB), "TFJob")
    breakage(tfjob["spec"])
    assert manifests.crd_problems(tfjob, manifests.crd(shared_data, "TFJob"))


@pytest.mark.parametrize("variant", manifests.RUNS[:2])
@pytest.mark.parametrize("breakage", [
    lambda objects: replace(objects, "--role=worker", "--role=ps"),
    lambda objects: replace(objects, "--role=worker", "--role=wroker"),
    lambda objects: [data.update(CLREC_WORKERS="3") for name, data in manifests.config_maps(objects).items()
                     if name == "clrec-cluster"],
    lambda objects: [data.update(CLREC_HOSTS="other-{role}-{index}.clrec") for data in
                     manifests.config_maps(objects).values()],
])
def test_a_wrong_cluster_is_found(variant, breakage):
    objects = manifests.built(variant)
    breakage(objects)
    assert manifests.cluster_problems(objects)


def replace(objects, old, new):
    """Replaces an argument of the workers."""
    for role in manifests.roles(objects).values():
        role.container["args"][:] = [new if word == old else word for word in role.container["args"]]


@pytest.mark.parametrize("breakage", [
    lambda pod: pod.pop("securityContext"),
    lambda pod: pod["securityContext"].update(runAsUser=0),
    lambda pod: pod.pop("automountServiceAccountToken"),
    lambda pod: pod.update(hostNetwork=True),
    lambda pod: pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    lambda pod: [volume.get("emptyDir", {}).clear() for volume in pod["volumes"]],
    lambda pod: pod["containers"][0].pop("securityContext"),
    lambda pod: pod["containers"][0]["securityContext"]["capabilities"].update(add=["SYS_PTRACE"]),
    lambda pod: pod["containers"][0]["securityContext"].update(privileged=True),
    lambda pod: pod["containers"][0]["volumeMounts"].append({"name": "tmp", "mountPath": "/app"}),
    lambda pod: pod["containers"][0].update(env=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]),
    lambda pod: pod["containers"][0].update(env=[{"name": "X", "valueFrom": {"secretKeyRef": {}}}]),
    lambda pod: pod["containers"][0]["envFrom"].append({"secretRef": {"name": "x"}}),
    lambda pod: pod["containers"][0].update(image="registry.example:5000/clrec-tf"),
    lambda pod: pod["containers"][0]["resources"].pop("limits") and pod["containers"][0]["resources"].update(limits={}),
])
def test_an_unlocked_pod_is_found(breakage):
    role = manifests.roles(manifests.built("base-jobs"))["worker"]
    assert not manifests.security_problems(role)
    breakage(role.pod)
    assert manifests.security_problems(role)
