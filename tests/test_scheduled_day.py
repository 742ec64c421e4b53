"""The day of a scheduled Job, by its name: the same however late it runs, and refusals where the name says none."""
import datetime
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[1] / "launch" / "scheduled_day.py"
PRINT = [sys.executable, "-c", "import sys; print(*sys.argv[1:])"]


def minute(text: str) -> int:
    """Minutes since 1970 of an ISO time in UTC."""
    return int(datetime.datetime.fromisoformat(text + "+00:00").timestamp()) // 60


def launch(*arguments, environ=None):
    return subprocess.run([sys.executable, SCRIPT, *arguments], env=environ or {}, capture_output=True, text=True,
                          check=False)


@pytest.mark.parametrize("name,arguments,day", [
    (f"clrec-daily-{minute('2026-11-30T03:00')}", [], "2026-11-29"),  # yesterday is the last whole day
    (f"clrec-daily-{minute('2026-11-30T03:00')}", ["--back=0"], "2026-11-30"),
    (f"clrec-daily-{minute('2026-03-01T00:00')}", [], "2026-02-28"),
    (f"clrec-daily-{minute('2026-11-29T17:00')}", ["--utc_offset=8"], "2026-11-29"),  # one o'clock of the 30th there
    (f"clrec-daily-{minute('2026-11-30T03:00')}", ["--utc_offset=-3.5"], "2026-11-28"),
    ("clrec-daily-2026-11-29", ["--back=3"], "2026-11-29"),  # made by hand: as it says
])
def test_the_day_is_that_of_the_schedule(name, arguments, day):
    ran = launch(*arguments, "--", *PRINT, "--day={day}", environ={"CLREC_JOB_NAME": name})
    assert ran.stdout.strip() == f"--day={day}", ran.stderr


def test_days_before_and_after_are_filled_in_and_the_command_takes_the_process_over():
    ran = launch("--job_name=x-2024-03-01", "--", *PRINT, "a-{day}.csv", "{day-1}:{day+1}", "{other}")
    assert ran.stdout.strip() == "a-2024-03-01.csv 2024-02-29:2024-03-02 {other}"
    ran = launch("--job_name=x-2024-03-01", "--", sys.executable, "-c", "import sys; sys.exit(3)", "{day}")
    assert ran.returncode == 3


@pytest.mark.parametrize("arguments,words", [
    (["--job_name=clrec-daily", "--", "true", "{day}"], "says no day"),
    (["--job_name=clrec-daily-12", "--", "true", "{day}"], "says no day"),  # no minute since 2020
    (["--job_name=clrec-daily-999999999999", "--", "true", "{day}"], "says no day"),
    (["--job_name=clrec-daily-2026-02-30", "--", "true", "{day}"], "no day of the calendar"),
    (["--", "true", "{day}"], "--job_name is missing: give it, or set CLREC_JOB_NAME"),
    (["--job_name=x-2026-11-29", "--", "true"], "the command has no {day}"),
    (["--job_name=x-2026-11-29", "--", "true", "{day}", "{day-x}"], "{day-x}: write {day}"),
    (["--job_name=x-2026-11-29"], "no command"),
    (["--job_name=x-2026-11-29", "--utc_offset=20", "--", "true", "{day}"], "--utc_offset=20: hours"),
    (["--job_name=x-2026-11-29", "--back=-1", "--", "true", "{day}"], "--back=-1"),
    (["--job_name=x-2026-11-29", "--", "no-such-program", "{day}"], "cannot be run"),
])
def test_what_says_no_day_is_refused(arguments, words):
    ran = launch(*arguments)
    assert ran.returncode == 2 and "error: " in ran.stderr and words in ran.stderr and not ran.stdout
