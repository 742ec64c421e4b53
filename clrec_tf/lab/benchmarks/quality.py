"""Quality per minute on --data_dir: validation HR@10 of several systems against the seconds that they were trained.

Ours, at popularity 1, where CLRec ranks as a likelihood does: the Transformer (configs/sasrec.flags) and the attention
tower (configs/ml1m.flags). Beside them RecTools' SASRec, by the interpreter of --rectools_python, and TensorFlow
Recommenders' two towers with logQ correction. One after the other on the same cores; seconds are of training alone,
its compilation and reading included.
"""
import json
import os
import subprocess
import tempfile
import time

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import load_manifest
from clrec_tf.data.schema import load_schema
from clrec_tf.errors import UserError
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.lab.benchmarks import rectools_sasrec
from clrec_tf.lab.benchmarks import tfrs
from clrec_tf.lab.children import in_child
from clrec_tf.objectives.base import MAX_FULL_SOFTMAX
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from clrec_tf.training.validation import Validator

POINTS = 6  # of each curve
METRIC = "hr@10/full"
RECIPES = {
    "sasrec": dict(user_encoder="sasrec", transformer_layer="gated", target_mode="all", max_history=200, batch_size=2048,
                   learning_rate=4e-3, warmup_steps=100, schedule="cosine", epochs=12),
    "attention": dict(user_encoder="multi_att", target_mode="sliding", max_history=50, batch_size=256,
                      learning_rate=2e-3, schedule="cosine", epochs=3),
}
TFRS_EPOCHS = 3
RECTOOLS = dict(epochs=36, every=6, heads=1, dim=64, history=50)  # as its tutorials, narrower


def run(config: Config) -> dict:
    """Curves of all systems.

    Returns:
      `ratios`: with RecTools, `seconds_to_rectools_quality`, the seconds in which our Transformer comes to RecTools'
      best HR@10 over those in which RecTools does (left out if ours never does), and
      `sasrec_vs_rectools_positions_per_s`. `curves`: by system, its positions/s and [seconds, HR@10, NDCG@10] points;
      of ours `tower_ms_one_user` too, the query tower's median for one user of --max_history clicks.
    """
    data_dir = require(config.paths.data_dir, "data_dir", "the comparison trains on a data set made by clrec_tf.prepare")
    curves = {name: in_child(our_curve, config, name) for name in RECIPES}
    curves["tfrs_logq"] = in_child(tfrs_curve, config)
    ratios = {}
    if config.benchmark.rectools_python:
        curves["rectools_sasrec"] = rectools_curve(data_dir, config)
        ratios = compared(curves["sasrec"], curves["rectools_sasrec"])
    else:
        logging.info("RecTools is left out: --rectools_python names no interpreter that has it")
    return dict(ratios=ratios, curves=curves)


def compared(ours: dict, theirs: dict) -> dict:
    """The ratios of two curves, see `run`."""
    best = max(theirs["points"], key=lambda point: point[1])
    reached = next((seconds for seconds, quality, _ in ours["points"] if quality >= best[1]), None)
    ratios = dict(sasrec_vs_rectools_positions_per_s=round(ours["positions_per_s"] / theirs["positions_per_s"], 3))
    return ratios if reached is None else dict(seconds_to_rectools_quality=round(reached / best[0], 3), **ratios)


def our_curve(config: Config, name: str) -> dict:
    """One of `RECIPES`, trained by the step and from the files that training has."""
    schema = load_schema(config.paths.data_dir)
    with tempfile.TemporaryDirectory() as workdir:
        settings = Config.of(
            data_dir=config.paths.data_dir, workdir=workdir, seed=config.paths.seed, validate_every=0.0,
            validation_metric=f"{METRIC}/popularity=1",
            queue="all_clicks" if name == "sasrec" and schema.num_items <= MAX_FULL_SOFTMAX else "auto", **RECIPES[name])
        run_ = set_up(settings, LocalRuntime())
        validator = Validator(settings, schema, load_manifest(config.paths.data_dir), run_.model)
        batches, done, seconds, positions, points = iter(run_.dataset()), 0, 0.0, 0.0, []
        for end in np.linspace(0, run_.total_steps, POINTS + 1).round().astype(int)[1:]:
            begin = time.monotonic()
            while done < end:
                steps = min(settings.train.steps_per_call, int(end) - done)
                positions += float(run_.call(batches, tf.constant(steps, tf.int64))["examples"])
                done += steps
            seconds += time.monotonic() - begin
            metrics = validator.metrics()
            points.append(_point(name, seconds, *(metrics[f"{kind}@10/full/popularity=1"] for kind in ("hr", "ndcg"))))
    return dict(positions_per_s=round(positions / seconds), points=points,
                tower_ms_one_user=tower_ms(run_.model, settings.model.max_history))


def tower_ms(model, length: int, calls: int = 300) -> float:
    """Median milliseconds of the query tower for one user with `length` clicks, whose vectors are looked up."""
    table = tf.random.stateless_normal([1000, model.history_width], [0, 0])

    @tf.function(input_signature=[tf.TensorSpec([1, length], tf.int64)])
    def tower(places):
        return model.user_vectors(tf.gather(table, places), tf.ones_like(places, tf.bool))

    places, seconds = tf.range(length, dtype=tf.int64)[None] % 1000, []
    for _ in range(calls + 1):
        begin = time.perf_counter()
        tower(places).numpy()
        seconds.append(time.perf_counter() - begin)
    return round(1e3 * float(np.median(seconds[1:])), 3)


def _point(name, seconds, hit_rate, ndcg):
    logging.info("%s after %.0f s: HR@10 %.4f, NDCG@10 %.4f", name, seconds, hit_rate, ndcg)
    return [round(seconds, 1), round(float(hit_rate), 4), round(float(ndcg), 4)]


def tfrs_curve(config: Config) -> dict:
    """Two towers of TensorFlow Recommenders, mean of 50 items, over our batches; one table, in a compiled loop."""
    data_dir = config.paths.data_dir
    schema, manifest = load_schema(data_dir), load_manifest(data_dir)
    catalogue = read_catalogue(data_dir, schema, manifest)
    users = read_evaluation_set(data_dir, "valid", schema, manifest, config.train.validation_users, config.paths.seed)
    settings = config.but(batch_size=256, learning_rate=0.1)
    with tempfile.TemporaryDirectory() as workdir:
        run_ = tfrs.our_run(settings, "in_batch", workdir, TFRS_EPOCHS)
    model = tfrs.retrieval_model(tfrs.click_shares(data_dir), settings, one_table=True)
    several = tfrs.several_steps(model)
    batches, points, seconds, done = iter(run_.dataset()), [], 0.0, 0
    for end in run_.assignments.epoch_ends:
        begin = time.monotonic()
        while done < end:
            steps = min(tfrs.STEPS, end - done)
            several(batches, tf.constant(steps, tf.int64))
            done += steps
        seconds += time.monotonic() - begin
        points.append(_point("tfrs_logq", seconds, *_ranked(model, users, catalogue, settings)))
    return dict(positions_per_s=round(done * settings.train.batch_size / seconds), points=points)


def _ranked(model, users, catalogue, config):
    """HR@10 and NDCG@10 of a TFRS model's towers."""
    embed = lambda tower, ids: tf.math.l2_normalize(tower(tf.constant(ids)), axis=-1).numpy()
    items = embed(model.candidates, np.arange(1, len(catalogue.counts) + 1))
    chunks = [users.histories(start, min(start + 512, users.num_users), tfrs.HISTORY).item_rows[:, :, 0]
              for start in range(0, users.num_users, 512)]
    vectors = np.concatenate([embed(model.query, chunk) for chunk in chunks])
    evaluate = config.but(ks=("10",), eval_split="valid", candidate_sets=("full",)).evaluate
    metrics = evaluate_vectors(vectors, items, users, catalogue.counts, evaluate, config.paths.seed, detailed=False)
    return metrics[METRIC], metrics["ndcg@10/full"]


def rectools_curve(data_dir: str, config: Config) -> dict:
    """RecTools' SASRec in a process of its own interpreter.

    Raises:
      UserError: the interpreter, or RecTools in it, is not there.
    """
    schema, manifest = load_schema(data_dir), load_manifest(data_dir)
    users = read_evaluation_set(data_dir, "valid", schema, manifest, config.train.validation_users, config.paths.seed)
    lengths = np.diff(users.history_splits)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "clicks.npz")
        np.savez(path, user=np.repeat(np.arange(users.num_users), lengths), item=users.history_ids,
                 target=users.next_clicks)
        command = [config.benchmark.rectools_python, rectools_sasrec.__file__, path, json.dumps(RECTOOLS)]
        try:
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise UserError(f"--rectools_python={config.benchmark.rectools_python} does not run RecTools: "
                            f"{(getattr(error, 'stderr', '') or str(error)).strip().splitlines()[-1]}") from error
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"epochs"')]
    positions = np.minimum(lengths - 1, RECTOOLS["history"]).sum() * lines[-1]["epochs"]
    return dict(positions_per_s=round(positions / lines[-1]["seconds"]),
                points=[_point("rectools_sasrec", *(line[name] for name in ("seconds", "hr", "ndcg"))) for line in lines])
