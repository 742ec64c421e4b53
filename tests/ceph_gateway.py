"""Ceph's RADOS Gateway, a strict server of S3: one monitor, one store in memory and the gateway, in a folder."""
import contextlib
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
START_S = 100
_CAPABILITIES = {"mon.": dict(mon="allow *"), "client.admin": dict(mon="allow *", osd="allow *", mgr="allow *"),
                 "client.rgw": dict(mon="allow rw", osd="allow rwx"),
                 "osd.0": dict(mon="allow profile osd", osd="allow *")}
_CONFIGURATION = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
mon data = {folder}/mon
osd data = {folder}/osd
osd scrub begin hour = 0
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
keyring = {folder}/keyring
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw thread pool size = 16
"""


def installed() -> bool:
    """Whether the programs are here."""
    return all(map(shutil.which, PROGRAMS))


@contextlib.contextmanager
def gateway(folder: pathlib.Path, key: str, secret: str):
    """The address of a server that knows one user, by these keys."""
    monitor, port = _free_port(), _free_port()
    facts = dict(fsid=uuid.uuid4(), folder=folder, monitor=monitor, gateway=port)
    (folder / "ceph.conf").write_text(_CONFIGURATION.format(**facts))
    for name, caps in _CAPABILITIES.items():
        given = [word for kind, cap in caps.items() for word in ("--cap", kind, cap)]
        subprocess.run(["ceph-authtool", folder / "keyring", *([] if (folder / "keyring").exists() else ["-C"]),
                        "--gen-key", "-n", name, *given], check=True, capture_output=True)
    with contextlib.ExitStack() as stack:
        def run(*command):
            subprocess.run([*command, "-c", folder / "ceph.conf"], check=True, capture_output=True, timeout=START_S)

        def start(*command):
            process = stack.enter_context(subprocess.Popen(
                [*command, "-f", "-c", folder / "ceph.conf"], stdout=-3, stderr=-3, stdin=-3))
            stack.callback(process.kill)

        for name in ("mon", "osd"):
            (folder / name).mkdir()
        subprocess.run(["monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{monitor}]", "--fsid",
                        str(facts["fsid"]), folder / "monmap"], check=True, capture_output=True)
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", folder / "monmap", "--keyring", folder / "keyring")
        start("ceph-mon", "-i", "a")
        store = str(uuid.uuid4())
        run("ceph", "osd", "new", store)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", store)
        start("ceph-osd", "-i", "0")
        start("radosgw", "-n", "client.rgw", "--keyring", folder / "keyring")
        run("radosgw-admin", "user", "create", "--uid=test", "--display-name=test", f"--access-key={key}",
            f"--secret={secret}")
        _wait(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"


def make_bucket(endpoint: str, bucket: str, key: str, secret: str) -> None:
    """An empty bucket of that user."""
    import boto3  # pylint: disable=import-outside-toplevel
    boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret,
                 region_name="us-east-1").create_bucket(Bucket=bucket)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def _wait(address):
    end = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
