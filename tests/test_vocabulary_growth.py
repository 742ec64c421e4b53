"""prepare --vocabulary_from: numbers of items and feature values stay, new ones come after them, retired ones are freed."""
import json
import pathlib

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation.splits import DAY
from clrec_tf.preparation import vocabulary
from tests.prepared_data import prepare_text
from tests.prepared_data import read_split

START = 1_600_000_000
FEATURES = dict(feature_columns=("kind",), multi_feature_columns=("tags",), min_train_length=1)
HEADER = "user_id,item_id,timestamp,kind,tags,title"


def log(day: float, clicks: dict[str, int], kinds=None) -> str:
    """Clicks of one day, item -> how often; an item's kind is its first letter or as given, its tags all letters."""
    lines, user = [HEADER], 0
    for item, count in clicks.items():
        for _ in range(count):
            # Three clicks each: the first is trained on.
            kind = (kinds or {}).get(item, item[0])
            for click, clicked in enumerate((item, "a1", "a1")):
                second = START + round(DAY * day) + user * 10 + click
                lines.append(f"u{user},{clicked},{second},{kind if clicked == item else 'a'},"
                             f"{'|'.join(clicked)},the {clicked}")
            user += 1
    return "\n".join(lines) + "\n"


def numbers(data_dir: str) -> dict[str, int]:
    """Original id -> number."""
    return {record["original_id"][0].decode(): record["item_id"][0] for record in read_split(data_dir, "catalogue")}


def report(data_dir: str) -> dict:
    return json.loads((pathlib.Path(data_dir) / "report.json").read_text())


@pytest.fixture(scope="module", name="first")
def fixture_first(tmp_path_factory):
    """a1 (9 clicks in training, as target of others none), b1, b2 and c1."""
    return prepare_text(tmp_path_factory.mktemp("first"), log(0, dict(a1=9, b2=4, b1=3, c1=2)), **FEATURES)


def test_known_numbers_stay_and_new_ones_follow_by_count(first, tmp_path):
    assert numbers(first) == dict(a1=1, b2=2, b1=3, c1=4)
    grown = prepare_text(tmp_path, log(1, dict(d1=2, c1=7, e1=5)), vocabulary_from=first, **FEATURES)
    assert numbers(grown) == dict(a1=1, b2=2, b1=3, c1=4, e1=5, d1=6)
    records = {record["item_id"][0]: record for record in read_split(grown, "catalogue")}
    assert [records[number]["count"][0] for number in range(1, 7)] == [0, 0, 0, 7, 5, 2]
    values = json.loads((pathlib.Path(grown) / "feature_values.json").read_text())
    before = json.loads((pathlib.Path(first) / "feature_values.json").read_text())
    assert values["kind"] == before["kind"] + ["e", "d"]
    assert values["tags"][:len(before["tags"])] == before["tags"] and set(values["tags"]) == set("abcde12")
    # What nobody clicked today is as it was, title and time of the last click too.
    assert records[2]["f:kind"][0] == 1 + values["kind"].index("b") and records[2]["title"] == [b"the b2"]
    assert [values["tags"][value - 1] for value in records[2]["f:tags"]] == ["b", "2"]
    old = {record["item_id"][0]: record for record in read_split(first, "catalogue")}
    assert records[2]["last_click"] == old[2]["last_click"] and records[4]["last_click"] > old[4]["last_click"]
    assert report(grown)["vocabulary_from"] == dict(known=4, clicked=2, absent=2, retired=0, new=2,
                                                    new_values=dict(kind=2, tags=2))
    # Sequences carry the numbers.
    ids = {record["item_id"][0] for record in read_split(grown, "train")}
    assert ids == {4, 5, 6}


def test_what_nobody_clicks_is_retired_and_its_number_given_away(first, tmp_path):
    later = dict(vocabulary_from=first, **FEATURES)
    kept = prepare_text(tmp_path, log(5, dict(c1=3, d1=2)), name="kept", retire_after=5, **later)
    assert numbers(kept) == dict(a1=1, b2=2, b1=3, c1=4, d1=5)  # on its fifth day
    freed = prepare_text(tmp_path, log(6, dict(c1=3, d1=2)), name="freed", retire_after=5, **later)
    assert numbers(freed) == dict(a1=1, d1=2, c1=3)  # b2's number is given away, and c1 closes the gap of b1
    assert report(freed)["vocabulary_from"] == dict(known=4, clicked=2, absent=0, retired=2, new=1, moved=1,
                                                    new_values=dict(kind=1, tags=1))
    # The next day goes on from there; what was retired comes back as a new item.
    again = prepare_text(tmp_path, log(7, dict(b1=4, e1=5)), name="again", **{**later, "vocabulary_from": freed})
    assert numbers(again) == dict(a1=1, d1=2, c1=3, e1=4, b1=5)


def test_last_clicks_are_those_of_all_days(first, tmp_path):
    """An item clicked on day 0 alone is retired by the clock of the last log, not by that of the one before."""
    second = prepare_text(tmp_path, log(4, dict(c1=1)), name="second", vocabulary_from=first, **FEATURES)
    third = prepare_text(tmp_path, log(8, dict(d1=1)), name="third", vocabulary_from=second, retire_after=5, **FEATURES)
    assert numbers(third) == dict(a1=1, d1=2, c1=3) and report(third)["vocabulary_from"]["retired"] == 2


@given(st.lists(st.booleans(), max_size=8), st.integers(0, 8))
def test_continued_leaves_no_gap_and_moves_no_more_than_it_must(taken, new):
    """By a loop: free numbers from the lowest go to new items, and what is free then to the highest."""
    numbered = np.array([100 + place if there else -1 for place, there in enumerate(taken)], np.int64)
    arriving = np.arange(new) + 500
    expected, waiting = list(numbered), list(arriving)
    for place, item in enumerate(expected):
        if item < 0 and waiting:
            expected[place] = waiting.pop(0)
    expected += waiting
    while -1 in expected:
        last = expected.pop()
        if last >= 0:
            expected[expected.index(-1)] = last
    found = vocabulary.continued(numbered, arriving)
    assert sorted(found) == sorted(expected) and len(found) == len(expected)
    stays = [place for place, item in enumerate(expected) if place < len(numbered) and item == numbered[place]]
    assert all(found[place] == expected[place] for place in stays)


def test_the_same_call_again_changes_nothing_and_another_vocabulary_is_told(first, tmp_path):
    text = log(1, dict(c1=2, d1=2))
    grown = prepare_text(tmp_path, text, vocabulary_from=first, **FEATURES)
    before = (pathlib.Path(grown) / "manifest.json").read_bytes()
    assert prepare_text(tmp_path, text, vocabulary_from=first, **FEATURES) == grown
    assert (pathlib.Path(grown) / "manifest.json").read_bytes() == before
    other = prepare_text(tmp_path, log(0, dict(c1=2)), name="other", **FEATURES)
    with pytest.raises(UserError, match="was prepared with sha256=.*vocabulary_from"):
        prepare_text(tmp_path, text, vocabulary_from=other, **FEATURES)


def test_hash_buckets_follow_the_new_vocabulary(first, tmp_path):
    grown = prepare_text(tmp_path, log(1, dict(c1=2, d1=2, e1=1)), vocabulary_from=first, oov_buckets=2,
                         min_item_count=2, **FEATURES)
    assert numbers(grown) == dict(a1=1, b2=2, b1=3, c1=4, d1=5)  # known ones stay, however rare
    ids = {record["item_id"][0] for record in read_split(grown, "train")}
    assert ids == {4, 5, 6 + vocabulary.bucket("e1", 2)}


@pytest.mark.parametrize("text, settings, error, said", [
    (log(1, dict(c1=2)), dict(vocabulary_from="nowhere"), UserError, "--vocabulary_from=nowhere holds no complete"),
    (log(-1, dict(c1=2)), {}, DataError, r"log.csv ends at 2020-09-12.*before --vocabulary_from=.*2020-09-13"),
    (f"{HEADER}\nu,zz,{START + DAY},x,y,z\nu,yy,{START + DAY},x,y,z\n", {}, DataError, "none of the log's 2 items"),
    (log(1, dict(c1=2, d1=2)), dict(multi_feature_columns=(), feature_columns=("kind", "tags")), DataError,
     "feature 'tags' has one value per item, and in .* up to 2"),
    (log(1, dict(c1=2, d1=2), kinds=dict(a1="A", c1="7", d1="8")).replace(",a,", ",A,"), {}, DataError,
     "feature 'kind' has no value that it has in .* now such as '7', there such as 'a'"),
    (log(1, dict(c1=2)).replace(f",{START + DAY}", ","), dict(retire_after=3, timestamp_column=""), UserError,
     "--retire_after=3 counts days"),
])
def test_what_does_not_fit_is_refused(first, tmp_path, text, settings, error, said):
    with pytest.raises(error, match=said):
        prepare_text(tmp_path, text, **{**FEATURES, "vocabulary_from": first, **settings})
    assert not (tmp_path / "data").exists()


def test_retiring_needs_a_vocabulary(tmp_path):
    with pytest.raises(UserError, match="--retire_after=3 frees numbers"):
        prepare_text(tmp_path, log(1, dict(c1=2)), retire_after=3, **FEATURES)
