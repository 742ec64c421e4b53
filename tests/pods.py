"""A node without Kubernetes: pods of manifests as processes, each in a network namespace and a root of its own.

A pod runs the manifest's own command with the manifest's environment, as the image's user, without capabilities, on a
read-only root made of what the Dockerfile copies, with the volumes that the manifest mounts; it is process 1 of its own
process namespace, and has an address of its own on a bridge. What a cluster does besides is done by hand here: the
names of a headless Service stand in /etc/hosts, NetworkPolicies become nftables rules (``network_policies``), and
whoever plays the controller starts and kills pods. Everything is gone with the `Node`.
"""
import contextlib
import ctypes
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

from tests import kubernetes_manifests as manifests
from tests import network_policies
from tests import pod_files

USER = 10001  # the Dockerfile's and the manifests'
ADDRESS = "10.244.0.%d"
NODE_ADDRESS = ADDRESS % 1
_PROGRAMS = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "ip": "iproute2",
             "nft": "nftables", "bwrap": "bubblewrap"}
_PREPARE = f"""set -e
mount -t tmpfs none /run && mkdir /run/netns
ip link set lo up
ip link add bridge type bridge && ip address add {NODE_ADDRESS}/24 dev bridge && ip link set bridge up
echo ready && exec sleep infinity"""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LIBC = ctypes.CDLL(None, use_errno=True)


def unavailable() -> str:
    """Why this machine can hold no pods; "" where it can."""
    if missing := sorted({package for program, package in _PROGRAMS.items() if not shutil.which(program)}):
        return f"pods need the programs of {', '.join(missing)}: apt-get install {' '.join(missing)}"
    if os.geteuid():
        return "pods need root: namespaces, bridges and mounts"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", "ip link add bridge type bridge && nft add table inet t"],
                           capture_output=True, text=True, check=False)
    return f"this machine allows no network of its own: {tried.stderr.strip()}" if tried.returncode else ""


class Pod:
    """A running pod at its `address`; `process` ends with its container's exit code, 128 + n where signal n ended it."""

    def __init__(self, name: str, labels: dict, address: str, log: pathlib.Path):
        self.name, self.labels, self.address, self._log, self.process = name, labels, address, log, None

    @property
    def log(self) -> str:
        """What the container has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def container(self) -> int:
        """The number of the container's process 1 on this machine, once it runs its command."""
        own, number = _namespaces(os.getpid()), self.process.pid
        while _namespaces(number) < own + 2:
            children = pathlib.Path(f"/proc/{number}/task/{number}/children").read_text(encoding="utf-8").split()
            assert self.process.poll() is None, self.log
            number = int(children[0]) if children else number
        return number

    def signal(self, number: int) -> None:
        """As the kubelet signals a container."""
        os.kill(self.container(), number)

    def kill(self) -> int:
        """kill -9 of the container's process; its exit code."""
        self.signal(signal.SIGKILL)
        return self.ended(10)

    def ended(self, seconds: float) -> int:
        """The exit code, once it has ended; an AssertionError with its last words if it does not."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} runs on: {self.log[-3000:]}") from None


def _namespaces(number: int) -> int:
    """How many process namespaces a process is in."""
    text = pathlib.Path(f"/proc/{number}/status").read_text(encoding="utf-8")
    return len(re.search(r"^NSpid:(.*)$", text, re.MULTILINE)[1].split())


class Node:
    """Where pods run. A context manager; at its end all pods are killed, and nothing is left on the machine.

    Args:
      folder: for logs, names and ConfigMaps.
      objects: what was applied: ConfigMaps, NetworkPolicies.
      claims: claim -> folder of its volume.
    """

    def __init__(self, folder: pathlib.Path, objects: list[dict], claims: dict[str, pathlib.Path]):
        self._folder, self._claims = folder, claims
        self._maps = manifests.config_maps(objects)
        self._policies = manifests.of_kind(objects, "NetworkPolicy")
        self._numbers, self._pods, self._names = itertools.count(2), {}, {}
        self._hosts = folder / "hosts"
        self._hosts.write_text("127.0.0.1       localhost\n", encoding="utf-8")
        for claim in claims.values():
            subprocess.run(["chown", "-R", f"{USER}:{USER}", claim], check=True)  # the manifests' fsGroup

    def __enter__(self):
        self._holder = subprocess.Popen(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                                         "--mount-proc", "sh", "-c", _PREPARE], stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout.readline() == "ready\n"
        holder = self._holder.pid
        inside = pathlib.Path(f"/proc/{holder}/task/{holder}/children").read_text(encoding="utf-8").split()[0]
        self._enter = ["nsenter", "--target", inside, "--net", "--mount", "--pid"]
        return self

    def __exit__(self, *exception):
        self._holder.kill()  # and with it, by --kill-child, all that runs inside
        for pod in self._pods.values():
            if pod.process:
                pod.process.wait()
        self._holder.wait()
        self._holder.stdout.close()

    def run(self, *command: str, text: str = "") -> str:
        """Runs a command on the node; its output."""
        ran = subprocess.run([*self._enter, *command], input=text, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout

    def start(self, name: str, template: dict, host: str = "", environ=None, labels=None) -> Pod:
        """Starts the pod of a template, at a new address, as a controller starts a replacement too.

        Args:
          name: of the pod; one that ended may have had it before.
          template: the pod template of a Job or Deployment.
          host: the name that a headless Service gives it.
          environ, labels: what a controller adds to the manifest's.

        Returns:
          The `Pod`, whose container is starting.
        """
        if name in self._pods:
            self.remove(name)
        address = ADDRESS % next(self._numbers)
        pod = Pod(name, {**template["metadata"]["labels"], **(labels or {})}, address, self._folder / f"{name}.log")
        self._network(name, address)
        self._pods[name] = pod
        self._name(host, address)
        self._apply()
        container, = template["spec"]["containers"]
        command = [*self._enter, "ip", "netns", "exec", name, "bwrap", *pod_files.root(name, self._hosts),
                   *pod_files.volumes(template["spec"], self._maps, self._claims, self._folder),
                   *pod_files.environment(container, self._maps, pod.labels, environ or {}), "--remount-ro", "/", "--",
                   "setpriv", f"--reuid={USER}", f"--regid={USER}", f"--groups={USER}", "--bounding-set=-all",
                   "--inh-caps=-all", "--no-new-privs", "--", *container["command"], *container["args"]]
        with open(self._folder / f"{name}.log", "ab") as log:
            pod.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return pod

    def remove(self, name: str) -> None:
        """Kills a pod that still runs, and takes its network away."""
        pod = self._pods.pop(name)
        if pod.process.poll() is None:
            pod.kill()
        self.run("ip", "netns", "delete", name)

    @contextlib.contextmanager
    def inside(self, name: str = ""):
        """Context in which new sockets of this thread are those of a pod, or of the node."""
        number = self._pods[name].container() if name else int(self._enter[2])
        own_path = f"/proc/self/task/{threading.get_native_id()}/ns/net"
        with open(own_path, "rb") as own, open(f"/proc/{number}/ns/net", "rb") as other:
            assert _LIBC.setns(other.fileno(), _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert _LIBC.setns(own.fileno(), _NEW_NETWORK) == 0

    def _network(self, name, address):
        outer = f"veth{address.rpartition('.')[2]}"
        for command in (f"netns add {name}", f"link add {outer} type veth peer name eth0 netns {name}",
                        f"link set {outer} master bridge up", f"-n {name} link set lo up",
                        f"-n {name} address add {address}/24 dev eth0", f"-n {name} link set eth0 up"):
            self.run("ip", *command.split())

    def _name(self, host, address):
        """All pods see one file: a name's line keeps its place and length, so no reader meets half of it."""
        if host:
            self._names[host] = address
            with open(self._hosts, "r+", encoding="utf-8") as file:
                file.write("".join(f"{each:<15} {name}\n" for name, each in {"localhost": "127.0.0.1",
                                                                              **self._names}.items()))

    def _apply(self):
        """Loads the NetworkPolicies' rules into all pods."""
        pods = {name: (pod.labels, pod.address, network_policies.NAMESPACE) for name, pod in self._pods.items()}
        for name, pod in self._pods.items():
            rules = network_policies.rules(self._policies, pod.labels, pods.values(), NODE_ADDRESS)
            self.run("ip", "netns", "exec", name, "nft", "-f", "-", text=rules)
