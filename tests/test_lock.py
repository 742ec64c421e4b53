"""Installs are checked by hashes: the lock covers all that is pinned, and pip refuses any other file."""
import hashlib
from importlib import metadata
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
LOCKS = {"constraints.txt": "requirements.lock", "constraints-tf220.txt": "requirements-tf220.lock"}


def pins(text) -> dict[str, str]:
    """Normalized name -> version."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in found}


def text_of(name) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("constraints, lock", LOCKS.items())
def test_the_lock_is_of_the_versions_that_are_pinned(constraints, lock):
    pinned, locked = pins(text_of(constraints)), pins(text_of(lock))
    assert locked.items() <= pinned.items() and len(locked) > 80
    lines = [line for line in text_of(lock).splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}(  # test)?", line) for line in lines)
    wanted = wanted_packages()
    not_of_220 = {"tensorflow-io", "apache-beam"}
    assert len(wanted) > 12 and wanted - not_of_220 <= locked.keys()
    assert not_of_220 & locked.keys() == (not_of_220 if constraints == "constraints.txt" else set())
    backend = re.findall(r'"([\w-]+)==([\w.]+)"', text_of("pyproject.toml"))
    assert {name: locked[name] for name in ("setuptools", "wheel")} == dict(backend)
    for name in ("tensorflow", "scann", "fastapi", "pytest", "apache-beam"):
        for line in (line for line in lines if line.startswith(f"{name}==")):
            assert line.endswith("# test") == (name in ("pytest", "apache-beam"))  # so the image goes without


def wanted_packages() -> set[str]:
    """What setup.py names, of all extras."""
    return set(re.findall(r'"([a-z][\w-]+)[=>]=[\d.]+', text_of("setup.py")))


def test_packages_of_tensorflow_are_of_one_series():
    for constraints, series in (("constraints.txt", "2.17."), ("constraints-tf220.txt", "2.20.")):
        pinned = pins(text_of(constraints))
        assert all(pinned[name].startswith(series) for name in ("tensorflow", "tf-keras", "tensorflow-serving-api"))


@pytest.mark.parametrize("where", [".ci/environment", "launch/kubernetes/Dockerfile", "README.md"])
def test_whoever_installs_checks_hashes(where):
    assert "--require-hashes" in (ROOT / where).read_text(encoding="utf-8")


def test_pip_refuses_another_file(tmp_path):
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    lock = tmp_path / "lock"
    lock.write_text(f"tiny==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")

    def install():
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", "--no-index", f"--find-links={tmp_path}", "--require-hashes", "-r",
             lock, f"--target={tmp_path}/target"], capture_output=True, text=True, check=False)
    assert install().returncode == 0 and (tmp_path / "target" / "tiny.py").exists()
    with zipfile.ZipFile(wheel, "a") as file:
        file.writestr("other.py", "")
    refused = install()
    assert refused.returncode and "DO NOT MATCH THE HASHES" in refused.stderr and not (tmp_path / "target" / "other.py"
                                                                                       ).exists()


def test_the_bill_of_materials_names_what_is_installed():
    [lock] = [name for name in LOCKS.values() if pins(text_of(name))["tensorflow"] == metadata.version("tensorflow")]
    told = subprocess.run([sys.executable, ROOT / "launch" / "sbom.py", ROOT / lock], capture_output=True, text=True,
                          check=True)
    bill = json.loads(told.stdout)
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5"
    of = {one["name"]: one for one in bill["components"]}
    assert of["tensorflow"]["purl"] == f"pkg:pypi/tensorflow@{pins(text_of(lock))['tensorflow']}"
    locked = re.search(r"^tensorflow==\S+ --hash=sha256:(\w+)", text_of(lock), re.MULTILINE)[1]
    assert of["tensorflow"]["hashes"] == [{"alg": "SHA-256", "content": locked}]
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "launch" / "sbom.py")
    sbom = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sbom)
    other = {one["name"]: one for one in sbom.bill("tensorflow==0.1 --hash=sha256:" + "0" * 64)["components"]}
    assert "hashes" not in other["tensorflow"]  # another version is another file
