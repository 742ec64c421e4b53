"""A small prepared log and a training on it, for the tests of training."""
import json
import pathlib
import shutil

import numpy as np

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import TrainConfig
from clrec_tf.training.loop import train
from clrec_tf.training.runtime import LocalRuntime
from tests.prepared_data import prepare_text

USERS, ITEMS = 60, 30
SMALL_MODEL = dict(embedding_dim=8, max_history=6, attention_heads=2, queue_size=40)
SMALL_MULTI = dict(model="multi_clrec", attention_heads=4, num_intents=4)  # goes over SMALL_MODEL
SMALL_TRAIN = dict(batch_size=16, target_mode="sliding", shuffle_shards=2, epochs=2, steps_per_call=4,
                   log_every_steps=1, validate_every=0.0, checkpoint_every_steps=10, learning_rate=0.01)


def click_log(seed: int = 0, users: int = USERS, items: int = ITEMS) -> str:
    """A random log in which an item is usually followed by the next one (modulo `items`): a planted successor.

    The dwell time is a function of the time stamp, `stayed`.
    """
    rng, lines = np.random.default_rng(seed), ["user_id,item_id,timestamp,category,stayed"]
    for user in range(users):
        item = rng.integers(items)
        for click in range(rng.integers(7, 14)):
            second = 1_600_000_000 + 400 * click + user
            lines.append(f"{user},{item + 1},{second},c{item % 3},{stayed(second)}")
            item = (item + 1) % items if rng.random() < 0.9 else rng.integers(items)
    return "\n".join(lines) + "\n"


def stayed(second: int) -> int:
    """Seconds that the user of `click_log` stays with what was clicked at `second`; −1, unknown, at every seventh."""
    return -1 if second % 7 == 0 else second * 7919 % 600


def prepared(folder: pathlib.Path, **settings) -> str:
    """A data folder with several shards."""
    return prepare_text(folder, click_log(), **{**dict(shard_records=16, feature_columns=("category",)), **settings})


def read_by_encoder(settings: dict) -> dict:
    """The settings without heads, where another encoder than attention would refuse them."""
    has_heads = settings.get("user_encoder", "multi_att") == "multi_att"
    return {name: value for name, value in settings.items() if has_heads or name != "attention_heads"}


def config(data_dir: str, workdir, seed: int = 0, model=None, **train_settings) -> Config:
    """Small model, several epochs, sliding targets."""
    model = read_by_encoder({**SMALL_MODEL, **(model or {})})
    return Config(
        paths=Paths(data_dir=data_dir, workdir=str(workdir), seed=seed),
        train=TrainConfig(**{**SMALL_TRAIN, **train_settings})).but(**model)


def run(settings: Config) -> int:
    """Trains locally; returns the exit code."""
    return train(settings, LocalRuntime())


def losses(workdir) -> dict[int, float]:
    """step -> loss from metrics.jsonl, exactly as written."""
    rows = [json.loads(line) for line in (pathlib.Path(workdir) / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def checkpoint_list(step: int) -> str:
    """What TensorFlow lists one checkpoint by; without its time stamp training would begin anew."""
    return (f'model_checkpoint_path: "step-{step}"\nall_model_checkpoint_paths: "step-{step}"\n'
            'all_model_checkpoint_timestamps: 1.0\n')


def killed(whole: pathlib.Path, folder: pathlib.Path, step: int = 10) -> list[str]:
    """A copy of a run as a kill would leave it, with the checkpoint of one step; returns its lines of metrics.jsonl."""
    shutil.copytree(whole, folder)
    for path in (folder / "checkpoints").iterdir():
        if not path.name.startswith(f"step-{step}."):
            path.unlink()
    (folder / "checkpoints" / "checkpoint").write_text(checkpoint_list(step))
    return (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
