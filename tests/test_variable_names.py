"""Variables have the same names in every model of a process: they stand in checkpoints, whose bytes are compared."""
import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.models.build import build_model
from clrec_tf.settings.registry import ENCODERS

SCHEMA = Schema(20, 21, (Feature("category", 9, 1, 8),), 8, "int", True, 0, 0, {}, {})
CONTENT = np.ones((21, 8), np.float32)
SETTINGS = [dict(user_encoder=name) for name in ENCODERS.names()] + [
    dict(model="multi_clrec"), dict(content_hidden=4), dict(feature_projection=True), dict(head_aggregation="mean_mlp"),
    dict(head_aggregation="concat_mlp")]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_second_model_of_a_process_has_the_names_of_the_first(settings):
    config = Config.of(embedding_dim=8, max_history=20, **settings)
    first, second = ([variable.name for variable in build_model(config, SCHEMA, CONTENT).variables] for _ in range(2))
    assert len(first) > 2 and first == second
