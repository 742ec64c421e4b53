"""Settings of training on a cluster, which TF_CONFIG describes."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class ClusterConfig(Section):
    """Training on a cluster (only where TF_CONFIG is set)."""
    connect_deadline_s: float = setting(600.0,
        "Seconds that the chief waits at start for all workers and parameter servers.", lower=1.0)
    progress_deadline_s: float = setting(600.0,
        "Seconds without an answer, of a parameter server or of all calls under way, after which the chief gives up "
        "with exit code 69. Longer than a call, a checkpoint, and the reading of --shuffle_shards shards.", lower=1.0)
    chief_gone_s: float = setting(300.0,
        "Seconds without the chief after which workers and parameter servers end with exit code 75, so that they are "
        "started anew and their memory is free (0: never).", lower=0.0)
    chief_deadline_s: float = setting(86_400.0,
        "Seconds after their start in which workers and parameter servers must have seen the chief, or they end with "
        "exit code 69 (0: no limit). Longer than the chief takes to generate and prepare.", lower=0.0)
    calls_ahead: int = setting(2, "Calls waiting for each worker, so that it need not wait for the chief.", lower=1)
    shard_rows: int = setting(8192,
        "Tables of at least this many rows are split evenly over the parameter servers. More than a dense layer has "
        "inputs: those are used whole.", lower=2)
    validation_by: str = setting("chief",
        "Who validates. chief: the chief, by --validate_every, while the workers wait. evaluator: a role of its own, "
        "which scores every checkpoint while training goes on, and keeps the best.", choices=("chief", "evaluator"))
    checkpoint_io: str = setting("ps",
        "Who writes checkpoints. ps: each parameter server its shards, to a --workdir that all see. chief: the chief, "
        "through which everything is sent, for a --workdir that only it sees.", choices=("ps", "chief"))
