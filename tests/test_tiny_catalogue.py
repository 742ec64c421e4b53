"""A catalogue so small that histories cover it goes the whole way, and what has no meaning there is told."""
import json

import pytest

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import ExportConfig
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.config import TrainConfig
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf import train


def whole_chain(tmp_path, items, filter_seen=True):
    """30 users who click every item in turn, twice, beginning anywhere; the metrics."""
    lines = [f"{user},{(user + click) % items + 1},{1_600_000_000 + 60 * click}" for user in range(30)
             for click in range(max(2 * items, 8))]
    (tmp_path / "log.csv").write_text("\n".join(["user_id,item_id,timestamp", *lines]))
    config = Config(
        paths=Paths(data_dir=str(tmp_path / "data"), workdir=str(tmp_path / "run")),
        prepare=PrepareConfig(input=str(tmp_path / "log.csv")),
        train=TrainConfig(stages=("prepare", "train", "evaluate", "export", "show"), batch_size=16, epochs=5,
                          target_mode="sliding", learning_rate=0.02),
        evaluate=EvaluateConfig(filter_seen=filter_seen), export=ExportConfig(recall_k=3)).but(embedding_dim=8, attention_heads=2, max_history=6, queue_size=32)
    assert train.run_stages(config) == 0
    return json.loads((tmp_path / "run" / "metrics.json").read_text())


@pytest.mark.parametrize("items", [5, 1])
def test_histories_that_cover_the_catalogue_end_no_chain(tmp_path, capsys, items):
    metrics = whole_chain(tmp_path, items)
    note = f"the histories of 30 of 30 users hold all {items} items: under --filter_seen nothing is left to recommend"
    assert [note in warning for warning in metrics["warnings"]] == [True]
    text = capsys.readouterr().out
    assert f"warning: {note}" in text and "    nothing: the history holds every item" in text
    assert metrics["aggregate_diversity@10/full"] == 0 == metrics["coverage@10/full"] and metrics["hr@1/full"] == 1.0
    assert not any(name.startswith(("gini", "arp", "aplt", "popularity_index")) for name in metrics)

    bundle = load_bundle(str(tmp_path / "run" / "export"))
    assert sorted(bundle.item_ids.tolist()) == list(range(1, items + 1))
    request = UserRequest(1, [1, 1], [0, 0], 0, None)
    for exclude, count in ((False, items), (True, items - 1)):
        found = Retriever(bundle, SearchOptions(10, exclude, 0, "maximum"))([request])[0][0]
        assert len(found.ids) == count and (1 in found.ids) == (not exclude)


def test_seen_items_may_be_kept_in_the_lists(tmp_path):
    metrics = whole_chain(tmp_path, 5, filter_seen=False)
    assert metrics["warnings"] == [] and metrics["aggregate_diversity@10/full"] == 5
    assert metrics["hr@1/full"] > 0.5 > metrics["most_popular/hr@1/full"]  # each item has one successor
