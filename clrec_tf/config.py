"""Every setting of every command: frozen dataclasses whose fields become flags (see ``command_line``).

A field's default, help text, choices and bounds stand in one place, here. Nothing below the commands reads flags.
"""
import dataclasses
from typing import Optional

from clrec_tf.errors import UserError


def setting(default, help, choices=None, lower=None, upper=None):  # pylint: disable=redefined-builtin
    """One setting: default, help text, allowed choices or inclusive numeric bounds."""
    return dataclasses.field(
        default=default, metadata=dict(help=help, choices=choices, lower=lower, upper=upper))


class _Checked:
    """Validates each field against its own choices and bounds."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, meta = getattr(self, field.name), field.metadata
            if meta["choices"] and value not in meta["choices"]:
                raise UserError(f"--{field.name}={value}: must be one of {', '.join(map(str, meta['choices']))}")
            for bound, broken in (("lower", lambda v, b: v < b), ("upper", lambda v, b: v > b)):
                limit = meta[bound]
                # `value != value` is NaN, which passes every comparison.
                if limit is not None and value is not None and (value != value or broken(value, limit)):
                    raise UserError(f"--{field.name}={value}: must be {'≥' if bound == 'lower' else '≤'} {limit}")


@dataclasses.dataclass(frozen=True)
class Paths(_Checked):
    """Where things are."""
    data_dir: str = setting("", "Folder of the prepared data set (TFRecords, schema.json, manifest.json).")
    workdir: str = setting("", "Folder of one run: checkpoints, config.json, metrics.jsonl, summaries, metrics.json.")
    export_dir: str = setting("", "Folder of export bundles, or one version inside it (default: WORKDIR/export).")
    seed: int = setting(0, "Seed of everything random: split, shuffling, initial values.", lower=0)


@dataclasses.dataclass(frozen=True)
class WorldConfig(_Checked):
    """A generated click log with planted structure, for a first run without data."""
    world_users: int = setting(3000, "Users of the generated log.", lower=10)
    world_items: int = setting(1200, "Items of the generated log.", lower=50)
    world_intents: int = setting(8, "Intents planted in the generated log.", lower=2)
    world_clicks_per_user: int = setting(40, "Mean clicks per user of the generated log.", lower=5)


@dataclasses.dataclass(frozen=True)
class PrepareConfig(_Checked):
    """From a raw click log to TFRecords."""
    format: str = setting("columns",
        "Form of --input. sequence: lines of user and item in time order. sequence_per_user: one user a line, then its "
        "items. recbole splits token_seq columns at spaces.",
        choices=("taobao", "movielens", "sequence", "sequence_per_user", "recbole", "columns"))
    input: str = setting("",
        "Click log: a file (also .gz), or for movielens and recbole the folder or the ratings file.")
    item_features: str = setting("",
        "File of item features joined by item id: TSV/CSV with a header whose first column is the item id, "
        "Parquet, or JSON {id: {feature: value or list}} / {id: [values]}. Features used: --feature_columns and "
        "--multi_feature_columns; of JSON all, by default.")
    dense_features: str = setting("",
        "Dense vectors by item id: .npz with arrays `ids` and `vectors`, or Parquet with the columns `item_id` "
        "and `vector`.")
    delimiter: str = setting("", "Column delimiter of text input (default: by format and file name).")
    user_column: str = setting("user_id", "Column of the user id (format columns).")
    item_column: str = setting("item_id", "Column of the item id (format columns).")
    timestamp_column: str = setting("timestamp", "Column of the time stamp: a number, or an ISO date-time (in "
                                                 "--utc_offset unless it names its own); empty: the file is in time "
                                                 "order and has no time stamps (formats columns and recbole).")
    timestamp_unit: str = setting("s", "Unit of numeric time stamps: seconds or milliseconds.", choices=("s", "ms"))
    event_column: str = setting("", "Column of the behaviour, for --keep_events (format columns).")
    title_column: str = setting("title",
        "Column of the item's title, shown by retrieve, in the log or in --item_features.")
    feature_columns: tuple[str, ...] = setting((), "Categorical item features, one value each (format columns and "
                                                   "--item_features).")
    multi_feature_columns: tuple[str, ...] = setting((), "Item features with several values each, split at "
                                                         "--multi_separator.")
    multi_separator: str = setting("|", "Separator inside a several-valued feature.")
    max_values: int = setting(8, "Values kept of a several-valued feature.", lower=1)
    keep_events: tuple[str, ...] = setting((), "Behaviours kept, such as pv,buy (default: all).")
    split: str = setting("leave_one_out",
        "leave_one_out: last click = test, one before = validation. last_days: test on the last day(s), validate "
        "on those before, train on earlier.", choices=("leave_one_out", "last_days"))
    test_days: int = setting(1, "Days of the test part (split last_days).", lower=1)
    valid_days: int = setting(1, "Days of the validation part (split last_days); 0: none.", lower=0)
    utc_offset: float = setting(0.0, "Hours added to UTC to find a day's border.", lower=-14.0, upper=14.0)
    from_time: str = setting("",
        "Drop clicks before this time: seconds, or an ISO date(-time) in --utc_offset.")
    to_time: str = setting("",
        "Drop clicks at or after this time: seconds, or an ISO date(-time) in --utc_offset.")
    min_train_length: int = setting(5, "Training sequences shorter than this are not trained on.", lower=1)
    max_sequence_length: int = setting(10_000, "Most recent clicks kept per user.", lower=2)
    min_item_count: int = setting(1, "Items with fewer training clicks fall out of the vocabulary.", lower=1)
    oov_buckets: int = setting(0, "Hash buckets for items outside the vocabulary (0: they are left out of histories).",
                               lower=0)
    feature_oov_buckets: int = setting(1, "Hash buckets for feature values outside a feature's vocabulary.", lower=0)
    max_bad_rows: int = setting(0, "Unparsable rows tolerated (counted, with examples, in the report).", lower=0)
    shard_records: int = setting(1024, "Sequences per TFRecord shard; a shard is the unit of shuffling.", lower=1)
    impressions: str = setting("",
        "Log of everything that was shown, clicked or not, with the columns of --format=columns, for "
        "--negatives=impressions and --loss=ipw; needs time stamps.")
    dry_run: bool = setting(False, "Report what would be written, and write nothing.")


@dataclasses.dataclass(frozen=True)
class ModelConfig(_Checked):
    """The two towers and the loss."""
    embedding_dim: int = setting(64, "Width d of item and user vectors.", lower=2)
    feature_dims: tuple[str, ...] = setting((), "Widths of the item features' embeddings, in schema order, summing to "
                                                "--embedding_dim (default: split by largest remainder).")
    use_features: bool = setting(True, "Encode items with their features, not the id alone.")
    feature_projection: bool = setting(False,
        "Project the concatenated features to d, which lets feature widths differ from a sum of d (a deviation "
        "from the paper).")
    content_hidden: int = setting(0, "Hidden width of the encoder of dense content vectors (0: linear).", lower=0)
    max_history: int = setting(50, "Most recent clicks T of a user that the query tower sees.", lower=1)
    user_encoder: str = setting("multi_att", "multi_att: multi-head attention and weighted head aggregation (paper). "
                                             "mean: mean of the history.", choices=("multi_att", "mean"))
    attention_heads: int = setting(4, "Heads H of the multi-head attention.", lower=1)
    attention_hidden: int = setting(0, "Hidden width of the attention MLP (0: 4d).", lower=0)
    attention_values: str = setting("all",
        "What attention sums: all = item + time + position, item = item vector only.", choices=("all", "item"))
    head_aggregation: str = setting("wha", "How heads become one vector (paper, Table 12).",
                                    choices=("wha", "mean", "mean_mlp", "concat_mlp"))
    candidate_features: bool = setting(True, "Encode candidates with their features; without, only histories are.")
    similarity: str = setting("cosine", "cosine (paper) or dot (ablation).", choices=("cosine", "dot"))
    temperature: float = setting(0.07, "Temperature ρ of the logits.", lower=1e-6)
    position: str = setting("backward",
        "backward: the earliest kept click is position 0 (paper). forward: the latest is.",
        choices=("backward", "forward", "none"))
    time_embedding: str = setting("auto",
        "auto: minutes if the data has time stamps. minutes: boundaries 5..3840 minutes. log2: powers of two of "
        "seconds. none: no time.", choices=("auto", "minutes", "log2", "none"))
    time_boundaries: tuple[str, ...] = setting((),
        "Boundaries of the time buckets in minutes, ascending, instead of 5,10,15,30,60,…,3840 (time_embedding minutes).")
    queue: str = setting("cached", "in_batch: the batch's own positives. raw: queue of ids, re-encoded each step. "
                                   "cached: queue of item vectors.", choices=("in_batch", "raw", "cached"))
    queue_size: int = setting(2560, "Capacity Q of the queue, at least the batch size.", lower=1)
    mask_same_user: bool = setting(False, "Leave a user's other clicks out of its own denominator.")
    balanced_gradient: bool = setting(True,
        "Cached queue: in the gradient of the items, each of the batch's stands for the whole queue's share, as in a raw "
        "queue on average. Off: as the formula reads, by which items are pushed apart by a share B/Q only.")
    prefill_queue: bool = setting(False, "Fill the queue with shuffled training targets before the first step.")


@dataclasses.dataclass(frozen=True)
class LossConfig(_Checked):
    """The loss that the towers are trained with; README, "Which loss when"."""
    loss: str = setting("contrastive",
        "contrastive: CLRec, negatives from --queue. full_softmax: over all items. sampled_softmax: over "
        "--num_negatives, with logQ correction. negative_sampling: logistic, with negatives for each row. "
        "shared_negative_sampling: the same set for a batch. bce: logistic, one uniform negative. ipw: full or sampled "
        "softmax weighted by inverse propensity.",
        choices=("contrastive", "full_softmax", "sampled_softmax", "negative_sampling", "shared_negative_sampling", "bce",
                 "ipw"))
    debias_beta: float = setting(1.0,
        "How much of the items' popularity the contrastive loss removes: 1 = CLRec, p(y|x)/p(y); 0 = corrected sampled "
        "softmax, p(y|x); between, p(y|x)/p(y)^β.", lower=0.0, upper=1.0)
    negatives: str = setting("clicks", "What feeds the queue: clicked items, or impressions (prepare --impressions).",
                             choices=("clicks", "impressions"))
    num_negatives: int = setting(0, "Sampled negatives L (0: as many as --queue_size; bce: always one).", lower=0)
    sampler: str = setting("alias",
        "alias: with replacement, ∝ count^power. tf_default: as tf.nn.sampled_softmax_loss (log-uniform by rank, unique, "
        "accidental hits removed; sampled_softmax only, and resumed with other draws).", choices=("alias", "tf_default"))
    sampler_power: float = setting(-1.0, "Exponent of the training count in the sampler (−1: 1 for sampled_softmax, .75 "
                                         "for negative sampling; bce is uniform).", lower=-1.0, upper=2.0)
    propensity: str = setting("popularity",
        "First stage of ipw, q̂ of an item being shown. popularity: its share. category: its share after a click on "
        "the same --propensity_feature. softmax: a small model of the item given the last click.",
        choices=("popularity", "category", "softmax"))
    propensity_data: str = setting("impressions",
        "What q̂ is fitted on: impressions (prepare --impressions), or clicks, which only a coarse model may be fitted "
        "on: one that predicts clicks well cancels the signal.", choices=("impressions", "clicks"))
    propensity_feature: str = setting("", "Item feature of --propensity=category (default: the first).")
    ipw_cap: float = setting(10.0, "Largest weight of ipw, where 1 is that of an item shown as often as the average.",
                             lower=0.0)


@dataclasses.dataclass(frozen=True)
class TrainConfig(_Checked):
    """The training loop."""
    stages: tuple[str, ...] = setting(("train",),
        "What one call does, in this order, of: generate, prepare, train, evaluate, export, show. generate, prepare "
        "and train leave alone what is complete.")
    batch_size: int = setting(256, "Examples B per step.", lower=1)
    epochs: int = setting(1, "Passes over the training data.", lower=0)
    target_mode: str = setting("last",
        "last: a sequence's last click is the target. sliding: every click after the first is, one example per "
        "prefix.", choices=("last", "sliding"))
    shuffle_shards: int = setting(8, "Shards whose examples are shuffled together.", lower=1)
    optimizer: str = setting("lazy_adam", "Sparse optimizer: only rows in use are updated.",
                             choices=("lazy_adam", "adagrad"))
    learning_rate: float = setting(1e-3, "Peak learning rate.", lower=0.0)
    warmup_steps: int = setting(0, "Steps of linear warm-up.", lower=0)
    schedule: str = setting("constant", "Learning rate after warm-up.", choices=("constant", "cosine"))
    final_learning_rate_ratio: float = setting(0.0, "Where cosine ends, relative to the peak.", lower=0.0, upper=1.0)
    weight_decay: float = setting(0.0, "Decoupled weight decay; of tables only the rows in use decay.", lower=0.0)
    clip_norm: float = setting(5.0, "Global gradient norm is clipped to this (0: off).", lower=0.0)
    steps_per_call: int = setting(20, "Steps per dispatched call.", lower=1)
    time_dropout: float = setting(0.02,
        "Share of examples trained without time stamps, so that the row for unknown time is trained.",
        lower=0.0, upper=1.0)
    validate_every: float = setting(1.0, "Epochs between validations (0: none).", lower=0.0)
    validation_metric: str = setting("hr@10/full", "Metric (higher is better) that selects the best checkpoint.")
    validation_users: int = setting(10_000, "Users of a validation, at most.", lower=1)
    early_stopping_patience: int = setting(0, "Validations without a better metric before training stops (0: never).",
                                           lower=0)
    checkpoint_every_steps: int = setting(1000, "Steps between checkpoints.", lower=1)
    keep_checkpoints: int = setting(3, "Latest checkpoints kept, besides the best.", lower=1)
    max_nonfinite_steps: int = setting(10,
        "Consecutive steps with NaN or infinite loss or gradient, each skipped, before training stops with an "
        "error.", lower=0)
    log_every_steps: int = setting(200, "Steps between log lines, metrics.jsonl rows and summaries.", lower=1)
    verify_data: str = setting("size", "Check of shards at start: their sizes, or their sha256 too.",
                               choices=("size", "sha256"))
    threads: int = setting(0, "Threads within one operation of TensorFlow (0: as many as cores).", lower=0)
    parallel_ops: int = setting(0, "Operations of TensorFlow that may run at once (0: as many as cores).", lower=0)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(_Checked):
    """Metrics of a trained model."""
    eval_split: str = setting("test", "Part evaluated.", choices=("test", "valid"))
    eval_checkpoint: str = setting("best", "best, latest, or the prefix of a checkpoint.")
    ks: tuple[str, ...] = setting(("1", "5", "10", "50"), "Cut-offs k of the ranking metrics.")
    list_length: int = setting(10, "Length of the lists of the diversity and popularity metrics.", lower=1)
    filter_seen: bool = setting(True, "Leave items of the user's history out of the ranking.")
    candidate_sets: tuple[str, ...] = setting(("full", "pop100", "uniform100"), "Candidate sets, of full, pop100, "
                                                                                "uniform100.")
    max_users: int = setting(0, "Users evaluated, drawn at random (0: all).", lower=0)
    untrained: bool = setting(False, "Also evaluate the model with its initial values, as a baseline.")


@dataclasses.dataclass(frozen=True)
class ExportConfig(_Checked):
    """The serving bundle."""
    export_version: int = setting(0, "Version folder (0: one more than the newest).", lower=0)
    export_checkpoint: str = setting("best", "best, latest, or the prefix of a checkpoint.")
    index: str = setting("auto",
        "auto: exact search below 20,000 items, else ScaNN.", choices=("auto", "exact", "scann"))
    target_recall: float = setting(0.95, "Recall of the index against exact search below which export fails.",
                                   lower=0.0, upper=1.0)
    recall_k: int = setting(100, "Results k that this recall is measured over.", lower=1, upper=10_000)
    export_users: int = setting(1000, "Held-out users on whom export measures recall and parity.", lower=1)


@dataclasses.dataclass(frozen=True)
class RetrieveConfig(_Checked):
    """Retrieval from a bundle."""
    history: str = setting("",
        "Comma-separated original item ids, oldest first; empty: JSON lines from standard input.")
    k: int = setting(10, "Items retrieved per user.", lower=1, upper=10_000)
    exclude_seen: bool = setting(False, "Leave the history's items out of the result.")
    users: str = setting("",
        "File of users for bulk retrieval, .jsonl or .parquet, with `user_id` and `history` and, if known, "
        "`timestamps` and `request_time` in seconds.")
    output: str = setting("", "File for bulk results, .parquet or .jsonl.")
    embeddings: str = setting("", "File (.npz) for the vectors of items, and of users where given, with their ids.")
    retrieve_batch: int = setting(512, "Users searched at once in bulk retrieval.", lower=1)


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig(_Checked):
    """Measurements."""
    suite: tuple[str, ...] = setting(("training",),
        "What is measured, of: training (queue variants, bare operations, growth with items and queue; and input), "
        "losses (CLRec beside sampled softmax), "
        "input (reading alone beside training; --data_dir or generated data), tfrs (beside TensorFlow Recommenders; "
        "needs --data_dir), memory (peak of training; takes 9 GB), prepare (time for --events clicks).")
    json: str = setting("", "File for the figures as JSON, besides printing them.")
    rounds: int = setting(7, "Times that each side of a comparison is measured, in turn.", lower=1)
    benchmark_items: int = setting(1_000_000, "Items of the generated catalogue (suite training).", lower=1000)
    benchmark_histories: tuple[str, ...] = setting(("10", "50"), "Lengths of history compared (suite training).")
    events: int = setting(20_000_000, "Clicks of the generated log (suite prepare).", lower=1000)


@dataclasses.dataclass(frozen=True)
class ProofConfig(_Checked):
    """The proof that each loss learns what its formula says (debias_proof)."""
    parts: tuple[str, ...] = setting(("closed_forms", "stochastic"),
        "What is proved, of: closed_forms (the exact optimum of every loss in every world), stochastic (each loss "
        "trained, beside its own optimum), end_to_end (CLRec beside sampled softmax and others, from the log of a "
        "generated world to trained towers, in --workdir; configs/exposure_world.flags).")
    repetitions: int = setting(3, "Seeds, from --seed on, that end_to_end is repeated with.", lower=1)
    mask_hits: bool = setting(False,
        "Mask copies of the positive in the click queue of the stochastic part: a defect, which must fail the proof.")


@dataclasses.dataclass(frozen=True)
class ExposureWorldConfig(_Checked):
    """A generated log of impressions and clicks whose exposure and relevance are known."""
    world_dir: str = setting("", "Folder of the generated world: clicks, impressions, items and the truth.")
    exposure_policy: str = setting("pop",
        "What the old system shows q(y|x), mixed with 2 % uniform: pop = popularity. quality = popularity · e^s. "
        "intent = popularity · e^τ where the intent matches. personal = intent · e^(1.5 VᵀU). uniform: no bias.",
        choices=("pop", "quality", "intent", "personal", "uniform"))
    exposure_size: str = setting("small", "small: 2,000 users and 2,000 items. full: 20,000 users and 10,000 items.",
                                 choices=("small", "full"))
    exposure_users: int = setting(0, "Users of the world (0: by --exposure_size).", lower=0)
    exposure_items: int = setting(0, "Items of the world (0: by --exposure_size).", lower=0)
    exposure_visits: int = setting(40, "Mean visits per user; each ends with a click or after 50 impressions.",
                                   lower=1, upper=1000)
    exposure_weeks: int = setting(3, "Weeks that the visits are spread over; the first begins on a Monday.",
                                  lower=1, upper=52)
    exposure_types: int = setting(48, "Types of users' lasting taste U.", lower=2, upper=1000)
    exposure_zipf: float = setting(1.0, "Exponent a of the popularity rank^−a.", lower=0.0, upper=3.0)
    exposure_tau: float = setting(2.0, "Log odds τ of being shown where the intent matches.", lower=0.0, upper=10.0)
    intent_bonus: float = setting(1.5, "Log odds b of a click where the intent matches.", lower=0.0, upper=10.0)
    quality_std: float = setting(0.0, "Standard deviation σ_s of the items' quality s.", lower=0.0, upper=5.0)
    weekend_shift: float = setting(0.6,
        "How much weekends differ: half of the types come 1 + this times as often then, the others 1 − this; each half "
        "favours other intents by as much.", lower=0.0, upper=0.95)


@dataclasses.dataclass(frozen=True)
class RandomisedConfig(_Checked):
    """Training on a self-selected part, evaluation on a part whose exposure was uniformly random."""
    selected_ratings: str = setting("", "File of the ratings of self-selected items, trained on; --ratings_form.")
    random_ratings: str = setting("",
        "File of the ratings of items drawn uniformly, evaluated on; pairs of --selected_ratings are dropped.")
    ratings_form: str = setting("auto",
        "matrix: a row of numbers per user, a column per item, 0 = missing. triples: lines of user, item, rating, with "
        "or without a header. auto: triples if the name ends in .csv or .tsv (also .gz).",
        choices=("auto", "matrix", "triples"))
    click_rating: float = setting(4.0, "A rating of at least this is a click.")
    propensity_matrix: str = setting("",
        "Matrix file, users by items, of the propensities of --selected_ratings, for the loss ipw (empty: no ipw).")
    item_vectors: str = setting("", "Matrix file, items by width, of dense item vectors (empty: ids alone).")
    randomised_losses: tuple[str, ...] = setting((),
        "Losses compared, of: mle, sampled_softmax, ipw, ipw_popularity, clrec, clrec_beta_.75, clrec_beta_.5, "
        "clrec_impressions (default: all).")
    randomised_seeds: int = setting(5, "Seeds, from --seed on, that every loss is trained with.", lower=1)
    epochs_tried: tuple[str, ...] = setting(("5", "10", "20", "40", "80"),
        "Numbers of epochs of which all losses take the one with which mle ranks held-out training clicks best "
        "(empty: --epochs).")


SECTIONS = dict(paths=Paths, world=WorldConfig, prepare=PrepareConfig, model=ModelConfig, loss=LossConfig, train=TrainConfig,
                evaluate=EvaluateConfig, export=ExportConfig, retrieve=RetrieveConfig, benchmark=BenchmarkConfig,
                proof=ProofConfig, exposure_world=ExposureWorldConfig, randomised=RandomisedConfig)


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of one command call."""
    paths: Paths = Paths()
    world: WorldConfig = WorldConfig()
    prepare: PrepareConfig = PrepareConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    export: ExportConfig = ExportConfig()
    retrieve: RetrieveConfig = RetrieveConfig()
    benchmark: BenchmarkConfig = BenchmarkConfig()
    exposure_world: ExposureWorldConfig = ExposureWorldConfig()
    proof: ProofConfig = ProofConfig()
    randomised: RandomisedConfig = RandomisedConfig()

    def __post_init__(self):
        if self.model.queue != "in_batch" and self.model.queue_size < self.train.batch_size:
            raise UserError(
                f"--queue_size={self.model.queue_size} is smaller than --batch_size={self.train.batch_size}: "
                "a batch enters the queue whole, so raise --queue_size or lower --batch_size")
        if self.prepare.from_time and self.prepare.from_time == self.prepare.to_time:
            raise UserError(f"--from={self.prepare.from_time} equals --to: no click remains")


def section_from_dict(section: type, values: dict):
    """Rebuilds a section from JSON, tuples from lists; unknown keys raise `UserError`."""
    names = {field.name for field in dataclasses.fields(section)}
    unknown = sorted(set(values) - names)
    if unknown:
        raise UserError(f"unknown settings {', '.join(unknown)} for {section.__name__}; written by another version?")
    return section(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def require(value: Optional[str], flag: str, why: str) -> str:
    """The value of a flag that this command cannot do without."""
    if not value:
        raise UserError(f"--{flag} is not set: {why}")
    return value
