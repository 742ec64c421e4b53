"""Readers of files are given what atheris makes up, led by what its inputs reach (``fuzz_files``)."""
import concurrent.futures
import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest

from tests.attacks.outcomes import FULL
from tests.attacks.outcomes import Outcomes

pytest.importorskip("atheris")

SCRIPT = pathlib.Path(__file__).with_name("fuzz_files.py")
TARGETS = ("manifest", "schema", "config", "bundle", "checkpoints", "example") if FULL else ("manifest",)
# In full each target has a time, and other inputs whenever it is tried; CI tries the same few inputs again and again.
BOUNDS = ["-max_total_time=60"] if FULL else ["-runs=1000", "-seed=1"]
_AT_ONCE = 2
_MOST_MB = 2048  # of memory
_MOST_S = 300  # of a process: imports, its time, the last input, and some for machines that are busy


def fuzzed(target, folder, bounds, script=SCRIPT, one_s=20) -> tuple[int, str]:
    """Inputs tried in a process of its own, and what was wrong: the file of the input at fault and what was said.

    An input that takes longer than `one_s` is a hang, one that takes more than `_MOST_MB` is at fault too.
    """
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # which a child's own count begins with
    command = [sys.executable, str(script), target, *bounds, f"-timeout={one_s}", "-len_control=0", "-max_len=400",
               f"-rss_limit_mb={before_mb + _MOST_MB}", f"-artifact_prefix={folder}/{target}-", "-print_final_stats=1"]
    variables = {**os.environ, "TMPDIR": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"}  # no line for each bad record
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace",
                              timeout=_MOST_S, check=False)
    except subprocess.TimeoutExpired:
        return 1, f"{target}: no end in {_MOST_S} s"
    tried = re.findall(r"stat::number_of_executed_units: (\d+)", done.stderr)
    if not done.returncode and tried and int(tried[-1]) > 1:
        return int(tried[-1]), ""
    inputs = [str(path) for path in folder.glob(f"{target}-*")] or ["no file of it"]
    said = "\n".join(line for line in [*done.stderr.splitlines(), *done.stdout.splitlines()]
                     if not line.startswith("INFO: "))  # the exception comes last
    return int(tried[-1]) if tried else 1, f"{target}: exit code {done.returncode}, input {inputs[0]}: {said[-3000:]}"


def test_readers_refuse_what_they_cannot_read(request, tmp_path):
    with Outcomes(request, "fuzzed files") as outcomes, concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for tried, wrong in pool.map(lambda target: fuzzed(target, tmp_path, BOUNDS), TARGETS):
            outcomes.counts["held"] += tried - bool(wrong)
            if wrong:
                outcomes.add("lost", wrong)


@pytest.mark.parametrize("fault, kind, said", [("1 / 0", "crash", "ZeroDivisionError"),
                                               ("time.sleep(9)", "timeout", "timeout after")])
def test_a_fault_is_found_and_the_file_of_its_input_named(tmp_path, fault, kind, said):
    script = tmp_path / "script.py"
    script.write_text(f"import sys, time, atheris\natheris.Setup(sys.argv[:1] + sys.argv[2:], lambda data: {fault})\n"
                      "atheris.Fuzz()\n")
    tried, wrong = fuzzed("it", tmp_path, ["-runs=100"], script, one_s=2)
    (found,) = tmp_path.glob(f"it-{kind}-*")
    assert tried and re.match(f"it: exit code [1-9][0-9]*, input {found}: ", wrong) and said in wrong
