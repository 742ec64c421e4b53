"""What a process serves at /metrics, fetched over HTTP and parsed as Prometheus does."""
import contextlib
import socket
import time
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


class Scraped(dict):
    """(name, frozenset of (label, value)) -> value, of all series of one answer."""

    def get_value(self, name: str, **labels: str) -> float:
        """The value of the one series of this name that has these labels, among others."""
        [value] = [value for (other, pairs), value in self.items()
                   if other == name and labels.items() <= dict(pairs).items()]
        return value

    def labels(self) -> dict[str, set[str]]:
        """Name of each series -> its labels."""
        return {name: {label for label, _ in pairs} for name, pairs in self}


def parsed(text: str) -> Scraped:
    """The series in an answer."""
    return Scraped({(sample.name, frozenset(sample.labels.items())): sample.value
                    for family in text_string_to_metric_families(text) for sample in family.samples})


def scrape(port: int) -> Scraped:
    """What a port of this machine serves; `OSError` where nothing does."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
        return parsed(answer.read().decode())


def scraped_when(port: int, condition, seconds: float = 150.0) -> Scraped:
    """The first answer for which condition(answer) is true; `AssertionError` if none comes."""
    end, found = time.monotonic() + seconds, None
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, ValueError):
            found = scrape(port)
            if condition(found):
                return found
        time.sleep(0.05)
    raise AssertionError(f"port {port}: not within {seconds:g} s; the last answer: {found}")


def free_ports(count: int = 1) -> int:
    """The first of so many ports in a row that nobody has."""
    while True:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
                for number in range(1, count):
                    stack.enter_context(socket.create_server(("127.0.0.1", first + number)))
                return first
