"""What an evaluation says about intents: by hand, and against NumPy loops over the vectors of a small Multi-CLRec."""
import dataclasses
import json

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import TrainConfig
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.errors import UserError
from clrec_tf import evaluate
from clrec_tf.evaluation.auc_protocol import pair_scores
from clrec_tf.evaluation.curve import curve
from clrec_tf.evaluation.curve import users_to_choose_on
from clrec_tf.evaluation.intent_example import example_of
from clrec_tf.evaluation.intent_example import load_example
from clrec_tf.evaluation import intent_metrics
from clrec_tf.evaluation.intent_report import nearest_items
from clrec_tf.evaluation.intent_report import report_intents
from clrec_tf.evaluation.intent_report import routing_of
from clrec_tf.evaluation.popularity import choose_popularity
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.evaluation import protocols
from clrec_tf.models.encode import Encoder
from clrec_tf import train
from clrec_tf.training.restore import load_trained
from tests import small_run
from tests import tiny_multi

INTENTS = 3
COUNTS = np.arange(12, 0, -1)


@pytest.fixture(scope="module", name="world")
def fixture_world():
    """Model, encoder, catalogue and 40 users of up to 5 clicks; some targets are unknown."""
    model, rng = tiny_multi.tiny_model(INTENTS, tiny_multi.GATED), np.random.default_rng(1)
    items = np.arange(1, tiny_multi.ITEMS + 1)
    catalogue = Catalogue(np.stack([items, tiny_multi.CATEGORY[items]], axis=1), COUNTS, items * 10, None)
    lengths = rng.integers(1, 6, 40)
    history = rng.integers(1, tiny_multi.ITEMS + 1, lengths.sum())
    users = EvaluationSet(np.arange(40), history, np.append(0, np.cumsum(lengths)), rng.integers(0, 13, 40),
                          np.arange(41), history_features=tiny_multi.CATEGORY[history][:, None])
    return model, Encoder(model, tiny_multi.HISTORY), catalogue, users


def vectors_of(world):
    model, encoder, catalogue, users = world
    return encoder.compared_items(catalogue.item_rows), *encoder.user_intents(users)


@pytest.mark.parametrize("temperature", [0.3, 0.001])
def test_score_of_all_vectors_is_their_soft_maximum(temperature):
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(9, 4, 5)).astype(np.float32), rng.normal(size=(30, 5)).astype(np.float32)
    items[17] = items[3]  # equal items tie
    scores = protocols.vector_scorer(users, items, temperature)(2, 8)
    products = np.einsum("ukd,vd->uvk", users[2:8].astype(float), items.astype(float)) / temperature
    np.testing.assert_allclose(scores, temperature * np.logaddexp.reduce(products, axis=2), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scores[:, 3], scores[:, 17])
    alone = users[:, :1]
    np.testing.assert_array_equal(protocols.vector_scorer(alone, items, temperature)(0, 9),
                                  protocols.vector_scorer(alone, items)(0, 9))


def test_the_dial_and_the_auc_read_all_vectors():
    """At every popularity the vectors are joined by the sum, whose order is not that of the largest."""
    rng = np.random.default_rng(3)
    vectors, items = rng.normal(size=(30, 4, 5)).astype(np.float32), rng.normal(size=(12, 5)).astype(np.float32)
    coordinate = rng.normal(size=12).astype(np.float32)
    users = EvaluationSet(np.arange(30), np.zeros(0, int), np.zeros(31, int), rng.integers(1, 13, 30), np.arange(31))
    settings = EvaluateConfig(ks=("3",), candidate_sets=("full",), list_length=3)
    points = curve(vectors, items, coordinate, users, COUNTS, settings, 0, [0.0, 0.7], temperature=0.5, intervals=False)
    scores = np.logaddexp.reduce(np.einsum("ukd,vd->kuv", vectors, items, dtype=float) / 0.5)
    largest = np.einsum("ukd,vd->kuv", vectors, items, dtype=float).max(axis=0) / 0.5
    hits = lambda table: np.mean([(row > row[target - 1]).sum() < 3 for row, target in zip(table, users.target_ids)])
    for alpha in (0.0, 0.7):
        assert points[alpha]["hr@3/full"] == pytest.approx(hits(scores + alpha * coordinate / 0.5))
        assert hits(scores + alpha * coordinate / 0.5) != hits(largest + alpha * coordinate / 0.5)
    pairs = pair_scores(vectors, items, np.stack([users.target_ids, np.zeros(30, int)]), 0.5)
    np.testing.assert_allclose(pairs[0], 0.5 * scores[np.arange(30), users.target_ids - 1], rtol=1e-6)
    assert not pairs[1].any()


def test_entropy_and_calibration_by_hand():
    weights = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    assert intent_metrics.mean_entropy(weights) == pytest.approx(np.log(2) / 2)
    # Ten bins: .05 and .09 in the first, of which one of two happened; .95 in the last, right; 1.0 there too, wrong.
    error = intent_metrics.calibration_error(np.array([.05, .09, .95, 1.0]), np.array([True, False, True, False]))
    assert error == pytest.approx((abs(.14 - 1) + abs(1.95 - 1)) / 4)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_score_is_the_largest_of_the_vectors(count):
    rng = np.random.default_rng(count)
    users, items = rng.normal(size=(9, count, 4)).astype(np.float32), rng.normal(size=(30, 4)).astype(np.float32)
    items[17] = items[3]  # equal items tie
    scores = protocols.vector_scorer(users, items)(2, 8)
    for row, user in enumerate(range(2, 8)):
        for item in range(30):
            best = max(float(np.float32(users[user, k].astype(float) @ items[item].astype(float)))
                       for k in range(count))
            assert scores[row, item] == pytest.approx(best, abs=1e-7)
    np.testing.assert_array_equal(scores[:, 3], scores[:, 17])
    if count == 1:
        np.testing.assert_array_equal(scores, protocols.vector_scorer(users[:, 0], items)(2, 8))


def test_no_vector_may_be_nan():
    vectors = np.ones((3, 2, 4), np.float32)
    vectors[1, 1, 0] = np.nan
    users = EvaluationSet(np.arange(3), np.zeros(0, int), np.zeros(4, int), np.ones(3, int), np.arange(4))
    with pytest.raises(UserError, match="user 1 for item 1 is nan"):
        protocols.rank_targets(protocols.vector_scorer(vectors, np.ones((5, 4), np.float32)), users, 5)


def test_balance_by_hand():
    # Three items with 6, 3 and 1 clicks. Routed softly (.5, .5, 0), (0, 1, 0), (1, 0, 0): π = (.4, .6, 0).
    routing, clicks = np.array([[0.5, 0.5, 0], [0, 1, 0], [1, 0, 0]]), np.array([6, 3, 1])
    np.testing.assert_allclose(intent_metrics.soft_shares(routing, clicks), [0.4, 0.6, 0])
    np.testing.assert_allclose(intent_metrics.route_shares(routing.argmax(axis=1), clicks, 3), [0.7, 0.3, 0])
    assert intent_metrics.effective_number(np.array([0.25] * 4)) == pytest.approx(4)
    assert intent_metrics.effective_number(np.array([1.0, 0.0])) == 1
    np.testing.assert_allclose(intent_metrics.probabilities(np.log([[1.0, 3.0]]).astype(np.float32)), [[0.25, 0.75]],
                               rtol=1e-6)


def test_categories_by_hand():
    # Intent 0: items a (5 clicks, categories 1 and 2), b (3, category 2), c (2, none). Intent 2: d (10, category 1).
    routes, clicks = np.array([0, 0, 0, 2]), np.array([5, 3, 2, 10])
    categories = np.array([[1, 2], [2, 2], [0, 0], [1, 0]])
    # The most frequent category of intent 0 is 2, with 8 of 10 clicks; intent 2 has one category only.
    assert intent_metrics.category_purity(routes, clicks, categories) == pytest.approx((8 + 10) / 20)
    # Of intent 0: category 1 has 2.5 clicks, category 2 has 2.5 + 3, "none" has 2.
    shares = np.array([2.5, 5.5, 2]) / 10
    assert intent_metrics.effective_categories(routes, clicks, categories) == pytest.approx(
        (10 * np.exp(-(shares * np.log(shares)).sum()) + 10 * 1) / 20)
    # Without regard to intents: 15 of 20 clicks are on category 1, 8 on 2, 2 on none.
    assert intent_metrics.category_purity(np.zeros(4, int), clicks, categories) == pytest.approx(15 / 20)


def test_vectors_and_selection_by_hand():
    routes = np.array([0, 0, 1, 1, 2])  # of items 1..5
    listed, numbers = np.array([[1, 2, 3], [3, 5, 1], [5, 4, 3]]), np.array([0, 1, 2])
    np.testing.assert_allclose(intent_metrics.own_share(listed, routes, numbers), [2 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(intent_metrics.chance_of_own(routes, numbers), [2 / 5, 2 / 5, 1 / 5])
    # Most of 0, 0, 1 are 0; of 1, 2, 0 none is ahead, so the lowest; of 2, 1, 1 most are 1.
    assert intent_metrics.themes(listed, routes).tolist() == [0, 0, 1]
    assert intent_metrics.distinct(np.array([[0, 0, 1], [2, 1, 0], [3, 3, 3]])).tolist() == [2, 3, 1]
    selected, wanted = np.array([[0, 1], [2, 0], [1, 2], [1, 0]]), np.array([0, 0, 0, 1])
    assert intent_metrics.hit_rate(selected[:, :1], wanted) == 2 / 4
    assert intent_metrics.hit_rate(selected, wanted) == 3 / 4
    assert (intent_metrics.constant_hit_rate(wanted, 1), intent_metrics.constant_hit_rate(wanted, 2)) == (3 / 4, 1)


def test_routing_is_the_models(world):
    model, encoder, catalogue, _ = world
    routing = routing_of(model, encoder, catalogue)
    np.testing.assert_array_equal(routing.routes, model.route(catalogue.item_rows).numpy())
    np.testing.assert_allclose(routing.probabilities.sum(axis=1), 1)
    assert routing.feature == "category" and routing.categories[:, 0].tolist() == tiny_multi.CATEGORY[1:].tolist()


def test_metrics_equal_a_walk_through_users_and_vectors(world):
    model, encoder, catalogue, users = world
    items, vectors, weights, numbers = vectors_of(world)
    routing, config = routing_of(model, encoder, catalogue), EvaluateConfig(ks=("1", "3"), filter_seen=True)
    result = report_intents((vectors, weights, numbers), routing, items, .4, users, COUNTS, config, 0)
    own, themes, selected, hits, repeats = [], [], [], {1: 0, 3: 0}, 0
    rules = dict(heaviest=lambda scores: scores[0], maximum=lambda scores: scores.max(axis=0),
                 lse=lambda scores: np.logaddexp.reduce(scores / .4))
    joined = {name: {1: 0, 3: 0} for name in (*rules, "given_intent/its_items")}
    for user, target in enumerate(users.target_ids):
        brought = []
        for vector, number in zip(vectors[user], numbers[user]):
            near = sorted(range(12), key=lambda item: (-np.float32(vector.astype(float) @ items[item]), item))[:10]
            found = [routing.routes[item] for item in near]
            own.append(found.count(number) / 10)
            brought.append(max(sorted(set(found)), key=found.count))
        themes.append(len(set(brought)))
        if target == 0:
            continue
        wanted = routing.routes[target - 1]
        selected.append(numbers[user, 0] == wanted)
        scores = items @ vectors[user, numbers[user].tolist().index(wanted)]
        seen = set(users.history_ids[slice(*users.history_splits[user:user + 2])]) - {target}
        rank_of = lambda scores, among=range(12): 1 + sum(
            scores[item] > scores[target - 1] for item in among if item + 1 not in seen)
        for name, rule in rules.items():
            of_rule = rule(vectors[user].astype(float) @ items.T.astype(float))
            for k in joined[name]:
                joined[name][k] += rank_of(of_rule) <= k
        for k in hits:
            joined["given_intent/its_items"][k] += rank_of(of_rule, np.flatnonzero(routing.routes == wanted)) <= k
        rank = rank_of(scores)
        hits = {k: count + (rank <= k) for k, count in hits.items()}
        repeats += 1
    assert result["intents/own_items@10"] == pytest.approx(np.mean(own))
    assert result["intents/themes@3"] == pytest.approx(np.mean(themes))
    assert result["intents/hit_rate"] == pytest.approx(np.mean(selected)) and result["intents/hit_rate@3"] == 1
    heaviest = [list(numbers[:, 0]).count(number) / 40 for number in range(INTENTS)]
    assert result["intents/share_max/selected"] == max(heaviest) and 1 < result["intents/effective/selected"] < 3
    assert result["intents/weight"] == pytest.approx(np.mean([row.max() for row in weights]))
    for k, count in hits.items():
        name = f"hr@{k}/full/given_intent"
        assert result[name] == pytest.approx(count / 40) and result[f"{name}/low"] <= result[name] <= 1
    for rule, of_rule in joined.items():
        for k, count in of_rule.items():
            assert result[f"hr@{k}/full/{rule}"] == pytest.approx(count / 40)
    assert joined["lse"] != joined["heaviest"] and joined["given_intent/its_items"][1] > joined["lse"][1]
    known = [user for user, target in enumerate(users.target_ids) if target]
    chances = [weights[user, numbers[user].tolist().index(routing.routes[users.target_ids[user] - 1])] for user in known]
    assert result["intents/log_loss"] == pytest.approx(-np.mean(np.log(chances)), rel=1e-5)
    frequency = np.bincount(routing.routes[users.target_ids[known] - 1]) / len(known)
    assert result["intents/log_loss/constant"] == pytest.approx(-np.sum(frequency * np.log(np.maximum(frequency, 1e-9))))
    assert result["intents/entropy"] == pytest.approx(intent_metrics.mean_entropy(weights))
    assert 0 < repeats < 40 and 0 < np.mean(own) < 1 and 0 < np.mean(selected) < 1
    shares = COUNTS @ routing.probabilities / COUNTS.sum()
    assert result["intents/share_max/soft"] == pytest.approx(shares.max())
    assert result["intents/empty"] == INTENTS - len(set(routing.routes))
    # A routing by category alone beats one that ignores it.
    assert result["intents/category_purity"] > result["intents/category_purity/chance"]
    assert result["intents/categories"] < result["intents/categories/chance"]


def test_nearest_items_do_not_depend_on_the_memory(world, monkeypatch):
    items, vectors, *_ = vectors_of(world)
    flat = vectors.reshape(-1, vectors.shape[2])
    whole = nearest_items(flat, items, 5)
    monkeypatch.setattr(protocols, "MEMORY_BYTES", 1)
    np.testing.assert_array_equal(nearest_items(flat, items, 5), whole)
    assert nearest_items(vectors[0], items, 20).shape == (INTENTS, 12)


def test_example_names_what_the_model_sees(world):
    model, encoder, catalogue, users = world
    items, vectors, weights, numbers = vectors_of(world)
    named = dataclasses.replace(catalogue, titles=np.array(["", *(f"title {i}" for i in range(2, 13))], object))
    example = example_of(model, encoder, items, users, named, {"category": ["Drama", "", "Film-Noir"]},
                         tiny_multi.HISTORY, EvaluateConfig(), 4)
    user = example.user_id
    history = users.history_ids[slice(*users.history_splits[user:user + 2])]
    routes, names = model.route(catalogue.item_rows).numpy(), ["Drama", "category 2", "Film-Noir", "category 4",
                                                               "category 5"]
    assert example.clicks == len(history) and example.feature == "category"
    assert [shown.original_id for shown in example.history] == [str(10 * item) for item in history[:-4:-1]]
    for shown in (*example.history, *(item for vector in example.vectors for item in vector.items)):
        item = int(shown.original_id) // 10
        assert shown.title == (f"title {item}" if item > 1 else "10")
        assert (shown.category, shown.intent) == (names[tiny_multi.CATEGORY[item] - 1], routes[item - 1])
    assert [vector.number for vector in example.vectors] == numbers[user].tolist()
    np.testing.assert_allclose([vector.weight for vector in example.vectors], weights[user], rtol=1e-5)
    unseen = [item for item in range(12) if item + 1 not in history]
    for shown, vector in zip(example.vectors, vectors[user]):
        best = sorted(unseen, key=lambda item: -items[item] @ vector)[:8]
        assert [item.original_id for item in shown.items] == [str(10 * item + 10) for item in best]


@pytest.fixture(scope="module", name="trained")
def fixture_trained(tmp_path_factory):
    """A run of a Multi-CLRec with four intents on the log with planted successors."""
    folder = tmp_path_factory.mktemp("multi")
    settings = small_run.config(small_run.prepared(folder), folder / "run", epochs=1,
                                model=dict(model="multi_clrec", num_intents=4, attention_heads=4))
    assert small_run.run(settings) == 0
    return settings


def evaluated(settings, **changes):
    return evaluate.evaluate(dataclasses.replace(settings, evaluate=EvaluateConfig(ks=("1", "10"), **changes)))


def test_evaluation_of_a_run_has_metrics_and_picture(trained):
    workdir = trained.paths.workdir
    result = evaluated(trained, untrained=True)
    with open(f"{workdir}/metrics.json", encoding="utf-8") as file:
        assert json.load(file) == result
    with open(f"{workdir}/intents.png", "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    example = load_example(workdir)
    assert len(example.vectors) == 4 and {item.category for item in example.history} <= {"c0", "c1", "c2"}
    assert [vector.weight for vector in example.vectors] == sorted(
        (vector.weight for vector in example.vectors), reverse=True)
    assert result["intents_searched"] == 4 and 0 < result["intents/own_items@10/chance"] < 1
    for name in ("intents/share_min/soft", "intents/category_purity", "intents/hit_rate@4", "intents/themes@4",
                 "hr@10/full/given_intent"):
        assert 0 <= result[name] and 0 <= result[f"untrained/{name}"]
    # Three categories: no intent has more than one on average, and with all four searched none is missed.
    assert result["intents/categories/chance"] > 2.9 and result["intents/hit_rate@4"] == 1


def test_the_popularity_is_chosen_by_all_vectors(trained):
    """What validation users choose by is their rankings at evaluate's rule: as many vectors, joined by the sum."""
    chosen = {}
    for count in (0, 1):
        restored = load_trained(trained, "latest")
        catalogue = read_catalogue(trained.paths.data_dir, restored.schema, restored.manifest)
        encoder = Encoder(restored.model, restored.max_history)
        items, counts = encoder.compared_items(catalogue.item_rows), counted_of(restored, catalogue, trained.paths.data_dir)
        choice = choose_popularity(trained, restored, encoder, items, catalogue, counts, count)
        users = read_evaluation_set(trained.paths.data_dir, "valid", restored.schema, restored.manifest,
                                    users_to_choose_on(len(items)), trained.paths.seed)
        points = curve(encoder.user_intents(users)[0][:, :count or 4], items, counts.coordinate, users,
                       catalogue.counts, dataclasses.replace(trained.evaluate, ks=("10",)), trained.paths.seed,
                       [0.0, 1.0], temperature=restored.model.temperature, intervals=False)
        for alpha, of_alpha in points.items():
            assert choice.chosen_by["curve"][f"{alpha:g}"][0] == of_alpha["ndcg@10/full"]
        chosen[count] = choice.chosen_by["curve"]
    assert chosen[0] != chosen[1]


def test_as_many_intents_as_are_asked_for_are_searched_everywhere(trained):
    one, every, by_default = (evaluated(trained, eval_intents=count, auc=True, max_users=40) for count in (1, 4, 0))
    assert (one["intents_searched"], every["intents_searched"]) == (1, 4) and by_default == every
    for name in ("mrr/full", "mrr/uniform100", "gini@10/full", "auc/paired"):
        assert one[name] != every[name]
    for name in ("intents/own_items@10", "hr@10/full/heaviest", "hr@10/full/maximum", "hr@10/full/lse"):
        assert one[name] == every[name]
    for k in (1, 10):
        assert one[f"hr@{k}/full"] == one[f"hr@{k}/full/heaviest"]
        assert every[f"hr@{k}/full"] == every[f"hr@{k}/full/lse"]


def test_a_loss_of_the_selected_vector_is_ranked_by_it(tmp_path):
    """--loss=ipw trains the heaviest vector alone, so there is no gate and no other vector is searched."""
    settings = small_run.config(small_run.prepared(tmp_path), tmp_path / "run", epochs=1,
                                model=dict(model="multi_clrec", num_intents=4, loss="full_softmax"))
    assert small_run.run(settings) == 0
    result = evaluated(settings)
    assert result["intents_searched"] == 1 and result["hr@10/full"] == result["hr@10/full/heaviest"]


def test_more_intents_than_there_are_name_both(trained, tmp_path):
    with pytest.raises(UserError, match="--eval_intents=5: the model has 4 vectors per user.*at most 4"):
        evaluated(trained, eval_intents=5)
    with pytest.raises(UserError, match="--eval_intents=2: the model has 1 vector per user"):  # before training
        train.check_settings(Config(train=TrainConfig(stages=("train", "evaluate")),
                                    evaluate=EvaluateConfig(eval_intents=2)))
