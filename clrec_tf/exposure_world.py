"""python -m clrec_tf.exposure_world: writes a generated log whose exposure and relevance are known.

  python -m clrec_tf.exposure_world --world_dir=WORLD --exposure_policy=intent --seed=0
  python -m clrec_tf.prepare --input=WORLD/clicks.csv --item_features=WORLD/items.tsv \\
      --feature_columns=category,seller,gender --data_dir=DATA

Impressions are in WORLD/impressions.parquet; WORLD/truth.npz has what a model should find, for its evaluation."""
from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.lab.simulator.simulated_folder import write_simulation
from clrec_tf.preparation.report_text import report_text


def main(config: Config):
    """Runs the command."""
    print(report_text(write_simulation(config)))
    logging.info("wrote --world_dir=%s", config.exposure_world.world_dir)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "exposure_world"), usage=__doc__)
