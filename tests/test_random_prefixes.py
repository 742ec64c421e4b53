"""--eval_split=train: one random example of each training sequence."""
import collections

import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import load_manifest
from clrec_tf.data.schema import load_schema
from clrec_tf.evaluate import evaluate
from clrec_tf.evaluation.protocols import is_repeated
from tests import small_run
from tests.prepared_data import read_split


def test_an_example_is_a_history_and_the_click_after_it(tmp_path):
    """Of every training sequence of two clicks and more, with the features and times of just those clicks."""
    data_dir = small_run.prepared(tmp_path, dwell_column="stayed")
    schema, manifest, cuts = load_schema(data_dir), load_manifest(data_dir), collections.defaultdict(set)
    records = {record["user_id"][0]: record for record in read_split(data_dir, "train")}
    for seed in range(6):
        users = read_evaluation_set(data_dir, "train", schema, manifest, seed=seed)
        assert set(users.user_ids) == set(records)
        for row, user in enumerate(users.user_ids):
            part, record = slice(*users.history_splits[row:row + 2]), records[user]
            cut = part.stop - part.start
            assert 1 <= cut < len(record["item_id"])
            assert users.history_ids[part].tolist() == record["item_id"][:cut]
            assert users.history_features[part, 0].tolist() == record["f:category"][:cut]
            assert users.history_times[part].tolist() == record["timestamp"][:cut]
            assert users.history_dwell[part].tolist() == record["dwell"][:cut]
            assert users.next_clicks[row] == record["item_id"][cut] and users.target_splits[row + 1] == row + 1
            assert users.request_times[row] == record["timestamp"][cut]
            cuts[user].add(cut)
    assert np.mean([len(found) for found in cuts.values()]) > 2
    again = read_evaluation_set(data_dir, "train", schema, manifest, seed=5)
    np.testing.assert_array_equal(again.history_ids, users.history_ids)


def test_clicks_of_a_hash_bucket_are_unknown_targets_not_repeated_ones(tmp_path):
    """Nobody knows whether two of them were on one item; in the test part they are unknown too."""
    data_dir = small_run.prepared(tmp_path, oov_buckets=1, min_item_count=18)
    schema, manifest = load_schema(data_dir), load_manifest(data_dir)
    users = read_evaluation_set(data_dir, "train", schema, manifest)
    bucket = np.array([(users.history_ids[slice(*users.history_splits[row:row + 2])] > schema.num_items).any()
                       for row in range(users.num_users)])
    unknown = users.next_clicks == 0
    assert (bucket & unknown).any() and (users.next_clicks <= schema.num_items).all()
    assert not is_repeated(users)[unknown].any() and is_repeated(users).any()


def test_every_length_is_as_likely_and_users_without_history_are_left_out():
    users = EvaluationSet(np.arange(3001), np.tile([1, 2, 3], 3000), np.append(3 * np.arange(3001), 9000),
                          np.full(3001, 4), np.arange(3002))
    found = users.random_prefixes(0)
    assert found.num_users == 3000 and found.history_features is None and found.request_times is None
    lengths = np.diff(found.history_splits)
    np.testing.assert_array_equal(found.next_clicks, lengths + 1)  # the fourth click is the set's own target
    assert np.abs(np.bincount(lengths)[1:] / 3000 - 1 / 3).max() < .03


def test_evaluate_says_which_part_it_was(tmp_path):
    settings = small_run.config(small_run.prepared(tmp_path), tmp_path / "run", epochs=1)
    assert small_run.run(settings) == 0
    result = evaluate(settings.but(eval_split="train", candidate_sets=("full",)))
    assert result["split"] == "train" and result["users"] == small_run.USERS
    assert result["aggregate_diversity@10/full"] > 10
