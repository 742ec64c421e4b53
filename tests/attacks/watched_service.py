"""The retrieval service under attack: what it holds in memory, how fast it says that it lives, and what it logs."""
import contextlib
import re
import threading
import time

from tests import exported
from tests.service_process import serving, wait_for

READ_S = 1.0
KNOWN = exported.original_id("int", 3)
MEMORY, HEALTH_S = 150e6, 3.0  # that an attack may cost, on a machine whose cores the attackers share
_GRPC = re.compile(r"gRPC at \S+:(\d+)")


class Watched:
    """A service and what was seen of it since `begin`."""

    def __init__(self, service):
        self.service, self.grpc_port = service, 0
        self.peak = self.slowest = 0.0
        self._stop, self._before = threading.Event(), 0
        service.port  # pylint: disable=pointless-statement  (waits)
        self.grpc_port = int(wait_for(lambda: _GRPC.search(service.log), 20)[1])
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self):
        while not self._stop.wait(0.02):
            begun = time.monotonic()
            try:
                self.peak = max(self.peak, self.service.memory())
                assert self.service.request("/healthz", timeout=20).status == 200
                self.slowest = max(self.slowest, time.monotonic() - begun)
            except (OSError, AssertionError):
                self.slowest = max(self.slowest, time.monotonic() - begun, 99.0 if self._dead() else 0.0)

    def _dead(self):
        return self.service.process.poll() is not None

    @contextlib.contextmanager
    def unharmed(self, group, memory=MEMORY):
        """Counts one attack more: that of all others on memory, on the answer to /healthz, on the log, and on life."""
        self._before = self.peak = self.service.memory()
        self.slowest, logged = 0.0, self.service.log.count("Traceback")
        yield
        time.sleep(0.1)
        wait_for(lambda: self._dead() or self.healthy(), 20)
        logged = self.service.log.count("Traceback") - logged
        told = (f"{(self.peak - self._before) / 1e6:.0f} MB more, /healthz after {self.slowest:.2f} s, "
                f"{logged} tracebacks, {'dead' if self._dead() else 'alive'}")
        print(f"{group.name}: {told}")
        if logged:
            print(self.service.log[-5000:])
        group.count(self.peak - self._before < memory and self.slowest < HEALTH_S and not self._dead()
                    and not logged, told)

    def healthy(self) -> bool:
        """Whether it answers with what is right."""
        with contextlib.suppress(OSError):
            answer = self.service.predict({"signature_name": "retrieve", "instances": [{"history": [KNOWN], "k": 2}]})
            return answer.status == 200 and answer.json["predictions"][0]["ids"][0] == KNOWN
        return False

    def end(self):
        """Ends watching."""
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def watched(export_dir, *flags):
    """Yields a `Watched`."""
    with serving(export_dir, "--grpc_port=0", f"--read_timeout_s={READ_S}", *flags) as service:
        found = Watched(service)
        try:
            yield found
        finally:
            found.end()
