"""The sequential simulator against its own definition: tables by loops, draws by counting, files as others read them."""
import dataclasses
import datetime
import json
import os
import pathlib
import sys

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import Config
from clrec_tf.config import ExposureWorldConfig
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.lab.simulator import sequential
from clrec_tf.lab.simulator.simulated_folder import write_simulation
from clrec_tf.lab.simulator import simulated_logs
from clrec_tf.lab.simulator import visits as visits_lib
from clrec_tf.preparation.synthetic_log import switch_probability
from clrec_tf import prepare
from tests import forked
from tests.prepared_data import read_split

FILES = ["clicks.csv", "impressions.parquet", "items.tsv", "truth.npz", "world.json"]
DAY, START = 86_400, int(datetime.datetime(2021, 3, 1, tzinfo=datetime.timezone.utc).timestamp())
SMALL = dict(exposure_users=400, exposure_items=64, exposure_types=2, exposure_weeks=2, quality_std=0.7,
             exposure_policy="personal")
TINY = dict(exposure_users=40, exposure_items=40, exposure_visits=25, exposure_types=4)
SIGMAS = 4.5  # standard errors, exceeded by a normal variable once in 150,000


def write(folder, seed=0, **settings):
    """Writes a simulation; returns its folder."""
    write_simulation(Config(paths=Paths(seed=seed),
                                      exposure_world=ExposureWorldConfig(world_dir=str(folder), **settings)))
    return str(folder)


def frames(folder):
    """Impressions, clicks and items as a reader of the files sees them."""
    return (pl.read_parquet(os.path.join(folder, "impressions.parquet")),
            pl.read_csv(os.path.join(folder, "clicks.csv")),
            pl.read_csv(os.path.join(folder, "items.tsv"), separator="\t"))


@pytest.fixture(scope="module", name="small")
def fixture_small(tmp_path_factory):
    """The folder of a small simulation in which every term of c and q is at work."""
    return write(tmp_path_factory.mktemp("small") / "world", **SMALL)


@pytest.fixture(scope="module", name="large")
def fixture_large():
    return sequential.generate(ExposureWorldConfig(), 3)


def assert_frequencies(counts, probabilities):
    """Chi² of the counts [V] of independent draws is within SIGMAS of its mean; cells expected below 10 are joined."""
    total, kept = counts.sum(), counts.sum() * probabilities >= 10
    expected = np.append(total * probabilities[kept], total * probabilities[~kept].sum())
    found, expected = np.append(counts[kept], counts[~kept].sum())[expected > 0], expected[expected > 0]
    assert kept.sum() >= 5
    chi = (found - expected) ** 2 / expected
    assert chi.sum() < len(chi) + SIGMAS * np.sqrt(2 * len(chi))


# Tables


def test_tables_by_loops():
    config = ExposureWorldConfig(exposure_users=5, exposure_items=35, exposure_types=3, quality_std=0.5,
                                 intent_bonus=1.25, exposure_tau=1.75, exposure_zipf=0.8)
    for policy in ("pop", "quality", "intent", "personal", "uniform"):
        simulation = sequential.generate(dataclasses.replace(config, exposure_policy=policy), 1)
        items = simulation.catalogue
        np.testing.assert_allclose(sorted(items.popularity), [(35 - rank) ** -0.8 for rank in range(35)], rtol=1e-12)
        assert simulation.relevance.shape == simulation.exposure.shape == (8 * 3, 35)
        for context in range(24):
            intent, kind = context // 3, context % 3
            shown = []
            for item in range(35):
                match = items.category[item] // 4 == intent
                affinity = sum(items.taste[item, k] * simulation.type_taste[kind, k] for k in range(4))
                logit = -3 + 1.25 * match + affinity + items.quality[item]
                assert simulation.relevance[context, item] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-12)
                shown.append({"uniform": 1.0, "pop": items.popularity[item],
                              "quality": items.popularity[item] * np.exp(items.quality[item]),
                              "intent": items.popularity[item] * np.exp(1.75 * match),
                              "personal": items.popularity[item] * np.exp(1.75 * match + 1.5 * affinity)}[policy])
            expected = [0.98 * value / sum(shown) + 0.02 / 35 for value in shown]
            np.testing.assert_allclose(simulation.exposure[context], expected, rtol=1e-12)


def test_policies_share_items_users_and_visits():
    """What depends on the policy is only what is shown."""
    config = ExposureWorldConfig(**TINY)
    first, second = (sequential.generate(dataclasses.replace(config, **change), 5)
                     for change in (dict(exposure_policy="uniform"), dict(exposure_policy="personal")))
    for one, other in ((first.visits, second.visits), (first.catalogue, second.catalogue)):
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
    np.testing.assert_array_equal(first.context, second.context)
    assert not np.array_equal(first.exposure, second.exposure)


def test_catalogue(large):
    items = large.catalogue
    assert set(np.bincount(items.category)) <= {62, 63} and len(set(items.category)) == 32  # 2000/32 = 62.5
    assert len(set(items.seller)) == 100
    # Entries are N(0, ¼); the standard error of a variance over n values is √(2/n)·σ², and here half of it is sellers'.
    assert np.var(items.taste) == pytest.approx(0.25, abs=SIGMAS * 0.25 * np.sqrt(2 / 400))
    within = np.mean([np.var(items.taste[items.seller == seller], axis=0, ddof=1) for seller in set(items.seller)])
    assert within == pytest.approx(0.125, abs=SIGMAS * 0.125 * np.sqrt(2 / 7600))
    assert items.gender.tolist() == [0 if first < -0.25 else 1 if first < 0.25 else 2 for first in items.taste[:, 0]]
    assert (items.quality == 0).all()
    # Popularity has nothing to do with an item's number: a rank correlation's standard error is 1/√(V−1).
    correlation = np.corrcoef(np.arange(2000), np.argsort(np.argsort(items.popularity)))[0, 1]
    assert abs(correlation) < SIGMAS / np.sqrt(1999)


# Visits


def test_own_time_and_clock():
    """By hand: at weekends twice as fast, so 4 of 7 days of own time pass there and 3 on weekdays, at rate .6."""
    days = np.array([0, 0.6, 3, 5, 7, 10, 13])
    expected = np.array([0, 1, 5, 6, 7, 12, 13.5])
    np.testing.assert_allclose(visits_lib.clock(days * DAY, np.array(2.0)) / DAY, expected)
    np.testing.assert_allclose(visits_lib.clock(days * DAY, np.array(1.0)) / DAY, days)


def test_visits_are_as_many_as_asked_and_do_not_overlap(large):
    visits = large.visits
    # Numbers of visits are Poisson(40), of 2,000 users.
    counts = np.bincount(visits.user, minlength=2000)
    assert counts.mean() == pytest.approx(40, abs=SIGMAS * np.sqrt(40 / 2000))
    assert counts.var() == pytest.approx(40, rel=SIGMAS * np.sqrt(2 / 2000))
    same_user, gaps = np.diff(visits.user) == 0, np.diff(visits.seconds)
    assert (np.diff(visits.user) >= 0).all() and gaps[same_user].min() >= 50
    # 2,000 users with some 12 hours between visits: one every 20 seconds, so none in ten minutes is one chance in e^27.
    assert START <= visits.seconds.min() < START + 600
    assert START + 21 * DAY - 600 < visits.seconds.max() + 50 <= START + 21 * DAY


def test_gaps_are_exponential_without_a_weekend():
    visits = visits_lib.make_visits(np.random.default_rng(0), np.zeros(5000, bool), 100, 4, 0.0)
    gaps = np.diff(visits.seconds)[np.diff(visits.user) == 0]
    for quantile in (0.1, 0.5, 0.9):  # visits at the end of the log censor long gaps a little
        assert np.quantile(gaps, quantile) == pytest.approx(-np.log(1 - quantile) * 28 * DAY / 100, rel=0.03)


def test_intents_stay_and_long_gaps_switch(large):
    visits = large.visits
    same_user = np.diff(visits.user) == 0
    gaps, stayed = np.diff(visits.seconds)[same_user], (np.diff(visits.intent) == 0)[same_user]
    assert stayed.mean() == pytest.approx(0.85, abs=0.02)
    # The gap's own unit: mean gap 21 days / 40 stands for the 7,200 s of `switch_probability`.
    chance = switch_probability(gaps * 7200 * 40 / (21 * DAY))
    for low, high in ((0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)):
        part = (gaps >= np.quantile(gaps, low)) & (gaps <= np.quantile(gaps, high))
        error = np.sqrt((chance * (1 - chance))[part].sum()) / part.sum()
        assert 1 - stayed[part].mean() == pytest.approx(chance[part].mean(), abs=SIGMAS * error)
    assert stayed[gaps < np.quantile(gaps, 0.25)].mean() > stayed[gaps > np.quantile(gaps, 0.75)].mean() + 0.3


def test_intents_follow_the_preference_of_the_kind(large):
    """First and later visits follow the stationary distribution of P(h→h') ∝ preference off the diagonal."""
    preference = np.array([1.6] * 4 + [0.4] * 4)  # weekday types; weekend types the other way round
    moves = preference / (8 - preference)[:, None] * (1 - np.eye(8))
    values, vectors = np.linalg.eig(moves.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    stationary /= stationary.sum()
    visits = large.visits
    odd = large.user_type[visits.user] % 2 == 1
    intent = np.where(odd, 7 - visits.intent, visits.intent)
    first = np.diff(visits.user, prepend=-1) != 0
    for part in (first, ~first):
        # Later visits of a user depend on each other for some 1/.15 of them: 2/.15 − 1 times the variance.
        inflation = 1 if part is first else 2 / 0.15 - 1
        error = np.sqrt(stationary * (1 - stationary) * inflation / part.sum())
        assert (np.abs(np.bincount(intent[part], minlength=8) / part.sum() - stationary) < SIGMAS * error).all()
    switches = np.flatnonzero(~first[1:] & (intent[1:] != intent[:-1]))
    assert_frequencies(np.bincount(intent[switches + 1][intent[switches] == 0], minlength=8), moves[0])
    assert_frequencies(np.bincount(intent[switches + 1][intent[switches] == 7], minlength=8), moves[7])


def test_first_intents_are_stationary_by_hand():
    """Preferences 1.6 and .4 of 8 intents: π ∝ 1.6·(8 − 1.6) = 10.24 and .4·(8 − .4) = 3.04, for both kinds."""
    weekend_type = np.arange(40_000) % 2 == 1
    visits = visits_lib.make_visits(np.random.default_rng(0), weekend_type, 2, 1, 0.6)
    first = np.diff(visits.user, prepend=-1) != 0
    favoured = ((visits.intent >= 4) == weekend_type[visits.user])[first]
    expected = 10.24 / (10.24 + 3.04)
    assert favoured.mean() == pytest.approx(expected, abs=SIGMAS * np.sqrt(expected * (1 - expected) / first.sum()))


def test_weekends_have_other_types_and_intents(large):
    visits = large.visits
    weekday = np.array([datetime.datetime.fromtimestamp(second, datetime.timezone.utc).weekday()
                        for second in visits.seconds[::10]])
    weekend = visits_lib.is_weekend(visits.seconds)
    np.testing.assert_array_equal(weekend[::10], weekday >= 5)
    odd, late = large.user_type[visits.user] % 2 == 1, visits.intent >= 4
    # Rates at weekends 1 ± .6, on weekdays (7 − 2(1 ± .6))/5 = .76, 1.24; half of the users is of each kind.
    users = (large.user_type % 2 == 1).mean()
    expected = [users * ours / (users * ours + (1 - users) * others) for ours, others in ((0.76, 1.24), (1.6, 0.4))]
    assert odd[~weekend].mean() == pytest.approx(expected[0], abs=0.02)
    assert odd[weekend].mean() == pytest.approx(expected[1], abs=0.02)
    assert late[weekend].mean() > late[~weekend].mean() + 0.15
    same = sequential.generate(ExposureWorldConfig(weekend_shift=0.0, exposure_items=64), 3)
    weekend, odd = visits_lib.is_weekend(same.visits.seconds), same.user_type[same.visits.user] % 2 == 1
    assert weekend.mean() == pytest.approx(2 / 7, abs=SIGMAS * np.sqrt(2 / 7 * 5 / 7 / len(weekend)))
    assert odd[weekend].mean() == pytest.approx(odd[~weekend].mean(), abs=0.02)


# What is shown and clicked


EXPOSURE = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
RELEVANCE = np.array([[0.3, 0.5, 0.2, 0.7], [0.6, 0.1, 0.2, 0.3]])


def naive(rng, context, limit):
    """One visit, impression by impression: (items shown, whether the last was clicked)."""
    items = []
    while len(items) < limit:
        items.append(rng.choice(4, p=EXPOSURE[context]))
        if rng.random() < RELEVANCE[context, items[-1]]:
            return tuple(items), True
    return tuple(items), False


def probability(context, items, clicked):
    """Of exactly this visit: the product over its impressions."""
    total = 1.0
    for place, item in enumerate(items):
        chance = RELEVANCE[context, item]
        total *= EXPOSURE[context, item] * (chance if clicked and place == len(items) - 1 else 1 - chance)
    return total


@pytest.mark.parametrize("context", (0, 1))
def test_visits_as_a_whole_by_enumeration_and_naive_simulation(context):
    """All courses of visits of at most three impressions: probability, shortcut, and simulation step by step."""
    courses = [((i,), True) for i in range(4)] + [((i, j), True) for i in range(4) for j in range(4)]
    courses += [((i, j, k), clicked) for i in range(4) for j in range(4) for k in range(4) for clicked in (True, False)]
    chances = np.array([probability(context, *course) for course in courses])
    assert chances.sum() == pytest.approx(1)
    number = {course: n for n, course in enumerate(courses)}

    size = 60_000
    shown = sequential.show_until_click(np.random.default_rng(0), EXPOSURE, RELEVANCE, np.full(size, context), 3)
    starts = np.flatnonzero(shown.place == 0)
    assert len(starts) == size and (np.diff(shown.visit) >= 0).all()
    ends = np.append(starts[1:], len(shown.item))
    found = [number[tuple(shown.item[a:b].tolist()), bool(shown.clicked[b - 1])] for a, b in zip(starts, ends)]
    assert_frequencies(np.bincount(found, minlength=len(courses)), chances)
    rng = np.random.default_rng(1)
    stepwise = [number[naive(rng, context, 3)] for _ in range(8_000)]
    assert_frequencies(np.bincount(stepwise, minlength=len(courses)), chances)


def test_contexts_are_kept_apart():
    """Visits of mixed contexts: each context's clicks follow its own q·c, each one's impressions its own q."""
    context = np.random.default_rng(0).integers(0, 2, 40_000)
    one_item = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    shown = sequential.show_until_click(np.random.default_rng(1), one_item, RELEVANCE, context, 5)
    np.testing.assert_array_equal(shown.item // 2, context[shown.visit])
    np.testing.assert_array_equal(shown.place, [n for length in np.bincount(shown.visit) for n in range(length)])


def test_logs_follow_the_truth(small):
    """From the files, in each of the 16 contexts: clicks ~ q·c/r, the others ~ q·(1−c)/(1−r), lengths ~ r = Σ q·c."""
    impressions, clicks, _ = frames(small)
    truth = simulated_logs.load_truth(small)
    context = truth.contexts_at(clicks["user_id"].to_numpy(), clicks["timestamp"].to_numpy())
    number = {item: n for n, item in enumerate(truth.item_ids)}
    item = np.array([number[name] for name in clicks["item_id"]])
    # Visits without a click are left out, as only clicks tell contexts: the others' lengths are geometric up to 50.
    shown = impressions.with_columns(
        (pl.col("clicked").cum_sum() - pl.col("clicked")).alias("click"),
        (pl.col("timestamp").diff().fill_null(0) != 1).cum_sum().alias("visit"))
    shown = shown.filter(pl.col("clicked").sum().over("visit") == 1)
    assert len(shown) > 0.9 * len(impressions)
    shown_item = np.array([number[name] for name in shown["item_id"]])
    shown_context = context[shown["click"].to_numpy()]
    for x in range(16):
        exposure, relevance = truth.exposure[x], truth.relevance[x]
        rate = (exposure * relevance).sum()
        assert_frequencies(np.bincount(item[context == x], minlength=64), exposure * relevance / rate)
        others = shown_item[(shown_context == x) & (shown["clicked"].to_numpy() == 0)]
        assert_frequencies(np.bincount(others, minlength=64), exposure * (1 - relevance) / (1 - rate))
        length = (shown_context == x).sum() / (context == x).sum()
        number_of = np.arange(1, 51)
        weights = (1 - rate) ** (number_of - 1) * rate
        mean = (number_of * weights).sum() / weights.sum()
        variance = (number_of ** 2 * weights).sum() / weights.sum() - mean ** 2
        assert length == pytest.approx(mean, abs=SIGMAS * np.sqrt(variance / (context == x).sum()))


def test_clicks_per_impression_is_the_mean_rate(large):
    """Also with the visits that end unclicked: a click is a Bernoulli draw of c at every impression."""
    shown = large.impressions
    rate = (large.exposure * large.relevance).sum(axis=1)[large.context[shown.visit]]
    error = np.sqrt((rate * (1 - rate)).sum()) / len(rate)
    assert shown.clicked.mean() == pytest.approx(rate.mean(), abs=SIGMAS * error)
    lengths = np.bincount(shown.visit)
    assert lengths.max() == 50 and len(lengths) == len(large.visits.user)
    clicked = np.bincount(shown.visit, weights=shown.clicked)
    assert set(clicked) == {0, 1} and (lengths[clicked == 0] == 50).all() and (clicked == 0).sum() > 100


def test_uniform_policy_shows_all_items_alike():
    config = ExposureWorldConfig(exposure_users=400, exposure_items=64, exposure_policy="uniform")
    simulation = sequential.generate(config, 0)
    np.testing.assert_allclose(simulation.exposure, 1 / 64, rtol=1e-12)
    # Impressions are drawn until a click, so their number depends on what they were, but not each place's item.
    first = simulation.impressions.item[simulation.impressions.place == 0]
    assert_frequencies(np.bincount(first, minlength=64), np.full(64, 1 / 64))


# Files


def test_forms_and_clicks_among_impressions(small):
    impressions, clicks, items = frames(small)
    assert clicks.columns == ["user_id", "item_id", "timestamp"]
    assert impressions.columns == [*clicks.columns, "clicked"] and set(impressions["clicked"]) == {0, 1}
    assert items.columns == ["item_id", "title", "category", "seller", "gender"]
    assert impressions.equals(impressions.sort("user_id", "timestamp"))
    assert impressions.select("user_id", "timestamp").is_unique().all()
    assert clicks.equals(impressions.filter(pl.col("clicked") == 1).drop("clicked"))
    assert items["item_id"].to_list() == [f"i{n:06d}" for n in range(1, 65)]
    assert items["gender"].unique().sort().to_list() == ["any", "men", "women"]
    truth = simulated_logs.load_truth(small)
    assert truth.item_ids.tolist() == items["item_id"].to_list()
    assert [f"c{intent + 1}" for intent in truth.item_intent] == items["category"].str.split(".").list.first().to_list()
    sellers = sequential.generate(ExposureWorldConfig(**SMALL), 0).catalogue.seller
    assert items["seller"].to_list() == [f"s{seller + 1}" for seller in sellers]


def pairwise_gini(counts):
    """Mean absolute difference over twice the mean."""
    return np.abs(np.subtract.outer(counts, counts)).mean() / (2 * np.mean(counts))


def test_facts(small):
    """world.json against the files."""
    impressions, clicks, items = frames(small)
    facts = json.loads(pathlib.Path(small, "world.json").read_text(encoding="utf-8"))
    truth = simulated_logs.load_truth(small)
    assert facts["clicks"] == len(clicks) and facts["impressions"] == len(impressions)
    assert facts["settings"]["exposure_policy"] == "personal" and facts["users"] == len(truth.user_type) == 400
    assert facts["impressions_per_click"] == pytest.approx(len(impressions) / len(clicks), abs=1e-3)
    for name, log in (("gini_exposure", impressions), ("gini_clicks", clicks)):
        counts = items.join(log.group_by("item_id").len(), on="item_id", how="left")["len"].fill_null(0).to_numpy()
        assert facts[name] == pytest.approx(pairwise_gini(counts.astype(float)), abs=1e-5)
    # Nearly all visits end with a click, so shares of visits are nearly those of clicks.
    assert facts["visits_with_click"] == pytest.approx(len(clicks) / facts["visits"])
    assert facts["visits_with_click"] > 0.99
    context = truth.contexts_at(clicks["user_id"].to_numpy(), clicks["timestamp"].to_numpy())
    weekend = (clicks["timestamp"].to_numpy() - START) // DAY % 7 >= 5
    assert facts["visits_at_weekends"] == pytest.approx(weekend.mean(), abs=0.01)
    for name, mask in (("weekend_types", truth.context_type[context] == 1),
                       ("weekend_intents", truth.context_intent[context] >= 4)):
        assert facts[name]["weekday_visits"] == pytest.approx(mask[~weekend].mean(), abs=0.01)
        assert facts[name]["weekend_visits"] == pytest.approx(mask[weekend].mean(), abs=0.01)


def test_truth_knows_the_context_of_every_click(small):
    """Against the simulation drawn again: type by user, intent by visit."""
    simulation = sequential.generate(ExposureWorldConfig(**SMALL), 0)
    truth = simulated_logs.load_truth(small)
    rows = np.random.default_rng(0).permutation(len(truth.click_user))[:300]
    context = truth.contexts_at(truth.click_user[rows], truth.click_timestamp[rows])
    for user, second, found in zip(truth.click_user[rows], truth.click_timestamp[rows], context):
        visit = np.flatnonzero((simulation.visits.user == user - 1) & (simulation.visits.seconds <= second))[-1]
        assert truth.context_type[found] == simulation.user_type[user - 1] == truth.user_type[user - 1]
        assert truth.context_intent[found] == simulation.visits.intent[visit]
    np.testing.assert_array_equal(truth.relevance, simulation.relevance)
    np.testing.assert_array_equal(truth.exposure, simulation.exposure)
    for user, second in ((1, truth.click_timestamp[0] + 1), (0, truth.click_timestamp[0]), (10 ** 9, 0),
                         (1, truth.click_timestamp[0] * 1000)):
        with pytest.raises(DataError, match=f"user {user} has no click at timestamp {second}"):
            truth.contexts_at([1, user], [truth.click_timestamp[0], second])


def test_contexts_at_the_ends_of_the_log(small):
    """The last second of one user and the first of the next, and a single click in all."""
    truth = simulated_logs.load_truth(small)
    few = dataclasses.replace(truth, click_user=np.array([1, 1, 2, 3]), click_timestamp=np.array([100, 109, 100, 105]),
                              click_context=np.array([5, 6, 7, 8]))
    assert few.contexts_at([3, 2, 1, 1], [105, 100, 109, 100]).tolist() == [8, 7, 6, 5]
    for user, second in ((2, 109), (2, 110), (1, 99), (3, 100), (3, 109), (4, 105)):
        with pytest.raises(DataError, match=f"user {user} has no click at timestamp {second} "):
            few.contexts_at([user], [second])
    one = dataclasses.replace(few, click_user=np.array([2]), click_timestamp=np.array([7]), click_context=np.array([1]))
    assert one.contexts_at([2, 2], [7, 7]).tolist() == [1, 1]


def test_oracle_and_click_distribution(small):
    truth = simulated_logs.load_truth(small)
    context = np.array([3, 3, 15])
    for row, x in enumerate(context):
        c, q = truth.relevance[x], truth.exposure[x]
        np.testing.assert_allclose(simulated_logs.oracle_distribution(truth, context)[row], c / sum(c), rtol=1e-12)
        np.testing.assert_allclose(simulated_logs.click_distribution(truth, context)[row], q * c / sum(q * c),
                                   rtol=1e-12)


def test_equal_seeds_equal_bytes(tmp_path):
    folders = [write(tmp_path / name, seed, **TINY) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    contents = [[(tmp_path / name / file).read_bytes() for file in FILES] for name in "abc"]
    assert all(sorted(os.listdir(folder)) == FILES for folder in folders)
    assert contents[0] == contents[1]
    assert all(first != other for first, other in zip(contents[0], contents[2]))


@pytest.mark.parametrize("split", (dict(split="leave_one_out"), dict(split="last_days", test_days=2, valid_days=1),
                                   dict(split="last_days", to_time="2021-03-20")), ids=("one", "weekend", "friday"))
def test_prepare_reads_the_log(tmp_path, split):
    folder = write(tmp_path / "world", **TINY)
    schema = prepare.prepare(Config(
        paths=Paths(data_dir=str(tmp_path / "data")),
        prepare=PrepareConfig(input=f"{folder}/clicks.csv", item_features=f"{folder}/items.tsv",
                              feature_columns=("category", "seller", "gender"), min_train_length=2, **split)))
    assert [feature.name for feature in schema.features] == ["category", "seller", "gender"]
    clicks, truth = frames(folder)[1], simulated_logs.load_truth(folder)
    users = clicks["user_id"].unique().sort().to_numpy()
    for record in read_split(str(tmp_path / "data"), "test"):
        targets = np.array(record["timestamp"][-record["target_count"][0]:])
        user = users[record["user_id"][0]]
        context = truth.contexts_at(np.full(len(targets), user), targets)
        assert (truth.context_type[context] == truth.user_type[user - 1]).all()
        if split["split"] == "last_days":
            assert (visits_lib.is_weekend(targets) == ("to_time" not in split)).all()


def test_command(tmp_path):
    arguments = [f"--{name}={value}" for name, value in TINY.items()]
    call = [sys.executable, "-m", "clrec_tf.exposure_world", f"--world_dir={tmp_path}/world", *arguments]
    first, again = (forked.run(call, capture_output=True, text=True, check=False) for _ in range(2))
    assert first.returncode == 0 and "impressions_per_click:" in first.stdout, first.stderr
    assert again.returncode == 2 and "--world_dir" in again.stderr and "exists already" in again.stderr
    assert sorted(os.listdir(tmp_path / "world")) == FILES and os.listdir(tmp_path) == ["world"]


# Errors


@pytest.mark.parametrize("settings, message", (
    (dict(exposure_policy="best"), "--exposure_policy=best: must be one of pop, quality"),
    (dict(exposure_items=31), "--exposure_items=31: must be ≥ 32"),
    (dict(exposure_users=-1), "--exposure_users=-1: must be ≥ 0"),
    (dict(weekend_shift=1.0), "--weekend_shift=1.0: must be ≤ 0.95"),
    (dict(exposure_zipf=float("nan")), "--exposure_zipf=nan"),
    (dict(quality_std=float("inf")), "--quality_std=inf: must be ≤ 5.0"),
    (dict(exposure_types=1), "--exposure_types=1: must be ≥ 2"),
))
def test_bad_settings(tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        write(tmp_path / "world", **settings)
    assert not os.listdir(tmp_path)


def test_a_world_without_a_click(tmp_path):
    """A third of all seeds gives one user no visit, where one is the mean."""
    errors = []
    for seed in range(20):
        try:
            write(tmp_path / str(seed), seed, exposure_users=1, exposure_visits=1, exposure_items=32)
        except UserError as error:
            errors.append(str(error))
    assert len(os.listdir(tmp_path)) == 20 - len(errors) and 1 <= len(errors) < 20
    assert set(errors) == {"--exposure_users=1 with --exposure_visits=1 made no click: raise them"}


def test_a_folder_is_asked_for_and_may_be_an_empty_one(tmp_path):
    with pytest.raises(UserError, match="--world_dir is not set"):
        write("")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file exists already"):
        write(tmp_path / "file", **TINY)
    (tmp_path / "empty").mkdir()
    assert sorted(os.listdir(write(tmp_path / "empty", **TINY))) == FILES
    assert (tmp_path / "file").read_text() == "mine"


def test_sizes():
    """`full` is 20,000 users and 10,000 items; a number of one's own wins."""
    assert sequential.SIZES["full"] == (20_000, 10_000)
    simulation = sequential.generate(ExposureWorldConfig(exposure_size="full", exposure_users=30), 0)
    assert (len(simulation.user_type), len(simulation.catalogue.category)) == (30, 10_000)


def damaged(arrays, name, change):
    """Copies of the arrays in which one has been changed in place, or replaced by what `change` returns."""
    arrays = {key: np.array(value) for key, value in arrays.items()}
    arrays[name] = arrays[name] if (result := change(arrays[name])) is None else result
    return arrays


@pytest.mark.parametrize("name, change, message", (
    ("relevance", lambda a: a[:, 1:], r"relevance has shape \[16, 63\], expected \[16, 64\]"),
    ("relevance", lambda a: a.__setitem__((0, 0), 1.0), "relevance is not everywhere between 0 and 1"),
    ("exposure", lambda a: a.__setitem__((0, 0), 0.5), "exposure is no distribution"),
    ("exposure", lambda a: a.__setitem__((0, 0), np.nan), "exposure is no distribution"),
    ("exposure", lambda a: a.__setitem__((0, slice(2)), [-a[0, 0], a[0, 1] + 2 * a[0, 0]]), "no distribution in each"),
    ("click_context", lambda a: a.__setitem__(0, 16), r"click_context .* not everywhere in \[0, 16\)"),
    ("click_context", lambda a: a[1:], "click_context has shape"),
    ("click_user", lambda a: a.__setitem__(a == 1, 10 ** 6), "not in the order of user and time"),
    ("click_timestamp", lambda a: a.__setitem__(1, a[0]), "not in the order of user and time"),
    ("item_ids", lambda a: a.astype(object), "damaged or of another version"),
))
def test_damaged_truth(small, tmp_path, name, change, message):
    with np.load(os.path.join(small, "truth.npz")) as arrays:
        np.savez(tmp_path / "truth.npz", **damaged(arrays, name, change))
    with pytest.raises(DataError, match=message):
        simulated_logs.load_truth(str(tmp_path))


def test_missing_or_cut_truth(small, tmp_path):
    with pytest.raises(DataError, match="truth.npz does not exist.*clrec_tf.exposure_world"):
        simulated_logs.load_truth(str(tmp_path))
    with open(os.path.join(small, "truth.npz"), "rb") as file:
        content = file.read()
    for wrong in (b"", content[:1000], content[:-1000], content[:9000] + b"damage" + content[9006:]):
        (tmp_path / "truth.npz").write_bytes(wrong)
        with pytest.raises(DataError, match="damaged or of another version"):
            simulated_logs.load_truth(str(tmp_path))
    np.savez(tmp_path / "truth.npz", relevance=np.zeros(3))
    with pytest.raises(DataError, match="damaged or of another version"):
        simulated_logs.load_truth(str(tmp_path))
