"""The folder that a simulation is written to."""
import os

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import UserError
from clrec_tf.lab.simulator import sequential
from clrec_tf.lab.simulator import simulated_logs
from clrec_tf.system import atomic


def write_simulation(config: Config) -> dict:
    """Simulates with the settings and --seed, and writes logs and truth to --world_dir.

    Returns:
      What world.json holds: settings, seed, counts and shares.

    Raises:
      UserError: bad settings, or a --world_dir in the way.
    """
    settings = config.exposure_world
    folder = require(settings.world_dir, "world_dir", "the world is written there")
    if os.path.exists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise UserError(f"--world_dir={folder} exists already: choose another --world_dir")
    simulation = sequential.generate(settings, config.paths.seed)
    with atomic.new_folder(folder, f"world_dir={folder}") as temporary:
        return simulated_logs.write(simulation, settings, config.paths.seed, temporary)
