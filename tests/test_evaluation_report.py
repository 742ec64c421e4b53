"""The metrics dict of one evaluation: names, values that can be known beforehand, table, file and picture."""
import dataclasses
import json
import os
import re

import numpy as np
import pytest

from clrec_tf.config import EvaluateConfig
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import UserError
from clrec_tf.evaluation import figures
from clrec_tf.evaluation import findings
from clrec_tf.evaluation import report

NUM_USERS, NUM_ITEMS = 40, 300
COUNTS = np.arange(NUM_ITEMS, 0, -1)
CONFIG = EvaluateConfig(ks=("1", "10"))


@pytest.fixture(name="users")
def fixture_users():
    """One unseen target each, a quarter of them unknown; five clicks before."""
    rng = np.random.default_rng(0)
    clicks = np.stack([rng.permutation(NUM_ITEMS)[:6] + 1 for _ in range(NUM_USERS)])
    targets = np.where(np.arange(NUM_USERS) % 4 == 0, 0, clicks[:, 5])
    return EvaluationSet(np.arange(NUM_USERS), clicks[:, :5].ravel(), 5 * np.arange(NUM_USERS + 1), targets,
                         np.arange(NUM_USERS + 1))


def evaluate_oracle(users, sign=1.0, **options):
    """Evaluates vectors of which the target's agrees best with its user's: one axis per item."""
    items = np.eye(NUM_ITEMS, dtype=np.float32)
    return report.evaluate_vectors(sign * items[np.maximum(users.next_clicks, 1) - 1], items, users, COUNTS, CONFIG, 0,
                                   **options)


def test_oracle_reaches_the_ceiling_and_its_opposite_nothing(users):
    best, worst = evaluate_oracle(users), evaluate_oracle(users, sign=-1.0)
    for name in report.CANDIDATE_SETS:
        assert best[f"ceiling/{name}"] == best[f"hr@1/{name}"] == best[f"mrr/{name}"] == best[f"ndcg@10/{name}"] == 0.75
        assert worst[f"hr@10/{name}"] == 0
    assert best["recall_ceiling/full"] == best["recall@1/full"] == 0.75
    assert best["repeated_targets"] == 0 and best["users_short_of_negatives/pop100"] == 0
    assert (best["split"], best["users"], best["items"], best["filter_seen"]) == ("test", 40, 300, True)


def test_constant_scorer_earns_chance_in_every_set(users):
    result = report.evaluate_vectors(np.ones((NUM_USERS, 2)), np.ones((NUM_ITEMS, 2)), users, COUNTS, CONFIG, 0)
    for name, candidates in (("full", NUM_ITEMS - 5), ("pop100", 101), ("uniform100", 101)):
        np.testing.assert_allclose(result[f"hr@10/{name}"], 0.75 * 10 / candidates)


def test_most_popular_equals_itself_beside_itself(users):
    result = report.evaluate_scorer(
        lambda start, stop: np.tile(COUNTS, (stop - start, 1)).astype(float), users, COUNTS, CONFIG, 0)
    assert result["popularity_index@10/full"] == 1
    beside = {name: value for name, value in result.items() if name.startswith(report.MOST_POPULAR)}
    assert beside == {name: result[name.removeprefix(report.MOST_POPULAR)] for name in beside}
    assert {"hr@10/full", "ndcg@10/pop100", "gini@10/full", "aplt@10/full"} <= {
        name.removeprefix(report.MOST_POPULAR) for name in beside}


def test_intervals_hold_their_means_and_draws_follow_the_seed(users):
    result = evaluate_oracle(users)
    intervals = [name.removesuffix("/low") for name in result if name.endswith("/low")]
    assert "hr@10/full" in intervals and "recall@10/full" in intervals
    for name in intervals:
        assert result[f"{name}/low"] <= result[name] <= result[f"{name}/high"]
    assert evaluate_oracle(users) == result


def test_negatives_of_pop100_are_clicked_items_and_those_of_uniform100_any(users):
    counts = np.where(np.arange(NUM_ITEMS) < 150, 5, 0)
    targets = np.where(users.next_clicks > 0, 1, 0)  # item 1, which only items without a click outrank
    aiming = EvaluationSet(users.user_ids, np.zeros(0, int), np.zeros(NUM_USERS + 1, int), targets, users.target_splits)
    result = report.evaluate_scorer(lambda start, stop: np.tile((counts == 0) * 1.0, (stop - start, 1)) + (
        np.arange(NUM_ITEMS) == 0) * 0.5, aiming, counts, CONFIG, 0, detailed=False)
    assert result["hr@1/pop100"] == 0.75 and result["hr@1/uniform100"] == 0


def test_validation_wants_less(users):
    result = evaluate_oracle(users, candidate_sets=("full",), detailed=False)
    assert result["hr@10/full"] == 0.75
    assert not [name for name in result if "pop" in name or "uniform" in name or "diversity" in name or "/low" in name]


def test_seen_filter_is_reported_and_felt(users):
    # Seen items score highest, so that without the filter they fill the first five ranks.
    scores = np.zeros((NUM_USERS, NUM_ITEMS))
    rows, items = users.history_pairs(0, NUM_USERS)
    scores[rows, items - 1] = 2
    scores[np.arange(NUM_USERS), np.maximum(users.next_clicks, 1) - 1] += 1
    ranks = {}
    for filter_seen in (True, False):
        result = report.evaluate_scorer(lambda start, stop: scores[start:stop], users, COUNTS,
                                        EvaluateConfig(filter_seen=filter_seen), 0, detailed=False)
        assert result["filter_seen"] is filter_seen
        ranks[filter_seen] = result["mrr/full"]
    np.testing.assert_allclose([ranks[True], ranks[False]], [0.75, 0.75 / 6])


@pytest.mark.parametrize("config,problem", [
    (EvaluateConfig(candidate_sets=("full", "pop50")), "--candidate_sets=full,pop50"),
    (EvaluateConfig(ks=("x",)), "--ks=x"), (EvaluateConfig(ks=("0",)), "--ks=0"), (EvaluateConfig(ks=()), "--ks=")])
def test_wrong_settings_name_the_flag(users, config, problem):
    with pytest.raises(UserError, match=problem):
        report.evaluate_scorer(lambda start, stop: None, users, COUNTS, config, 0)


def test_cutoffs_that_leave_no_candidate_out_are_warned_of(caplog):
    config = EvaluateConfig(ks=("10", "101", "300"), candidate_sets=("full", "pop100"))
    with caplog.at_level("WARNING"):
        report.warn_of_large_cutoffs(config, 300)  # the next click and 100 others; 300
        assert [record.getMessage().split(":")[1] for record in caplog.records] == [
            " of the 300 candidates of /full at most, 300 leave none out",
            " of the 101 candidates of /pop100 at most, 101, 300 leave none out"]
        caplog.clear()
        report.warn_of_large_cutoffs(EvaluateConfig(ks=("10", "100")), 301)
        assert not caplog.records


def test_nothing_left_to_recommend_is_said():
    """Of two users one has clicked all three items, then both have."""
    for half, warned in ((np.array([1, 2, 3, 1]), 1), (np.array([1, 2, 3, 1, 2, 3]), 2)):
        users = EvaluationSet(np.arange(2), half, np.array([0, 3, len(half)]), np.array([1, 2]), np.arange(3))
        vectors = np.eye(3)[:2], np.eye(3)
        result = report.evaluate_vectors(*vectors, users, np.ones(3), CONFIG, 0)
        warnings = findings.warnings_of(result, users, CONFIG, lambda sample: vectors, lambda sample: vectors)
        assert len(warnings) == 1 and warnings[0].startswith(f"the histories of {warned} of 2 users hold all 3 items")
        assert result["hr@1/full"] == 1 and ("gini@10/full" in result) == (warned == 1)
        assert result["aggregate_diversity@10/full"] == (2 if warned == 1 else 0)
    kept = dataclasses.replace(CONFIG, filter_seen=False)
    assert findings.warnings_of(result, users, kept, lambda sample: vectors, lambda sample: vectors) == []


def test_five_next_clicks_are_looked_for_where_there_are_five():
    users = EvaluationSet(np.arange(2), np.zeros(0, int), np.zeros(3, int), np.array([1, 2, 3, 4, 5, 9]),
                          np.array([0, 5, 6]))
    scores = np.tile(-np.arange(100.0), (2, 1))
    result = report.evaluate_scorer(lambda start, stop: scores[start:stop], users, np.ones(100), CONFIG, 0)
    assert result["recall5@50/full"] == 1 and result["recall@1/full"] == (1 / 5 + 0) / 2


@pytest.mark.parametrize("filter_seen, repeated_rank", [(True, 1), (False, 3)])
def test_new_and_repeated_next_clicks_are_told_apart(filter_seen, repeated_rank):
    # Item i of 8 scores −i. Users: 0 and 1 click 4 and 3, new to them (the filter takes 1 and 2 away from user 1); 2
    # clicks 3 again, after 1, 2 and 3; 3 clicks an unknown item.
    histories, targets = [[8], [1, 2], [1, 2, 3], [5]], [4, 3, 3, 0]
    users = EvaluationSet(np.arange(4), np.concatenate(histories), np.array([0, 1, 3, 6, 7]), np.array(targets),
                          np.arange(5))
    scores = np.tile(-np.arange(8.0), (4, 1))
    result = report.evaluate_scorer(lambda start, stop: scores[start:stop], users, np.ones(8),
                                    EvaluateConfig(ks=("1", "3", "4"), filter_seen=filter_seen, list_length=3), 0)
    assert result["repeated_targets"] == 1 / 4
    new_ranks = [4, 1 if filter_seen else 3, np.inf]
    for k in (1, 3, 4):
        new, repeated = sum(rank <= k for rank in new_ranks) / 3, float(repeated_rank <= k)
        assert (result[f"hr@{k}/full/new"], result[f"hr@{k}/full/repeated"]) == (new, repeated)
        assert result[f"hr@{k}/full"] == pytest.approx((3 * new + repeated) / 4)
        assert result[f"hr@{k}/full/repeated/low"] == result[f"hr@{k}/full/repeated/high"] == repeated
        assert result[f"hr@{k}/full/new/low"] <= new <= result[f"hr@{k}/full/new/high"]
    table = report.metrics_table(result)
    assert "\nhr@3/full/new " in table and "\nhr@3/full/repeated " in table
    assert "most_popular/hr@3/full/repeated" in result


def test_a_group_without_users_has_no_figure(users):
    result = evaluate_oracle(users)
    assert result["hr@10/full/new"] == result["hr@10/full"] == 0.75 and "hr@10/full/repeated" not in result


def test_table_lines_up_the_model_with_most_popular(users):
    result = evaluate_oracle(users)
    lines = report.metrics_table(result, "CLRec").splitlines()
    assert lines[0].split() == ["CLRec", "most", "popular", "95", "%", "interval"]
    line = next(line for line in lines if line.startswith("hr@10/full "))
    name, model, popular, low, _, high = line.split()
    assert [name, model, popular, low, high] == ["hr@10/full", "0.7500", *(
        f"{result[key]:.4f}" for key in ("most_popular/hr@10/full", "hr@10/full/low", "hr@10/full/high"))]
    ends = {re.match(r"\S+ +\S+", line).end() for line in lines[1:]}
    assert ends == {lines[0].index("CLRec") + len("CLRec")}  # one right edge for the model's column


def test_metrics_file_and_picture_are_whole(users, tmp_path):
    result = evaluate_oracle(users)
    with open(report.save_metrics(str(tmp_path), result), encoding="utf-8") as file:
        assert json.load(file) == result
    histogram = [result[f"degree_histogram@10/full/{bucket}"] for bucket in range(10)]  # counts 1..300: up to 256+
    assert sum(histogram) == NUM_USERS * 10
    assert sum(result[f"truth/degree_histogram/{bucket}"] for bucket in range(10)) == COUNTS.sum()
    with open(figures.save_degree_histogram(str(tmp_path), result, "CLRec"), "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    assert sorted(os.listdir(tmp_path)) == [figures.HISTOGRAM_FILE, report.METRICS_FILE]


def test_hits_are_on_the_next_click_of_users_with_several_targets():
    # No history; user 0 clicks items 3, 1, 2 next, user 1 item 5 and then 1. Item i of 8 scores −i.
    users = EvaluationSet(np.arange(2), np.zeros(0, int), np.zeros(3, int), np.array([3, 1, 2, 5, 1]),
                          np.array([0, 3, 5]))
    scores = np.tile(-np.arange(8.0), (2, 1))
    config = EvaluateConfig(ks=("1", "3", "5"))
    result = report.evaluate_scorer(lambda start, stop: scores[start:stop], users, np.ones(8), config, 0)
    # Negatives are no targets, and all others here: 4, 6, 7, … beside 3; 2, 3, 4, … beside 5.
    for name, ranks in (("full", [3, 5]), ("pop100", [1, 4]), ("uniform100", [1, 4])):
        assert result[f"mrr/{name}"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
        for k in (1, 3, 5):
            hits = [rank for rank in ranks if rank <= k]
            assert result[f"hr@{k}/{name}"] == len(hits) / 2
            assert result[f"ndcg@{k}/{name}"] == pytest.approx(sum(1 / np.log2(rank + 1) for rank in hits) / 2)
    np.testing.assert_allclose(result["recall@3/full"], (3 / 3 + 1 / 2) / 2)  # which looks at all of them
