"""Manifests of what runs beside a training: the retrieval server, the days, and a TFJob."""
import dataclasses
import datetime
import json
import re
import subprocess
import sys

import pytest

from clrec_tf.config import Paths, ServeConfig
from clrec_tf.days.gate import GateError
from clrec_tf.errors import BusyError, DiskFullError, UserError
from clrec_tf.server import server
from clrec_tf.settings.operations import OperationsConfig
from clrec_tf.training.cluster import roles
from tests import kubernetes_manifests as manifests

IMAGE = re.compile(r"clrec-tf:\S+")


def one(objects, kind):
    """The only object of a kind."""
    found, = manifests.of_kind(objects, kind)
    return found


def flags_of(container) -> dict[str, str]:
    """--name=value of a container's arguments."""
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["args"] if "=" in argument)


def test_the_retrieval_service_is_told_when_to_be_sent_requests_and_given_time_to_end():
    objects = manifests.built("serving")
    deployment, service = one(objects, "Deployment"), one(objects, "Service")
    pod = deployment["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert container["command"] == ["python", "-m", "clrec_tf.serve"]
    flags = flags_of(container)
    named = {field.name for section in (ServeConfig, Paths) for field in dataclasses.fields(section)}
    assert set(flags) <= named and flags["host"] == "0.0.0.0"
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert (ports["rest"], ports["grpc"]) == (flags["port"], flags["grpc_port"])
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    # Not ready is noticed before accepting ends, and requests under way have time.
    probe = container["readinessProbe"]
    assert probe["httpGet"] == container["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "rest"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "rest"}
    assert probe["periodSeconds"] * probe.get("failureThreshold", 3) < float(flags["drain_s"])
    ending = server._ENDING_S  # pylint: disable=protected-access
    assert "lifecycle" not in container and pod["terminationGracePeriodSeconds"] > float(flags["drain_s"]) + ending
    assert {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]} == {
        "/models/clrec": True, "/tmp": False}
    assert not manifests.security_problems(manifests.Role("serving", deployment, ""), {"/tmp"})


def test_replicas_scale_spread_and_leave_one_at_a_time():
    objects = manifests.built("serving")
    deployment, scaler = one(objects, "Deployment"), one(objects, "HorizontalPodAutoscaler")["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert "replicas" not in deployment["spec"]  # or each apply would undo the autoscaler
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment",
                                        "name": deployment["metadata"]["name"]}
    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
    resource, = scaler["metrics"]
    container, = deployment["spec"]["template"]["spec"]["containers"]
    assert resource["resource"]["name"] in container["resources"]["requests"]
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] < scaler["minReplicas"] and budget["selector"]["matchLabels"] == labels
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(each["labelSelector"]["matchLabels"] == labels for each in spread)


def test_the_server_is_asked_by_its_namespace_and_prometheus_alone():
    plain, monitored = (one(manifests.built(name), "NetworkPolicy")["spec"]
                        for name in ("serving", manifests.MONITORED))
    objects = manifests.built(manifests.MONITORED)
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert plain["podSelector"]["matchLabels"] == labels and set(plain["policyTypes"]) == {"Ingress", "Egress"}
    rule, = plain["ingress"]
    assert rule["from"] == [{"podSelector": {}}] and [port["port"] for port in rule["ports"]] == [8500, 8501]
    assert plain["egress"] == monitored["egress"] == []
    assert monitored["ingress"][:1] == plain["ingress"] and monitored["ingress"][1] == {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "ports": [{"protocol": "TCP", "port": 8501}]}
    monitor = one(objects, "PodMonitor")["spec"]
    endpoint, = monitor["podMetricsEndpoints"]
    assert monitor["selector"]["matchLabels"] == labels and (endpoint["port"], endpoint["path"]) == ("rest", "/metrics")


@pytest.mark.parametrize("variant", manifests.WITH_METRICS)
def test_prometheus_reaches_every_role_at_the_port_it_is_told(shared_data, variant):
    objects = manifests.built(variant)
    monitor, policy = one(objects, "PodMonitor")["spec"], one(objects, "NetworkPolicy")["spec"]
    endpoint, = monitor["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics"
    for role in manifests.roles(objects).values():
        flags = flags_of(role.container)
        assert flags["metrics_host"] == "0.0.0.0" and role.container["args"][-2].startswith("--metrics_port=")
        ports = {port["name"]: port["containerPort"] for port in role.container["ports"]}
        assert str(ports[endpoint["port"]]) == flags["metrics_port"] and len(ports) <= 2
        labels = role.job["spec"]["template"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"][1] == {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "ports": [{"protocol": "TCP", "port": ports["metrics"]}]}
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 2222}] and len(policy["ingress"]) == 2
    for item in objects:
        if item["kind"] in ("JobSet", "TFJob"):
            assert not manifests.crd_problems(item, manifests.crd(shared_data, item["kind"]))
    flags = {field.name for field in dataclasses.fields(OperationsConfig)}
    assert {"metrics_port", "metrics_host"} <= flags


def test_a_day_is_tried_again_unless_its_input_is_bad_or_its_model_refused():
    cron = one(manifests.built("daily"), "CronJob")["spec"]
    assert cron["concurrencyPolicy"] == "Forbid" and cron["timeZone"] == "Etc/UTC"
    job = cron["jobTemplate"]["spec"]
    assert job["backoffLimit"] > 0 and job["activeDeadlineSeconds"] < 86400
    on_exit, on_drain = job["podFailurePolicy"]["rules"]
    container, = job["template"]["spec"]["containers"]
    assert on_exit == {"action": "FailJob", "onExitCodes": {"containerName": container["name"], "operator": "In",
                                                            "values": [UserError.exit_code, GateError.exit_code]}}
    assert not {DiskFullError.exit_code, BusyError.exit_code} & set(on_exit["onExitCodes"]["values"])
    assert on_drain["action"] == "Ignore" and job["template"]["spec"]["restartPolicy"] == "Never"
    role = manifests.Role("daily", {"spec": job}, "")
    assert not manifests.security_problems(role, {"/data", "/models/clrec", "/tmp"})
    policy = one(manifests.built("daily"), "NetworkPolicy")["spec"]
    assert policy["ingress"] == policy["egress"] == [] and set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["podSelector"]["matchLabels"].items() <= job["template"]["metadata"]["labels"].items()


def test_the_days_command_is_of_the_scheduled_day_and_publishes_where_the_server_reads():
    objects = manifests.built("daily")
    cron = one(objects, "CronJob")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    variable, = container["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['batch.kubernetes.io/job-name']"
    minute = int(datetime.datetime(2026, 11, 30, 3, tzinfo=datetime.timezone.utc).timestamp()) // 60
    words = [word.replace(manifests.IN_IMAGE, str(manifests.ROOT)) for word in container["command"] + container["args"]]
    own, command = words[1:words.index("--") + 1], words[words.index("--") + 1:]
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    ran = subprocess.run([sys.executable, *own, sys.executable, "-c", show, *command], capture_output=True, text=True,
                         env={variable["name"]: f"{cron['metadata']['name']}-{minute}"}, check=True)
    assert json.loads(ran.stdout) == ["python", "-m", "clrec_tf.daily", "--flagfile=/etc/clrec/daily.flags",
                                      "--day=2026-11-29", "--input=/data/clicks/2026-11-29.csv", "--from=2026-10-01",
                                      "--to=2026-11-30"]
    flags = one(objects, "ConfigMap")["data"]["daily.flags"]
    export, = re.findall(r"^--export_dir=(.*)$", flags, re.MULTILINE)
    serving = one(manifests.built("serving"), "Deployment")["spec"]["template"]["spec"]
    assert flags_of(serving["containers"][0])["export_dir"] == export
    claims = [next(volume["persistentVolumeClaim"]["claimName"] for volume in each["volumes"]
                   if volume["name"] == "export") for each in (pod, serving)]
    stored = [item["metadata"]["name"] for item in manifests.built("storage")]
    assert claims[0] == claims[1] and claims[0] in stored


def test_a_tfjob_fits_its_schema_and_its_operators_tf_config_starts_every_role(shared_data, monkeypatch):
    objects = manifests.built(manifests.TFJOB)
    tfjob = one(objects, "TFJob")
    assert not manifests.crd_problems(tfjob, manifests.crd(shared_data, "TFJob"))
    assert sorted(item["kind"] for item in objects) == ["ConfigMap", "NetworkPolicy", "TFJob"]
    policies = {kind: entry["restartPolicy"] for kind, entry in tfjob["spec"]["tfReplicaSpecs"].items()}
    assert policies == {"Chief": "Never", "PS": "Never", "Worker": "OnFailure", "Evaluator": "OnFailure"}
    found = manifests.roles(objects)
    # As the operator writes it: addresses of one Service for each pod, evaluators among them.
    cluster = {name: [f"{host}:2222" for host in role.hosts()] for name, role in found.items()}
    assert {name: len(hosts) for name, hosts in cluster.items()} == dict(chief=1, worker=4, ps=2, evaluator=1)
    for name, role in found.items():
        assert role.container["name"] == "tensorflow" and not {"env", "envFrom"} & set(role.container)
        assert role.container["command"] == ["python", "-m", "clrec_tf.train"]
        assert role.container["args"] == ["--flagfile=/etc/clrec/train.flags"]
        if name != "evaluator":
            assert role.container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
        for index in range(len(cluster[name])):
            monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": name, "index": index},
                                                        "environment": "cloud"}))
            task = roles.task_from_environment()
            assert (task.role, task.index) == (name, index)
            assert "evaluator" not in roles.cluster_spec(task).jobs and len(roles.cluster_spec(task).jobs) == 3


def test_all_images_are_the_runs_own():
    for variant in (*manifests.OTHERS, *manifests.VARIANTS, manifests.TFJOB):
        for image in re.findall(r'"image": "([^"]*)"', json.dumps(manifests.built(variant))):
            assert image == "clrec-tf" or IMAGE.fullmatch(image)
