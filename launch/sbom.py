"""What is installed in this Python, as a bill of materials in CycloneDX 1.5 (JSON) on standard output.

  python launch/sbom.py requirements.lock > sbom.json

The checksums are those of the lock, by which pip has checked the files; a package that is not in it has none. Only the
standard library is used."""
import importlib.metadata
import json
import pathlib
import re
import sys
import uuid


def normalized(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name.lower())


def bill(lock: str) -> dict:
    """The document. `lock` is the text of a requirements file with hashes."""
    pins = re.findall(r"^([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})", lock, re.MULTILINE)
    hashes = {(normalized(name), version): digest for name, version, digest in pins}
    components = []
    for package in importlib.metadata.distributions():
        name, version = normalized(package.metadata["Name"]), package.version
        component = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}",
                     "bom-ref": f"pkg:pypi/{name}@{version}"}
        if (name, version) in hashes:
            component["hashes"] = [{"alg": "SHA-256", "content": hashes[name, version]}]
        license_name = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
        if license_name and "\n" not in license_name and len(license_name) < 100:
            component["licenses"] = [{"license": {"name": license_name}}]
        components.append(component)
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{uuid.uuid4()}", "version": 1,
            "components": sorted({component["bom-ref"]: component for component in components}.values(),
                                 key=lambda component: component["name"])}


if __name__ == "__main__":
    json.dump(bill(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), sys.stdout, indent=1)
    print()
