"""Runs pip-audit on the locks, and tells "nothing is known" from "nobody was asked": .ci/audit calls it.

pip-audit ends with 0 and "No known vulnerabilities found" where it has found no package in its database at all. So a
release with a known vulnerability is audited first: if that is not reported, no answer counts.
"""
import json
import pathlib
import subprocess
import sys

LOCKS = ("requirements.lock", "requirements-tf220.lock")
KNOWN = "jinja2==2.4.1"  # CVE-2014-1402 and others
TIMEOUT_S = 300


def audited(tool: str, requirements: str, *options: str):
    """(packages with vulnerabilities, packages not found), or the reason why there is no answer."""
    command = [tool, "--disable-pip", "--progress-spinner=off", "--format=json", "-r", requirements, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        found = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return f"the database did not answer within {TIMEOUT_S} s"
    except (ValueError, KeyError, TypeError):
        return (done.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1][:200]
    return [one for one in found if one.get("vulns")], [one["name"] for one in found if "skip_reason" in one]


def main() -> int:
    """Returns the exit code."""
    tool, scratch = sys.argv[1:]
    canary = pathlib.Path(scratch) / "known.txt"
    canary.write_text(KNOWN + "\n", encoding="utf-8")
    answer = audited(tool, str(canary), "--no-deps")
    if isinstance(answer, str) or not answer[0]:
        why = answer if isinstance(answer, str) else f"the database does not know {KNOWN}, which has vulnerabilities"
        return not_audited(why)
    bad = False
    for lock in LOCKS:
        answer = audited(tool, lock, "--require-hashes")
        if isinstance(answer, str):
            return not_audited(f"{lock}: {answer}")
        vulnerable, unknown = answer
        if unknown:
            return not_audited(f"{lock}: the database has no entry for {', '.join(unknown)}")
        for package in vulnerable:
            names = ", ".join(f"{one['id']} (fixed in {' '.join(one['fix_versions']) or 'none'})"
                              for one in package["vulns"])
            print(f"{lock}: {package['name']} {package['version']}: {names}")
        bad |= bool(vulnerable)
        print(f"{lock}: {len(vulnerable)} packages with known vulnerabilities")
    return int(bad)


def not_audited(why: str) -> int:
    """Says that nothing was audited."""
    print(f"NOT AUDITED: {why}. This says nothing about vulnerabilities; run make audit where the database can be "
          "reached.", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
