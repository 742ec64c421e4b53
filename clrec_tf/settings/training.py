"""Settings of the loss and the training loop."""
import dataclasses

from clrec_tf.errors import UserError
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.registry import PRETEXTS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class LossConfig(Section):
    """The loss that the towers are trained with."""
    loss: str = setting("contrastive", LOSSES.help, choices=LOSSES.names)
    queue_size: int = setting(2560,
        "Candidates that a row is compared with: entries Q of the queue, at least what enters in a step (--batch_size; "
        "with --target_mode=all --enqueue_per_step), or negatives L of the other losses. multi_clrec: half from the "
        "main queue, half from the queue of the target's intent, so each of the 1+H queues holds Q/2.", lower=1)
    pretext: str = setting("none", PRETEXTS.help, choices=PRETEXTS.names)


@dataclasses.dataclass(frozen=True)
class TrainConfig(Section):
    """The training loop."""
    stages: tuple[str, ...] = setting(("train",),
        "What one call does, in this order, of: generate, prepare, train, evaluate, export, show. generate, prepare "
        "and train leave alone what is complete.")
    init_from: str = setting("",
        "Folder of a finished run (its --workdir) that this one starts from, on data prepared with --vocabulary_from: "
        "known rows and their optimizer slots by item and feature value, dense weights, queues. New items start with "
        "the mean of items of the same features.", path=True)
    batch_size: int = setting(256,
        "Examples B per step. --target_mode=all: whole windows of about B targets together, at least --max_history.",
        lower=1)
    epochs: int = setting(1, "Passes over the training data.", lower=0)
    target_mode: str = setting("last",
        "last: a sequence's last click is the target. sliding: every click after the first is, one example per "
        "prefix. all: the same targets, but those of a window of --max_history clicks share one encoding, for encoders "
        "that give a vector at every position.", choices=("last", "sliding", "all"))
    shuffle_shards: int = setting(8, "Shards whose examples are shuffled together.", lower=1)
    optimizer: str = setting("lazy_adam", "Sparse optimizer: only rows in use are updated.",
                             choices=("lazy_adam", "adagrad"))
    adam_beta2: float = setting(0.999, "Decay of lazy_adam's mean of squared gradients, in [0, 1).", lower=0.0)
    learning_rate: float = setting(1e-3, "Peak learning rate.", lower=0.0)
    warmup_steps: int = setting(0, "Steps of linear warm-up.", lower=0)
    schedule: str = setting("constant", "Learning rate after warm-up.", choices=("constant", "cosine"))
    final_learning_rate_ratio: float = setting(0.0, "Where cosine ends, relative to the peak.", lower=0.0, upper=1.0)
    weight_decay: float = setting(0.0, "Decoupled weight decay; of tables only the rows in use decay.", lower=0.0)
    clip_norm: float = setting(5.0, "Global gradient norm is clipped to this (0: off).", lower=0.0)
    gradient_dtype: str = setting("float32",
        "What gradients, clipped, are rounded to before the optimizer sees them. bfloat16 (8 bits of precision): "
        "workers of a cluster send half as many bytes.", choices=("float32", "bfloat16"))
    steps_per_call: int = setting(20, "Steps per dispatched call.", lower=1)
    time_dropout: float = setting(0.02,
        "Share of examples trained without time stamps, so that the row for unknown time is trained.",
        lower=0.0, upper=1.0)
    validate_every: float = setting(1.0, "Epochs between validations (0: none).", lower=0.0)
    validation_metric: str = setting("hr@10/full",
        "Metric (higher is better) that selects the best checkpoint, such as ndcg@10/full; at another popularity than 0 "
        "it ends in /popularity=1 or the like.")
    validation_users: int = setting(10_000, "Users of a validation, at most.", lower=1)
    early_stopping_patience: int = setting(0, "Validations without a better metric before training stops (0: never).",
                                           lower=0)
    checkpoint_every_steps: int = setting(1000, "Steps between checkpoints.", lower=1)
    keep_checkpoints: int = setting(3, "Latest checkpoints kept, besides the best.", lower=1)
    max_nonfinite_steps: int = setting(10,
        "Consecutive steps with NaN or infinite loss or gradient, each skipped, before training stops with an "
        "error.", lower=0)
    max_zero_gradient_steps: int = setting(20,
        "Consecutive steps with a gradient of exactly 0, from which no training comes back, before it stops with an "
        "error (0: it goes on).", lower=0)
    log_every_steps: int = setting(200, "Steps between log lines, metrics.jsonl rows and what --tracker takes.", lower=1)
    tracker: str = setting("tensorboard",
        "Where settings and metrics go beside metrics.jsonl. tensorboard: summaries in --workdir. mlflow: a run where "
        "MLFLOW_TRACKING_URI says (by default mlflow.db of the current folder), in which a resumed training goes on "
        "(pip install mlflow-skinny, and for such files sqlalchemy alembic). none: nowhere.",
        choices=("tensorboard", "mlflow", "none"))
    verify_data: str = setting("size", "Check of shards at start: their sizes, or their sha256 too. (Records have "
                                       "checksums, arrays are always checked: about 1 s a GB.)",
                               choices=("size", "sha256"))
    threads: int = setting(0, "Threads within one operation of TensorFlow (0: as many as cores).", lower=0)
    parallel_ops: int = setting(0, "Operations of TensorFlow that may run at once (0: as many as cores).", lower=0)

    def __post_init__(self):
        super().__post_init__()
        if self.adam_beta2 >= 1.0:
            raise UserError(f"--adam_beta2={self.adam_beta2}: must be below 1, or no step changes anything; usual are "
                            "0.98 to 0.999")

    def check(self, config):
        """`UserError` where --target_mode=all meets an encoder, or positions, that differ with every target."""
        if self.target_mode != "all":
            return
        encoder = config.encoder_class
        if not encoder.every_position:
            able = dict.fromkeys(name for (name, _), cls in ENCODERS.classes().items() if cls.every_position)
            given, remedy = f"--user_encoder={encoder.registered_name}", ""
            if config.model.model != "clrec":
                given, remedy = f"--model={config.model.model}", "--model=clrec with "
            raise UserError(f"--target_mode=all needs a user vector at every position, which {given} does not give: "
                            f"use {remedy}--user_encoder={' or '.join(able)}, or --target_mode=sliding")
        if config.model.position == "forward":
            raise UserError("--target_mode=all with --position=forward: a click's position would be another for each "
                            "target after it; use backward or none")
