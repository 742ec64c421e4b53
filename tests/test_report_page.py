"""The report as a person meets it: in a browser, wide and narrow, light, dark and on paper."""
import contextlib
import functools
import http.server
import json
import threading

import pytest

from clrec_tf.report import write_report
from tests import chromium
from tests.finished_runs import add_intents, HOSTILE, make_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no chromium, "
                                                   "chromium-browser or google-chrome")]
RUNS = ("first", "second", "a_run_with_a_rather_long_name_that_no_phone_has_room_for")
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].join()"


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    runs = [make_run(folder / name, {"hr@10/full": 0.25 + 0.125 * place}, seed=place)
            for place, name in enumerate(RUNS)]
    add_intents(runs[1])
    write_report([str(run) for run in runs], str(folder / "page.html"))
    return folder


@contextlib.contextmanager
def served(folder):
    """Yields a server's address, and the paths that it is asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        """Notes what is asked for."""

        def log_message(self, *arguments):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def seen(page, width, dark=False, media="screen"):
    """Sets how the page is looked at."""
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    page.call("Emulation.setEmulatedMedia", media=media,
              features=[dict(name="prefers-color-scheme", value="dark" if dark else "light")])


def test_the_page_in_a_browser(folder):
    with served(folder) as (address, asked), chromium.page() as page:
        events = page.record("Runtime.enable", "Log.enable", "Network.enable")
        page.call("Page.navigate", url=f"{address}/page.html")
        page.wait("document.readyState === 'complete' && document.title === " + json.dumps(
            f"Report: {', '.join(RUNS)}"))

        row = "[...document.querySelectorAll('th[scope=row]')].find(one => one.innerText === 'hr@10/full').parentNode"
        assert page.run(f"[...{row}.querySelectorAll('.figure')].map(one => one.innerText)") == [
            "0.2500", "0.3750", "0.5000"]
        assert page.run(f"{row}.querySelector('b').innerText") == "0.5000"
        assert page.texts("#queue tbody tr:nth-child(3)")[0].split("\t")[1:] == ["640"] * 3
        assert page.texts("#settings tbody tr")[0].split("\t") == ["--seed", "0", "1", "2"]
        assert page.run("document.querySelectorAll('svg.chart[role=img][aria-label]').length") == 6
        # A point of the dial stands where its figures say: twice the hit rate is twice as high above the axis.
        height = ("(place => document.querySelector('#dial .axis').getBoundingClientRect().y"
                  " - (box => box.y + box.height / 2)(document.querySelectorAll('#dial circle.point')[place]"
                  ".getBoundingClientRect()))({})")
        assert page.run(height.format(2)) == pytest.approx(1.5 * page.run(height.format(1)), rel=0.02)

        assert HOSTILE in page.run("document.querySelector('#intents').textContent")
        assert page.run("window.hacked === undefined && !document.querySelector('img, script')")

        pairs = set()
        for dark in (False, True):
            for width in (320, 1200):
                seen(page, width, dark)
                assert page.run("document.documentElement.scrollWidth") <= width
                assert page.run("document.querySelector('#dial svg').getBoundingClientRect().width") <= width
                pairs.add(page.run(COLOURS))
        assert len(pairs) == 2
        seen(page, 700, dark=True, media="print")
        assert page.run(COLOURS).startswith("rgb(255, 255, 255),rgb(28, 35, 48)")
        assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"

        assert asked == ["/page.html"]
        assert [one["method"] for one in events if one["method"] in (
            "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")] == []
        requests = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
        assert [url for url in requests if not url.startswith("data:")] == [f"{address}/page.html"]

        # Even a script that got in would not run.
        page.run("document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.h = 1\">')")
        page.run("document.querySelector('body > p').click()")
        assert page.run("window.h === undefined")
