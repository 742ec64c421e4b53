"""Standard error as JSON, one object a line: log records, what is printed there, warnings, and errors nobody caught.

What TensorFlow's C++ code prints goes past Python, and stays text.
"""
import datetime
import io
import json
import logging as std_logging
import pathlib
import sys
import threading

from absl import logging

_SEVERITIES = {"error:": "ERROR", "warning:": "WARNING"}  # of printed lines, by how they begin
_facts = {}  # of this process, for all lines


def note(**facts) -> None:
    """What further lines tell of this process: command, role, index, run_id, step; in text they are left out."""
    _facts.update(facts)


def line(severity: str, message: str, moment: float, **more) -> str:
    """One line, without its end.

    Args:
      severity: DEBUG, INFO, WARNING, ERROR or CRITICAL.
      message: may have several lines of its own.
      moment: seconds since 1970.
      **more: fields behind those of the process.
    """
    time = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "severity": severity, "message": message, **_facts, **more}, default=str)


class Formatter(std_logging.Formatter):
    """Log records as JSON, a traceback as the field `exception`."""

    def format(self, record):
        """See `logging.Formatter`."""
        more = {"source": f"{record.filename}:{record.lineno}"}
        if record.exc_info and record.exc_info[0]:
            more["exception"] = self.formatException(record.exc_info)
        return line(record.levelname, record.getMessage(), record.created, **more)


class _Printed(io.TextIOBase):
    """What is printed to a stream becomes JSON there: one object for what was written until a line's end."""

    def __init__(self, stream):
        super().__init__()
        self._stream, self._held, self._lock = stream, "", threading.RLock()

    def write(self, text):
        """See `io.TextIOBase`."""
        with self._lock:
            self._held += text
            if self._held.endswith("\n"):
                self._emit()
        return len(text)

    def _emit(self):
        message, self._held = self._held.strip("\n"), ""
        if message:
            severity = next((value for begin, value in _SEVERITIES.items() if message.startswith(begin)), "INFO")
            self._stream.write(line(severity, message, datetime.datetime.now().timestamp()) + "\n")

    def flush(self):
        """See `io.TextIOBase`."""
        with self._lock:
            self._emit()
            self._stream.flush()

    def fileno(self):
        """Of the stream behind it."""
        return self._stream.fileno()

    def writable(self):
        """See `io.TextIOBase`."""
        return True


def begin(program: str) -> None:
    """From here on this process writes JSON to standard error; `program` is the file that it runs."""
    note(command=pathlib.Path(program).stem, role="local", index=0)
    handler = logging.get_absl_handler()
    handler.setFormatter(Formatter())
    std_logging.getLogger("tensorflow").handlers.clear()  # text, of what absl's handler gets too
    std_logging.captureWarnings(True)
    sys.stderr = _Printed(sys.stderr)
    sys.excepthook = lambda *error: _tell_uncaught(error)
    threading.excepthook = lambda told: _tell_uncaught((told.exc_type, told.exc_value, told.exc_traceback))


def _tell_uncaught(error) -> None:
    if not issubclass(error[0], SystemExit):
        logging.get_absl_logger().error("%s: %s", error[0].__name__, error[1], exc_info=error)
