"""Manifests as kubectl builds them, and what must hold of them; each check returns its complaints."""
import copy
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "launch" / "kubernetes"
NAMESPACE = "clrec"
IN_IMAGE = "/app"  # where the Dockerfile puts launch/ and configs/
PRINT = ["-c", "import os; print(os.environ['TF_CONFIG'])"]
OTHERS = ("storage", "daily", "serving")  # what is no training on a cluster
TFJOB = "overlays/taobao-tfjob"  # a run too, whose operator sets TF_CONFIG
RUNS = sorted(str(path.parent.relative_to(FOLDER)) for path in FOLDER.rglob("kustomization.yaml")
              if "components" not in path.parts and path.parent.name not in (*OTHERS, "taobao-tfjob"))
COMPONENTS = {  # a base and components over it, as a copy of an overlay joins them
    "jobs with gpu and secret": ("base-jobs", ("gpu", "secret")),
    "jobset with gpu and secret": ("base-jobs", ("gpu", "secret", "jobset")),
    "jobs with metrics": ("base-jobs", ("metrics",)),
    "jobset with metrics": ("base-jobs", ("metrics", "jobset")),
    "tfjob with metrics": ("base-jobs", ("metrics", "tfjob")),
    "serving with metrics": ("serving", ("serving-metrics",))}
WITH_COMPONENTS = ["jobs with gpu and secret", "jobset with gpu and secret"]
WITH_METRICS = ["jobs with metrics", "jobset with metrics", "tfjob with metrics"]
MONITORED = "serving with metrics"
VARIANTS = RUNS + WITH_COMPONENTS
CUSTOM = ("JobSet", "TFJob", "PodMonitor")  # kinds of operators
VERSIONS = ("1.32", "1.37")  # of Kubernetes, old and new, whose schemas kubernetes-validate holds
SECRET = re.compile(r"secret|password|token|credential|access_?key", re.IGNORECASE)
REGISTRY = re.compile(r"^[^/]*[.:][^/]*/")  # a first part with a dot or port, before a slash, is a host


def built(variant: str) -> list[dict]:
    """A copy of a variant's objects; each variant is built once."""
    return copy.deepcopy(_built(variant))


@functools.cache
def _built(variant: str) -> list[dict]:
    if variant not in COMPONENTS:
        return build(FOLDER / variant)
    base, components = COMPONENTS[variant]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder).resolve()  # kustomize takes relative paths only
        lines = ["apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization", "resources:",
                 f"- {os.path.relpath(FOLDER / base, folder)}", "components:",
                 *(f"- {os.path.relpath(FOLDER / 'components' / name, folder)}" for name in components)]
        (folder / "kustomization.yaml").write_text("\n".join(lines), encoding="utf-8")
        return build(folder)


def build(folder: pathlib.Path) -> list[dict]:
    """The objects of a folder with a kustomization.yaml."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install -c constraints.txt -e '.[test]'")
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed: the manifests cannot be built")
    built = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-1000:]
    return list(yaml.safe_load_all(built.stdout))


@dataclasses.dataclass
class Role:
    """One Job, or one entry of a JobSet or TFJob, as a Job; `host_pattern` is the DNS name of its pod %d."""
    name: str
    job: dict
    host_pattern: str

    @property
    def pod(self) -> dict:
        return self.job["spec"]["template"]["spec"]

    @property
    def container(self) -> dict:
        return self.pod["containers"][0]

    def hosts(self) -> list[str]:
        return [self.host_pattern % index for index in range(self.job["spec"]["completions"])]


def roles(objects: list[dict]) -> dict[str, Role]:
    """All roles by name; those of a JobSet or a TFJob are lifted into Jobs."""
    found = {}
    for item in of_kind(objects, "Job"):
        name = item["metadata"]["labels"]["app.kubernetes.io/component"]
        found[name] = Role(name, item, f"{item['metadata']['name']}-%d.{item['spec']['template']['spec']['subdomain']}")
    for item in of_kind(objects, "JobSet"):
        for entry in item["spec"]["replicatedJobs"]:
            name = f"{item['metadata']['name']}-{entry['name']}-0"
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, **entry["template"]}
            found[entry["name"]] = Role(entry["name"], job, f"{name}-%d.{item['spec']['network']['subdomain']}")
    for item in of_kind(objects, "TFJob"):
        for kind, entry in item["spec"]["tfReplicaSpecs"].items():
            name, template = f"{item['metadata']['name']}-{kind.lower()}", copy.deepcopy(entry["template"])
            template["spec"]["restartPolicy"] = "Never"  # of the pod: the operator gives it
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
                "completions": entry["replicas"], "parallelism": entry["replicas"], "template": template}}
            found[kind.lower()] = Role(kind.lower(), job, f"{name}-%d.{NAMESPACE}.svc")
    return found


def of_kind(objects: list[dict], kind: str) -> list[dict]:
    return [item for item in objects if item["kind"] == kind]


def config_maps(objects: list[dict]) -> dict[str, dict]:
    return {item["metadata"]["name"]: item["data"] for item in of_kind(objects, "ConfigMap")}


def tf_config(role: Role, index: int, objects: list[dict]) -> dict:
    """What launch/tf_config.py, run as in the container but for its command, gives to that command."""
    container, maps = role.container, config_maps(objects)
    environ = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(index)}
    for source in container.get("envFrom", ()):
        environ |= maps[source["configMapRef"]["name"]]
    environ |= {entry["name"]: entry["value"] for entry in container.get("env", ())}
    arguments = [*container["command"], *container["args"]]
    assert arguments[0] == "python" and "--" in arguments
    own = [word.replace(IN_IMAGE, str(ROOT)) for word in arguments[1:arguments.index("--") + 1]]
    ran = subprocess.run([sys.executable, *own, sys.executable, *PRINT], env=environ, capture_output=True, text=True,
                         check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def cluster_problems(objects: list[dict]) -> list[str]:
    """Whether every pod derives the same cluster, made of the pods' own names, and knows its own place."""
    problems, found = [], roles(objects)
    expected = {name: [f"{host}:2222" for host in found[name].hosts()] for name in ("chief", "worker", "ps")}
    for name, role in found.items():
        for index in range(role.job["spec"]["completions"]):
            try:
                config = tf_config(role, index, objects)
            except AssertionError as error:
                problems.append(f"{name} {index} does not start: {error}")
                continue
            if config["cluster"] != expected:
                problems.append(f"{name} {index} sees {config['cluster']}, pods are {expected}")
            if config["task"] != {"type": name, "index": index}:
                problems.append(f"{name} {index} takes itself for {config['task']}")
    return problems


def security_problems(role: Role, writable_mounts=frozenset({"/data", "/tmp"})) -> list[str]:
    """What the pod may do and should not."""
    pod, wanted = role.pod, []
    context = pod.get("securityContext", {})
    wanted += [(context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0, "runs as root"),
               (context.get("seccompProfile") == {"type": "RuntimeDefault"}, "no seccomp profile"),
               (pod.get("automountServiceAccountToken") is False, "mounts a service-account token"),
               (not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), "shares the host's namespaces"),
               ("serviceAccountName" not in pod, "has a service account of its own"),
               ("volumes" in pod and not any("hostPath" in volume for volume in pod["volumes"]), "mounts the host"),
               (all(v["emptyDir"].get("sizeLimit") for v in pod["volumes"] if "emptyDir" in v), "unlimited emptyDir")]
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        own = container.get("securityContext", {})
        writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        variables = [entry["name"] for entry in container.get("env", ())]
        sources = [*container.get("env", ()), *container.get("envFrom", ())]
        wanted += [(own.get("readOnlyRootFilesystem") is True, "writable root file system"),
                   (own.get("allowPrivilegeEscalation") is False, "privileges may grow"),
                   (own.get("capabilities") == {"drop": ["ALL"]}, "keeps capabilities"),
                   (not own.get("privileged") and own.get("runAsUser", 1) > 0, "privileged"),
                   (writable == writable_mounts, f"writes to {writable}"),
                   (not any(SECRET.search(name) for name in variables), "a secret's name in env"),
                   (not any("secret" in key.lower() for s in sources for key in (*s, *s.get("valueFrom", ()))),
                    "a secret in env"),
                   (not REGISTRY.match(container["image"]), "names a registry"),
                   (set(container["resources"]["limits"]) >= {"cpu", "memory", "ephemeral-storage"}, "no limits")]
    return [f"{role.name}: {text}" for holds, text in wanted if not holds]


def core_problems(objects: list[dict], version: str) -> list[str]:
    """Complaints of kubernetes-validate --strict; entries of custom kinds, which it does not know, become Jobs."""
    validator = pytest.importorskip("kubernetes_validate")
    problems = []
    others = [item for item in objects if item["kind"] not in ("Job", *CUSTOM)]
    for item in others + [role.job for role in roles(objects).values()]:
        try:
            validator.validate(item, version, strict=True)
        except validator.ValidationError as error:
            problems.append(f"{item['kind']} {item['metadata']['name']}: {error.message}")
    return problems


def strict(schema):
    """An OpenAPI schema of Kubernetes as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: strict(value) for key, value in schema.items()}
    known = result.get("type") == "object" and "properties" in result
    if known and not result.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    if result.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return result


@functools.cache
def crd(shared_data: pathlib.Path, kind: str) -> dict:
    """The CustomResourceDefinition of a JobSet or a TFJob, which takes seconds to read."""
    yaml = pytest.importorskip("yaml")
    path = shared_data / "kubernetes" / f"{kind.lower()}-crd.yaml"
    if not path.exists():
        pytest.skip(f"{path} does not exist: the {kind} cannot be checked against its schema")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def crd_problems(item: dict, definition: dict) -> list[str]:
    """How an object departs from the schema of its CustomResourceDefinition."""
    import jsonschema  # pylint: disable=import-outside-toplevel
    group, version = item["apiVersion"].split("/")
    assert group == definition["spec"]["group"] and item["kind"] == definition["spec"]["names"]["kind"]
    schema = next(v for v in definition["spec"]["versions"] if v["name"] == version)["schema"]["openAPIV3Schema"]
    schema = strict(schema)
    schema["properties"]["metadata"] = {"type": "object"}  # the CRD leaves it to Kubernetes
    errors = jsonschema.Draft202012Validator(schema).iter_errors(item)
    return [f"{'/'.join(map(str, error.path))}: {error.message[:200]}" for error in errors]
