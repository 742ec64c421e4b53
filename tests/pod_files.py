"""What a container of a manifest sees: root file system, volumes and environment, as arguments of bubblewrap.

The root holds what the Dockerfile copies, at the places it names; the environment is the Dockerfile's and the
manifest's. Packages are this interpreter's, in place of the image's.
"""
import os
import pathlib
import re
import shlex
import sys

from tests import kubernetes_manifests as manifests

PACKAGES = "/opt/packages"  # stands for the image's installed package


def image() -> tuple[dict[str, str], list[tuple[str, str]], str]:
    """Environment, (source, place) of what is copied to /app, and working directory, as the Dockerfile says them."""
    text = re.sub(r"\\\n\s*", " ", (manifests.FOLDER / "Dockerfile").read_text(encoding="utf-8"))
    text = text[text.rindex("\nFROM"):]
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE):
        for word in shlex.split(line):
            name, value = word.split("=", 1)
            environ[name] = value.replace("$PATH", environ["PATH"])
    copied = []
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, place = line.split()
        copied += [(source, place + os.path.basename(source) if place.endswith("/") else place) for source in sources]
    return environ, copied, re.search(r"^WORKDIR (\S+)$", text, re.MULTILINE)[1]


def _mounted(source, place: str, writable: bool = False) -> list[str]:
    """Arguments of bubblewrap that mount a file or folder, in folders that everybody may enter."""
    parents = [str(folder) for folder in reversed(pathlib.PurePath(place).parents) if folder.name]
    return [*(word for folder in parents for word in ("--perms", "0755", "--dir", folder)),
            "--bind" if writable else "--ro-bind", str(source), place]


def root(name: str, hosts: pathlib.Path) -> list[str]:
    """The image's files, read-only, and a process namespace in which the command is number 1.

    Args:
      name: of the pod.
      hosts: what it sees as /etc/hosts.
    """
    _, copied, folder = image()
    words = ["--die-with-parent", "--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-uts", "--hostname", name,
             "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--chdir", folder]
    for link in ("/bin", "/sbin", "/lib", "/lib64"):
        words += ["--symlink", os.readlink(link), link] if os.path.islink(link) else _mounted(link, link)
    for source, place in copied:
        words += _mounted(manifests.ROOT / source, place)
    for path in ("/usr", "/sys", "/etc/ld.so.cache", "/etc/nsswitch.conf", sys.base_prefix):
        words += _mounted(path, path) if os.path.exists(path) and not path.startswith("/usr/") else []
    words += _mounted(sys.prefix, "/opt/venv") + _mounted(manifests.ROOT / "clrec_tf", f"{PACKAGES}/clrec_tf")
    return words + _mounted(hosts, "/etc/hosts")


def volumes(spec: dict, config_maps: dict, claims: dict, folder: pathlib.Path) -> list[str]:
    """The volumes that a pod's container mounts.

    Args:
      spec: the pod's, of one container.
      config_maps: name -> file name -> text.
      claims: claim -> folder.
      folder: for the ConfigMaps' files.
    """
    words, found = [], {volume["name"]: volume for volume in spec.get("volumes", ())}
    for mount in spec["containers"][0]["volumeMounts"]:
        volume, place = found[mount["name"]], mount["mountPath"]
        if "emptyDir" in volume:
            words += ["--perms", "1777", "--tmpfs", place]
        elif "configMap" in volume:
            source = folder / volume["configMap"]["name"]
            source.mkdir(exist_ok=True)
            for name, text in config_maps[source.name].items():
                (source / name).write_text(text, encoding="utf-8")
            words += _mounted(source, place)
        else:
            claim = volume["persistentVolumeClaim"]
            writable = not (mount.get("readOnly") or claim.get("readOnly"))
            words += _mounted(claims[claim["claimName"]], place, writable)
    return words


def environment(container: dict, config_maps: dict, labels: dict, added: dict) -> list[str]:
    """The image's variables, those that a controller adds, and the manifest's own, among them labels of the pod."""
    environ = image()[0] | {"PYTHONPATH": PACKAGES} | added
    for source in container.get("envFrom", ()):
        environ |= config_maps[source["configMapRef"]["name"]]
    for entry in container.get("env", ()):
        if "value" in entry:
            environ[entry["name"]] = entry["value"]
        else:
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", entry["valueFrom"]["fieldRef"]["fieldPath"])[1]
            environ[entry["name"]] = labels[label]
    return ["--clearenv", *(word for name, value in environ.items() for word in ("--setenv", name, value))]
