"""Findings as lines of text and as JSON."""
import dataclasses
from typing import Sequence

from clrec_tf.diagnosis.findings import FAULT
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.findings import NOTE
from clrec_tf.diagnosis.findings import OK
from clrec_tf.system.json_files import save_json

_MARKS = {OK: "ok  ", NOTE: "note", FAULT: "FAIL"}


def line(finding: Finding) -> str:
    """One finding, on a second line what helps."""
    text = f"{_MARKS[finding.state]}  {finding.check:<8} {finding.subject}: {finding.text}"
    return f"{text}\n      -> {finding.remedy}" if finding.remedy else text


def count(findings: Sequence[Finding]) -> dict[str, int]:
    """State -> number of findings."""
    return {state: sum(finding.state == state for finding in findings) for state in (OK, NOTE, FAULT)}


def save(path: str, findings: Sequence[Finding]) -> None:
    """Writes {"counts": {state: number}, "findings": [{check, subject, state, text, remedy}]}, whole or not at all."""
    save_json(path, dict(counts=count(findings), findings=[dataclasses.asdict(finding) for finding in findings]))
