"""The retrieval server as a process of its own, started as a user starts it; for benchmarks and tests."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Callable
from typing import Optional

from clrec_tf.errors import UserError
from clrec_tf.lab.children import resident_memory_bytes

STOP_S = 30.0
_SERVING = re.compile(r"serving \S+ version \d+ at http://(?:127\.0\.0\.1|localhost):(\d+)")
_SHOWN = 3000  # characters of the log in an error


class ServingProcess:
    """A server on any free port of this machine. It is starting when this returns; `port` waits until it is ready.

    Args:
      export_dir: folder of bundles.
      flags: further flags of clrec_tf.serve.
      start_s: longest that it may take to be ready.
      folder: working directory; by default this process's own.
      bound: whether the server ends with this process however that ends, where the machine has setpriv.
      start: what starts it, called as subprocess.Popen is.

    Attributes:
      process: the process.
    """

    def __init__(self, export_dir: str, *flags: str, start_s: float, folder: Optional[str] = None, bound: bool = False,
                 start: Callable[..., subprocess.Popen] = subprocess.Popen):
        self._start_s, self._port = start_s, 0
        self._log = tempfile.NamedTemporaryFile("wb", suffix=".log")  # not a pipe, which nobody would empty
        setpriv = shutil.which("setpriv") if bound else None  # of util-linux
        command = [*([setpriv, "--pdeathsig", "TERM"] if setpriv else []), sys.executable, "-m", "clrec_tf.serve",
                   f"--export_dir={export_dir}", "--port=0", *flags]
        self.process = start(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                             env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"})

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return pathlib.Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    @property
    def port(self) -> int:
        """Of HTTP. Waits until the server is ready; `UserError` if it ends before, or takes too long."""
        deadline = time.monotonic() + self._start_s
        while not self._port:
            ended = self.process.poll() is not None  # before the log is read, which is complete then
            serving = _SERVING.search(self.log)
            if serving:
                self._port = int(serving[1])
            elif ended:
                raise UserError(f"the service ended with {self.process.returncode}: {self._last_words()}")
            elif time.monotonic() > deadline:
                raise UserError(f"the service was not ready within {self._start_s:g} s: {self._last_words()}")
            else:
                time.sleep(0.02)
        return self._port

    def memory(self) -> int:
        """The resident size in bytes."""
        return resident_memory_bytes(self.process.pid)

    def stop(self) -> None:
        """Ends the server as Kubernetes does, and by force where that does not help."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """Ends the server, whatever it is doing; its log is gone."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def _last_words(self):
        return self.log.strip()[-_SHOWN:] or "nothing"
