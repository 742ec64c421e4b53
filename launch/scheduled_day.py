"""Starts a daily command with the day it was scheduled for, however late it runs or often it is tried again.

  python launch/scheduled_day.py --back=1 -- python -m clrec_tf.daily --day={day} --from={day-59} --to={day+1}

A CronJob of Kubernetes calls its Jobs NAME-N, N the minute since 1970 (UTC) that they were scheduled for; a pod learns
its Job's name from the label batch.kubernetes.io/job-name. So a Job that is tried again after midnight, or that was
started late, is still of its own day: the clock is not asked. A Job made by hand says the day itself: NAME-2026-11-29,
as in kubectl create job --from=cronjob/clrec-daily clrec-daily-2026-11-29.

In the command {day} becomes that day, as 2026-11-29, and {day-59} or {day+1} the days before or after it.

  --job_name    from the environment: CLREC_JOB_NAME
  --utc_offset  hours added to UTC to find the day (0)
  --back        the day is so many days before the scheduled time's (1: yesterday, the last whole day); a day that the
                name itself says is taken as it is

Only the standard library is used. Exit code 2: bad input."""
import argparse
import datetime
import os
import re
import sys
import typing

EXIT_USER_ERROR = 2
YEARS = (2020, 2100)  # a number that is no minute of these is no CronJob's
PLACEHOLDER = re.compile(r"\{day(?:([-+])([0-9]{1,4}))?\}")
NAMED = re.compile(r".+-([0-9]{4}-[0-9]{2}-[0-9]{2})")
NUMBERED = re.compile(r".+-([0-9]{1,12})")


class LaunchError(ValueError):
    """Bad input. Its message names argument, value and remedy."""


def day_of(job_name: str, utc_offset: float, back: int) -> datetime.date:
    """The day that a Job is for.

    Args:
      job_name: NAME-<minutes since 1970, UTC> of a CronJob's Jobs, or NAME-2026-11-29.
      utc_offset: hours added to UTC.
      back: days before the scheduled time's day; not for a day that the name says.
    """
    if named := NAMED.fullmatch(job_name):
        try:
            return datetime.date.fromisoformat(named[1])
        except ValueError as error:
            raise LaunchError(f"--job_name={job_name} ends in no day of the calendar ({error}): call the Job "
                              "NAME-2026-11-29, for example") from None
    numbered = NUMBERED.fullmatch(job_name)
    start, end = (datetime.datetime(year, 1, 1, tzinfo=datetime.timezone.utc).timestamp() for year in YEARS)
    if not numbered or not start <= int(numbered[1]) * 60 < end:
        raise LaunchError(f"--job_name={job_name} says no day: it must end in the minutes since 1970, as a CronJob "
                          "calls its Jobs, or in a day, as in NAME-2026-11-29")
    scheduled = datetime.datetime.fromtimestamp(int(numbered[1]) * 60, datetime.timezone.utc)
    return (scheduled + datetime.timedelta(hours=utc_offset)).date() - datetime.timedelta(days=back)


def filled(command: typing.Sequence[str], day: datetime.date) -> list[str]:
    """The command with its days."""
    def text(match):
        sign, number = match.groups()
        return str(day + datetime.timedelta(days=int(f"{sign}{number}") if sign else 0))

    words = [PLACEHOLDER.sub(text, word) for word in command]
    if list(command) == words:
        raise LaunchError(f"the command has no {{day}}, so every day would be the same: {' '.join(command)}")
    if unknown := [word for word in words if "{day" in word]:
        raise LaunchError(f"{unknown[0]}: write {{day}}, {{day-59}} or {{day+1}}")
    return words


def parse(argv: typing.Sequence[str], environ: typing.Mapping[str, str]) -> list[str]:
    """The command that stands after "--", with its days."""
    own, command = list(argv), []
    if "--" in own:
        own, command = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, usage="scheduled_day.py -- COMMAND",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job_name")
    parser.add_argument("--utc_offset", default="0")
    parser.add_argument("--back", default="1")
    given = parser.parse_args(own)
    if not command:
        raise LaunchError("no command: give it after --, as in -- python -m clrec_tf.daily --day={day}")
    name = given.job_name or environ.get("CLREC_JOB_NAME")
    if not name:
        raise LaunchError("--job_name is missing: give it, or set CLREC_JOB_NAME")
    if not re.fullmatch(r"-?[0-9]{1,2}(\.[0-9]+)?", given.utc_offset) or abs(float(given.utc_offset)) > 14:
        raise LaunchError(f"--utc_offset={given.utc_offset}: hours from -14 to 14")
    if not re.fullmatch(r"[0-9]{1,4}", given.back):
        raise LaunchError(f"--back={given.back}: must be a whole number of days, not negative")
    return filled(command, day_of(name, float(given.utc_offset), int(given.back)))


def main(argv: typing.Sequence[str]) -> int:
    """Becomes the command, so that signals reach it and its exit code is the container's; returns only on errors."""
    try:
        command = parse(argv, os.environ)
        print(f"running {' '.join(command)}", file=sys.stderr, flush=True)
        os.execvp(command[0], command)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
    return EXIT_USER_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
