"""The audit of dependencies: "nothing is known" and "nobody was asked" are told apart.

The tool is a stand-in that prints what pip-audit 2.10 prints; the database itself is asked by `make audit` alone.
"""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FLAW = [{"id": "PYSEC-1", "fix_versions": ["2"], "aliases": [], "description": ""}]
CANARY = {"name": "jinja2", "version": "2.4.1", "vulns": FLAW}
SOUND, BAD = {"name": "numpy", "version": "1", "vulns": []}, {"name": "numpy", "version": "1", "vulns": FLAW}
ABSENT = {"name": "numpy", "skip_reason": "Dependency not found"}


def audit(tmp_path, known, locked):
    """The result where the tool prints these packages, or a text that is no JSON."""
    tool = tmp_path / "pip-audit"
    texts = [value if isinstance(value, str) else json.dumps({"dependencies": value}) for value in (known, locked)]
    tool.write_text(f"#!{sys.executable}\nimport sys\nprint({texts!r}['--require-hashes' in sys.argv])\n")
    tool.chmod(0o755)
    return subprocess.run([sys.executable, ROOT / ".ci" / "audit.py", tool, tmp_path], cwd=ROOT, capture_output=True,
                          text=True, check=False)


@pytest.mark.parametrize("known, locked, code, words", [
    ([CANARY], [SOUND], 0, "requirements.lock: 0 packages with known vulnerabilities"),
    ([CANARY], [SOUND, BAD], 1, "requirements.lock: numpy 1: PYSEC-1 (fixed in 2)"),
    ([ABSENT], [SOUND], 3, "NOT AUDITED: the database does not know jinja2==2.4.1"),
    ([CANARY], [SOUND, ABSENT], 3, "NOT AUDITED: requirements.lock: the database has no entry for numpy"),
    ("Connection refused", [SOUND], 3, "NOT AUDITED"), ([CANARY], "", 3, "NOT AUDITED: requirements.lock")])
def test_the_audit_passes_only_where_the_database_answers(tmp_path, known, locked, code, words):
    done = audit(tmp_path, known, locked)
    assert done.returncode == code and words in done.stdout + done.stderr
    assert ("NOT AUDITED" in done.stderr) == (code == 3)


def test_ci_goes_on_only_where_nothing_could_be_audited():
    assert ".ci/audit || [ $? -eq 3 ]" in (ROOT / ".ci" / "run").read_text()
    lines = (ROOT / ".ci" / "audit.lock").read_text().splitlines()[1:]
    assert len(lines) > 10 and all(" --hash=sha256:" in line for line in lines)
    assert any(line.startswith("pip-audit==") for line in lines)
