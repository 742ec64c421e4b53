"""python -m clrec_tf.exposure_world: writes a generated log whose exposure and relevance are known.

  python -m clrec_tf.exposure_world --world_dir=WORLD --exposure_policy=intent --seed=0
  python -m clrec_tf.prepare --input=WORLD/clicks.csv --item_features=WORLD/items.tsv \\
      --feature_columns=category,seller,gender --data_dir=DATA

Impressions are in WORLD/impressions.parquet; WORLD/truth.npz has what a model should find, for its evaluation."""
import os

from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import UserError
from clrec_tf.lab.simulator import sequential
from clrec_tf.lab.simulator import simulated_logs
from clrec_tf.prepare import report_text
from clrec_tf.system import atomic


def write_world(config: Config) -> dict:
    """Generates the world of the settings and --seed, and writes it to --world_dir.

    Returns:
      What world.json holds: settings, seed, counts and shares.

    Raises:
      UserError: bad settings, or a --world_dir in the way.
    """
    settings = config.exposure_world
    folder = require(settings.world_dir, "world_dir", "the world is written there")
    if os.path.exists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise UserError(f"--world_dir={folder} exists already: choose another --world_dir")
    world = sequential.generate(settings, config.paths.seed)
    with atomic.new_folder(folder, f"world_dir={folder}") as temporary:
        return simulated_logs.write(world, settings, config.paths.seed, temporary)


def main(config: Config):
    """Runs the command."""
    print(report_text(write_world(config)))
    logging.info("wrote --world_dir=%s", config.exposure_world.world_dir)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "exposure_world"), usage=__doc__)
