"""A page in headless Chromium, driven through a pipe by the DevTools protocol: what a person sees, and does."""
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
          "--disable-dev-shm-usage", "--remote-debugging-pipe", "--window-size=1280,1000")
_WAIT_S = 20
_KEYS = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27, "Tab": 9}


class Page:
    """One tab."""

    def __init__(self, send, receive):
        self._send, self._receive, self._number, self._session, self._events = send, receive, 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters) -> dict:
        """One command of the protocol."""
        self._number += 1
        self._send(dict(id=self._number, method=method, params=parameters)
                   | (dict(sessionId=self._session) if self._session else {}))
        while (got := self._receive()).get("id") != self._number:
            self._events.append(got)
        assert "error" not in got, got
        return got["result"]

    def record(self, *methods: str) -> list[dict]:
        """Turns events on; returns the list in which they appear from now on, as the next commands meet them."""
        self._events = []
        for method in methods:
            self.call(method)
        return self._events

    def run(self, script: str):
        """The value of an expression in the page."""
        got = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def wait(self, script: str):
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + _WAIT_S
        while not (value := self.run(script)):
            assert time.monotonic() < end, (script, self.run("document.body.innerText"))
            time.sleep(0.02)
        return value

    def open(self, url: str) -> None:
        """Goes to an address, and waits for what it retrieves."""
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")
        self.settled()

    def settled(self) -> None:
        """Waits for the answer to the last change."""
        self.wait("!!document.querySelector('#answer-card[aria-busy=false]')")

    def texts(self, selector: str) -> list[str]:
        """The text that is seen in each element."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText.trim())")

    def attributes(self, selector: str, name: str) -> list[str]:
        """An attribute of each element."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})]"
                        f".map(one => one.getAttribute({json.dumps(name)}))")

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS[key])

    def click(self, selector: str) -> None:
        """Clicks the first such element."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")


@contextlib.contextmanager
def page():
    """Yields a `Page` of a browser of its own."""
    (into, commands), (answers, out) = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        browser = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{into} 4>&{out}', "bash", PROGRAM, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(into, out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(into)
        os.close(out)
        try:
            with os.fdopen(commands, "wb", buffering=0) as sending, os.fdopen(answers, "rb") as receiving:
                yield Page(lambda command: sending.write(json.dumps(command).encode() + b"\0"),
                           lambda: json.loads(_until_zero(receiving)))
        finally:
            browser.kill()
            browser.wait()


def _pipe():
    """A pipe whose descriptors are none of those that the browser is to have."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved


def _until_zero(stream):
    parts = bytearray()
    while (byte := stream.read(1)) != b"\0":
        assert byte, "the browser has ended"
        parts += byte
    return bytes(parts)
