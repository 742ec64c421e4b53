"""The doctor's look at a deployment: checks are run, findings printed and written."""
from typing import Optional

from clrec_tf.config import Config
from clrec_tf.diagnosis import report
from clrec_tf.diagnosis.checkup import checks
from clrec_tf.diagnosis.deadline import found_by
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import FAULT
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.stored_places import StoredPlaces
from clrec_tf.system import atomic


def diagnose(config: Config, given: frozenset, begun: float, packages: dict[str, tuple[str, str, Optional[bool]]],
             stored: Optional[StoredPlaces] = None) -> int:
    """Runs all checks that the settings call for.

    Args:
      config: all settings.
      given: names of those that were given.
      begun: time.monotonic() of the start, from which --doctor_deadline_s counts.
      packages: package -> (version, what ran or failed, whether it works; None: it need not be there).
      stored: addresses in stores that flags give, None where none do.

    Returns:
      The exit code: 1 if there is a fault, else 0.

    Raises:
      UserError: --json cannot be written.
    """
    path, seconds = config.benchmark.json, config.doctor.doctor_deadline_s
    if path:
        atomic.check_file_place(path, "json")
    findings = []
    for finding in found_by(checks(config, given, stored), begun + seconds, f"--doctor_deadline_s={seconds:g}"):
        print(report.line(finding), flush=True)
        findings.append(finding)
    everything = [*map(_of_package, packages.items()), *findings]
    print(", ".join(f"{number} {state}" for state, number in report.count(everything).items()) + ", packages included")
    if path:
        with atomic.write_errors(path, f"json={path}"):
            report.save(path, everything)
    return int(report.count(findings)[FAULT] > 0)


def _of_package(result) -> Finding:
    """A package's result as a finding."""
    package, (version, what, works) = result
    about = About("package", f"{package} {version}")
    if works:
        return about.ok(what)
    return about.note(what) if works is None else about.fault(what, "install the tested set, see README.md")
