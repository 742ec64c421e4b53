"""The synthetic log: its form, and the structure planted in it, counted from the files alone."""
import dataclasses
import os

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.config import WorldConfig
from clrec_tf.errors import UserError
from clrec_tf.preparation.generate import generate_log
from clrec_tf.preparation import synthetic_log


@pytest.fixture(scope="module", name="log")
def fixture_log(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("synthetic"))
    path = synthetic_log.generate(WorldConfig(), 7, folder)
    assert path == os.path.join(folder, "clicks.csv")
    return pl.read_csv(path), pl.read_csv(os.path.join(folder, "items.tsv"), separator="\t")


def consecutive(log):
    """Per pair of a user's consecutive clicks: seconds between them, and whether the intent and category are equal."""
    clicks = log[0].join(log[1], on="item_id", how="left", maintain_order="left")
    same_user = np.diff(clicks["user_id"].to_numpy()) == 0
    category = clicks["category"].to_numpy()
    intent = clicks["category"].str.split(".").list.first().to_numpy()
    pairs = np.diff(clicks["timestamp"].to_numpy()), intent[1:] == intent[:-1], category[1:] == category[:-1]
    return tuple(values[same_user] for values in pairs)


def test_form(log):
    clicks, items = log
    config = WorldConfig()
    assert clicks.columns == ["user_id", "item_id", "timestamp"]
    assert items.columns == ["item_id", "title", "category", "seller"]
    assert clicks["item_id"].str.contains(r"^i\d{6}$").all()
    assert clicks.equals(clicks.sort("user_id", "timestamp"))
    assert len(items) == items["item_id"].n_unique() == config.world_items
    assert items["category"].n_unique() == 4 * config.world_intents
    assert set(clicks["item_id"]) <= set(items["item_id"])
    lengths = clicks["user_id"].value_counts()["count"]
    assert len(lengths) == config.world_users
    # Lengths are uniform over 20..60, of standard error 12/sqrt(3000) = .22.
    assert (lengths.min(), lengths.max()) == (20, 60) and abs(lengths.mean() - 40) < 1
    assert items["title"].str.contains(r"^intent \d · category \d · item \d+$").all()


def test_the_next_click_is_mostly_of_the_same_intent(log):
    gaps, same_intent, same_category = consecutive(log)
    assert (gaps > 0).all()
    assert same_intent.mean() > 0.65  # chance: 1/8
    assert same_category.mean() > 0.35  # chance: 1/32
    assert same_intent[gaps < 1800].mean() > same_intent[gaps > 4 * 3600].mean() + 0.15


def test_popularity_is_skewed_but_most_popular_is_not_enough(log):
    counts = np.sort(log[0]["item_id"].value_counts()["count"].to_numpy())[::-1]
    share = counts[:10].sum() / counts.sum()
    assert 5 * 10 / 1200 < share < 0.15


def test_users_have_taste_which_sellers_carry(log):
    """Of clicks on two different items, a user's own have the same seller more often than those of any two users."""
    clicks = log[0].join(log[1], on="item_id", how="left")

    def same_seller(*group):
        equal = lambda *columns: (clicks.group_by(*group, *columns).len()["len"].cast(pl.Float64) ** 2).sum()
        everything = equal() if group else float(len(clicks)) ** 2
        return (equal("seller") - equal("item_id")) / (everything - equal("item_id"))

    assert same_seller("user_id") > 1.1 * same_seller()


def test_a_seed_decides_every_byte(tmp_path):
    config = WorldConfig(world_users=20, world_items=60, world_intents=3, world_clicks_per_user=6)
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        synthetic_log.generate(config, seed, str(tmp_path / name))
        assert sorted(os.listdir(tmp_path / name)) == ["clicks.csv", "items.tsv"]
        contents.append([(tmp_path / name / file).read_bytes() for file in ("clicks.csv", "items.tsv")])
    assert contents[0] == contents[1]
    assert contents[0][0] != contents[2][0] and contents[0][1] != contents[2][1]


def test_mean_switch_probability():
    gaps = np.random.default_rng(0).exponential(synthetic_log.MEAN_GAP, 400_000)
    # E[.6 U³] = .15 for uniform U = F(gap).
    np.testing.assert_allclose(synthetic_log.switch_probability(gaps).mean(), 0.15, atol=1e-3)


def test_nothing_half_written_stays_behind(tmp_path):
    (tmp_path / "clicks.csv").mkdir()  # the rename onto a folder fails
    with pytest.raises(UserError, match="--data_dir.*clicks.csv cannot be written"):
        synthetic_log.generate(WorldConfig(world_users=10, world_items=50), 0, str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["clicks.csv", "items.tsv"]


def test_another_log_than_the_one_that_is_there_is_refused(tmp_path):
    """What is complete is left alone: with other sizes, or another seed, that would be the answer to another question."""
    paths, sizes = Paths(data_dir=str(tmp_path / "data")), WorldConfig(world_users=20, world_items=60)
    log = generate_log(paths, sizes, PrepareConfig()).input
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "manifest.json").write_text("{}", encoding="utf-8")
    before = os.stat(log).st_mtime_ns
    assert generate_log(paths, sizes, PrepareConfig()).input == log and os.stat(log).st_mtime_ns == before
    for other, said in ((dict(sizes=dataclasses.replace(sizes, world_users=30)), "--world_users=30: .*with --world_users=20"),
                        (dict(paths=dataclasses.replace(paths, seed=1)), "--seed=1: .*with --seed=0")):
        with pytest.raises(UserError, match=said):
            generate_log(**dict(paths=paths, sizes=sizes, settings=PrepareConfig()) | other)
    (tmp_path / "data-log" / "world.json").unlink()  # as an older version left it
    assert generate_log(paths, dataclasses.replace(sizes, world_users=30), PrepareConfig()).input == log
