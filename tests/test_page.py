"""The page of the service, as a person meets it in a browser: against what the API answers."""
import contextlib
import json
import re
import subprocess
import urllib.parse

import pytest

from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.update_index import update_bundle
from tests import chromium
from tests.exported import attributes, ITEMS
from tests.page_catalogues import HOSTILE, LARGE, multi_world, text_id, text_world
from tests.service_process import Service, wait_for

TITLES = "[...document.querySelectorAll('#answer .item .name')].map(one => one.firstChild.textContent)"
SET = "(field => {{ field.value = '{value}'; field.dispatchEvent(new Event('{event}')); }})($('{field}'))"
BROWSER = pytest.mark.skipif(chromium.PROGRAM is None,
                             reason="there is no chromium, chromium-browser or google-chrome")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="services")
def _services(tmp_path_factory):
    """By name: "text", "multi", and "bare", which has no page; they start at the same time."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("text", "multi")}
    text_world().export(folders["text"])
    multi_world().export(folders["multi"], attributes=attributes())
    with contextlib.ExitStack() as stack:
        started = dict(text=Service(folders["text"], "--page", "--max_listed=8"),
                       multi=Service(folders["multi"], "--page"), bare=Service(folders["text"]))
        for service in started.values():
            stack.callback(service.kill)
        for service in started.values():
            assert service.port
        yield started | dict(text_folder=folders["text"])


@pytest.fixture(scope="module", name="page")
def _page():
    with chromium.page() as page:
        yield page


def address(service, history=(), **options):
    """Of a view."""
    ids = ",".join(urllib.parse.quote(str(item), safe="") for item in history)
    return f"http://127.0.0.1:{service.port}/?" + "&".join(
        f"{name}={value}" for name, value in ({"history": ids} | options).items())


def shown(page):
    """Ids in the answer, in the order seen."""
    return page.attributes("#answer .item", "data-id")


def messages(page):
    """What is said above the answer."""
    return " ".join(page.texts("#messages .message"))


@BROWSER
class TestText:
    """A model with titles and one vector per user."""

    def test_a_linked_view_shows_what_the_api_gives(self, services, page):
        history = [text_id(number) for number in (5, 3, 8)]
        page.open(address(services["text"], history, k=7, exclude_seen=1))
        expected, = services["text"].users(dict(history=history, k=7, exclude_seen=True, titles=True))
        assert shown(page) == expected["ids"] and len(expected["ids"]) == 7
        assert page.run(TITLES) == expected["titles"]
        assert [float(text) for text in page.texts("#answer .score")] == pytest.approx(expected["scores"], abs=6e-4)
        assert page.attributes("#history .chip", "data-id") == history
        assert page.run("location.search").startswith("?history=%C3%A4%2C5%20%2B%3Ci%3E%26%27%252C,%C3%A4")
        assert page.run("document.querySelector('#intents-field').checkVisibility()") is False

    def test_the_dial_turns_every_list_and_is_part_of_the_link(self, services, page):
        history = [text_id(number) for number in (5, 3, 8)]
        page.open(address(services["text"], history, k=12))
        plain, turned = (services["text"].users(dict(history=history, k=12, popularity=alpha))[0]["ids"]
                         for alpha in (0, 1))
        assert shown(page) == plain != turned
        assert page.texts("#popularity-value") == ["0 (default)"]
        assert page.run("[$('popularity').min, $('popularity').max].join()") == "-0.25,1.25"
        page.run(SET.format(field="popularity", value=1, event="input"))
        page.settled()
        assert shown(page) == turned and page.texts("#popularity-value") == ["1"]
        assert "popularity=1" in page.run("location.search") and '"popularity": 1' in page.texts("#curl")[0]
        where = page.run("location.href")
        page.open(address(services["text"]))
        page.open(where)
        assert shown(page) == turned and page.run("$('popularity').value") == "1"
        page.open(where.replace("popularity=1", "popularity=9"))  # beyond what is offered
        assert page.run("$('popularity').value") == "1.25" and len(shown(page)) == 12

    def test_the_order_of_clicks_and_what_was_seen_count(self, services, page):
        history = [text_id(number) for number in (5, 3, 8, 9)]
        lists = []
        for clicks, seen in ((history, 0), (history[::-1], 0), (history, 1)):
            page.open(address(services["text"], clicks, k=ITEMS, exclude_seen=seen))
            lists.append(shown(page))
            expected, = services["text"].users(dict(history=clicks, k=ITEMS, exclude_seen=bool(seen)))
            assert lists[-1] == expected["ids"]
        assert lists[0] != lists[1] and set(lists[0]) - set(lists[2]) == set(history)

    def test_titles_are_text(self, services, page):
        page.open(address(services["text"], [text_id(1)], k=ITEMS))
        for hostile in HOSTILE:
            assert any(title.startswith(hostile) for title in page.run(TITLES))
        page.run("document.querySelector('#find').focus()")
        page.type("<img src=x")
        page.wait("document.querySelectorAll('#found [role=option]').length === 20")
        assert HOSTILE[0] in page.texts("#found .name")[0]
        page.open(address(services["text"], ["<img src=x onerror=window.hacked=2>"]))
        assert "<img src=x onerror=window.hacked=2>" in messages(page)
        assert page.run("document.querySelectorAll('main img, main b, main i, main script').length") == 0
        assert page.run("window.hacked === undefined")

    def test_the_browser_runs_no_other_script(self, services, page):
        page.open(address(services["text"]))
        page.run("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.hacked=3\">')")
        assert page.run("new Promise(done => setTimeout(() => done(window.hacked === undefined), 100))")

    def test_fallback_and_unknown_ids(self, services, page):
        page.open(address(services["text"], ["nobody's, item"], k=3))
        expected, = services["text"].users(dict(history=["x"], k=3))
        assert expected["fallback"] and shown(page) == expected["ids"]
        assert "No click is known to the model: these are the most popular items." in messages(page)
        assert "left aside: nobody's, item" in messages(page)
        assert page.texts(".chip.strange .name") == ["nobody's, item\nnot known to the model"]
        page.open(address(services["text"], [text_id(4), "nobody's, item"], k=3))
        assert "left aside: nobody's, item" in messages(page) and "popular" not in messages(page)
        assert len(page.texts(".chip.strange")) == 1
        page.open(address(services["text"]))
        assert "There are no clicks yet: these are the most popular items." in messages(page)

    def test_by_keyboard(self, services, page):
        page.open(address(services["text"]))
        page.run("document.querySelector('#find').focus()")
        page.wait("document.querySelectorAll('#found [role=option]').length === 20")
        page.press("ArrowDown")
        page.press("Enter")
        page.settled()
        popular = services["text"].request("/v1/models/clrec/items").json["items"][0]["id"]
        page.type(text_id(7)[:4])
        page.wait("document.querySelector('#found [aria-selected=true] .id')?.textContent.startsWith('ä,7 ')")
        page.press("Enter")
        page.settled()
        assert page.attributes(".chip", "data-id") == [popular, text_id(7)]
        page.click(".chip:nth-child(2) [data-act=Earlier]")
        page.settled()
        assert page.attributes(".chip", "data-id") == [text_id(7), popular]
        assert page.run("document.activeElement.closest('.chip').dataset.id") == text_id(7)
        before, where = shown(page), page.run("location.href")
        page.open(where)
        assert shown(page) == before and page.attributes(".chip", "data-id") == [text_id(7), popular]
        page.click(".chip:nth-child(1) [data-act=Remove]")
        page.settled()
        assert page.attributes(".chip", "data-id") == [popular]
        page.run("history.back()")
        page.wait("document.querySelectorAll('.chip').length === 2")
        page.settled()
        assert shown(page) == before

    def test_errors_in_words(self, services, page):
        page.open(address(services["text"], [text_id(number) for number in range(1, 10)]))
        assert "history has 9 ids, at most 8 are accepted" in messages(page) and shown(page) == []
        page.call("Network.enable")
        offline = dict(latency=0, downloadThroughput=-1, uploadThroughput=-1)
        page.call("Network.emulateNetworkConditions", offline=True, **offline)
        page.click(".chip [data-act=Remove]")
        page.settled()
        assert messages(page) == "The service does not answer. Is it still running?"
        page.call("Network.emulateNetworkConditions", offline=False, **offline)
        page.click("#messages button")
        page.wait("document.querySelectorAll('#answer .item').length === 10")

    def test_the_command_for_a_shell(self, services, page):
        page.open(address(services["text"], [text_id(5), "it's"], k=4))
        output = subprocess.run(page.texts("#curl")[0].replace("curl", "printf '%s\\n'", 1), shell=True, check=True,
                                capture_output=True, text=True).stdout.splitlines()
        assert output[0] == "-d" and output[2] == f"http://127.0.0.1:{services['text'].port}/v1/models/clrec:predict"
        answer = services["text"].predict(output[1].encode())
        assert [str(item) for item in answer.json["predictions"][0]["ids"]] == shown(page)

    def test_a_new_version_is_shown_at_the_next_request(self, services, page):
        history = [text_id(number) for number in (5, 3)]
        page.open(address(services["text"], history, k=20))
        before = shown(page)
        assert page.texts("#facts div")[0].split() == ["version", "1"]
        text_world(seed=1).export(services["text_folder"])
        wait_for(lambda: services["text"].request("/readyz").json["version"] == 2, 30)
        page.click("#exclude_seen")
        page.settled()
        expected, = services["text"].users(dict(history=history, k=20, exclude_seen=True))
        assert page.texts("#facts div")[0].split() == ["version", "2"]
        assert shown(page) == expected["ids"] != [item for item in before if item not in history]

    def test_a_fresh_item_is_found_and_said_not_to_count(self, services, page, tmp_path):
        service, folder = services["text"], str(services["text_folder"])
        bundle = load_bundle(folder)
        place = bundle.positions(bundle.id_array([text_id(3)]))
        vector = bundle.item_vectors(place)[0].tolist()
        lines = [{"id": "brand-new", "vector": vector, "title": "Fresh one"},
                 {"id": "liked", "like": [text_id(3)], "title": "Liked one"}]  # counts at once
        (tmp_path / "new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (tmp_path / "gone.txt").write_text(f"{text_id(4)}\n{text_id(5)}\n")
        update_bundle(folder, str(tmp_path / "new.jsonl"), str(tmp_path / "gone.txt"), 0.9)
        version = load_bundle(folder).manifest["version"]
        wait_for(lambda: service.request("/readyz").json["version"] == version, 30)
        page.open(address(service))
        assert page.texts("#facts div")[1].split() == ["items", str(ITEMS)]
        page.run("document.querySelector('#find').focus()")
        page.type("fresh o")
        page.wait("document.querySelector('#found [aria-selected=true]')?.textContent.startsWith('Fresh one')")
        said = "fresh: does not count in a history yet"
        assert page.run("document.querySelector('#found [aria-selected=true]').textContent").endswith(said)
        page.press("Enter")
        page.settled()
        assert page.attributes(".chip", "data-id") == ["brand-new"]
        assert page.texts(".chip.strange .name")[0].split("\n") == ["Fresh one", said]
        page.open(address(service, ["liked"]))
        assert not page.texts(".chip.strange .name") and not messages(page)

    def test_small_weights_are_not_shown_as_none(self, page):
        assert [page.run(f"percent({value})") for value in (0, .0009, .001, .0994, .5)] == [
            "< 0.1 %", "< 0.1 %", "0.1 %", "9.9 %", "50 %"]


@BROWSER
class TestMulti:
    """A model of several intents, times and dwell times, whose ids are large integers."""
    history = [LARGE + 1000 + 7 * number for number in (4, 9, 30)]

    def test_by_rank_and_by_intent(self, services, page):
        page.open(address(services["multi"], self.history, k=12, intents=4, merge="quota", exclude_seen=1))
        user = dict(history=self.history, k=12, exclude_seen=True, intents=4, merge="quota")
        expected, = services["multi"].users(user)
        ids, weights = [str(item) for item in expected["ids"]], expected["weights"]
        assert shown(page) == ids
        assert [int(re.search(r"\d+", text)[0]) for text in page.texts("#answer .item .badge")] == expected["intents"]
        assert [" ".join(text.split()) for text in page.texts("#legend li")[:4]] == [
            f"intent {intent} {100 * weight:.{int(weight < .0995)}f} % {count} item{'s' * (count != 1)}"
            for intent, weight in weights.items() for count in [expected["intents"].count(int(intent))]]
        page.click("[value=intent]")
        assert page.attributes("#answer .group", "data-intent") == list(weights)
        groups = page.run("[...document.querySelectorAll('#answer .group')].map(group => "
                          "[...group.querySelectorAll('.item')].map(one => one.dataset.id))")
        assert groups == [[item for item, brought in zip(ids, expected["intents"]) if brought == int(intent)]
                          for intent in weights]
        assert sum(map(len, groups)) == 12 and "view=intent" in page.run("location.search")

    def test_filters_and_the_clicks_an_item_rests_on(self, services, page):
        page.open(address(services["multi"], self.history, k=4, explain=1, **{"filter.category": "c1,c2"}))
        user = dict(history=self.history, k=4, explain=True, intents=4)

        def seen(given):
            expected, = services["multi"].users(user | {"filter": given})
            assert shown(page) == [str(item) for item in expected["ids"]] and len(shown(page)) == 4
            because = [", ".join(str(click["id"]) for click in clicks) for clicks in expected["explanations"]]
            assert page.texts("#answer .clicks") == [
                f"rests on {clicks}" if clicks else "rests on no single click" for clicks in because]
            assert any(because)
        seen({"category": ["c1", "c2"]})
        assert page.run("$('filter-category').value") == "c1,c2"
        page.run(SET.format(field="most-price", value=20, event="input"))
        page.settled()
        seen({"category": ["c1", "c2"], "price": {"max": 20}})
        assert "most.price=20" in page.run("location.search") and '"max":20' in page.run("$('curl').textContent")
        page.click("#unfilter")
        page.settled()
        seen(None)
        assert "filter." not in page.run("location.search")

    def test_options_count(self, services, page):
        page.open(address(services["multi"], self.history))
        page.run(SET.format(field="intents", value=6, event="input"))
        page.run(SET.format(field="k", value=9, event="input"))
        page.settled()
        for merge in ("quota", "maximum"):
            page.run(SET.format(field="merge", value=merge, event="change"))
            page.settled()
            expected, = services["multi"].users(dict(history=self.history, k=9, intents=6, merge=merge))
            assert shown(page) == [str(item) for item in expected["ids"]] and len(expected["weights"]) == 6
        assert "k=9&intents=6&merge=maximum" in page.run("location.search")

    def test_what_is_no_integer_and_what_is_not_sent(self, services, page):
        page.open(address(services["multi"], [self.history[0], "<b>", 2**63], k=5, intents=999))
        expected, = services["multi"].users(dict(history=self.history[:1], k=5, intents=6))
        assert shown(page) == [str(item) for item in expected["ids"]]
        assert "left aside: <b>, 9223372036854775808" in messages(page)
        assert "uses times and dwell times: this page sends none" in page.texts("#history-hint")[0]


def test_without_the_flag_there_is_no_page(services):
    for path in ("/", "/v1/models/clrec/items?query=x"):
        assert services["bare"].request(path).status == 404
        assert services["text"].request(path).status == 200


def test_the_page_asks_nobody_else(services):
    answer = services["text"].request("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|src=|@import|url\(", answer.body.decode())
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert services["text"].request("/", method="HEAD").status == 200


def test_items_are_looked_up(services):
    items = lambda query: services["text"].request("/v1/models/clrec/items?" + query)
    quoted = urllib.parse.quote(text_id(3), safe="")
    assert items(f"id={quoted}&id=nope").json["items"] == [
        dict(id=text_id(3), title=HOSTILE[2] + " 2", known=True), dict(id="nope", title=None, known=False)]
    assert items(f"query={quoted}").json["items"][0]["id"] == text_id(3)
    assert [len(items(f"query=B%3EBOLD&limit={limit}").json["items"]) for limit in (1, 7, 100)] == [1, 7, ITEMS // 3]
    large, = services["multi"].request(f"/v1/models/clrec/items?id={LARGE + 1007}").json["items"]
    assert large == dict(id=str(LARGE + 1007), title=None, known=True)
    for query, text in ((f"query={'x' * 201}", "201 characters"), ("limit=0", "limit is '0'"), ("limit=x", "'x'"),
                        ("limit=101", "1 to 100"), ("&".join(["id=a"] * 1001), "at most 1000")):
        assert items(query).status == 400 and text in items(query).error, query
    assert services["text"].request("/v1/models/other/items").status == 404
