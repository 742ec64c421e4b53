"""Settings of folders and of the way from a log to a data set."""
import dataclasses

from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting
from clrec_tf.settings.setting import SEVERAL


EXPORT_FOLDER = "export"  # of a run: where its bundles are, unless --export_dir names another


@dataclasses.dataclass(frozen=True)
class Paths(Section):
    """Where things are."""
    data_dir: str = setting("", "Folder of the prepared data set (TFRecords, schema.json, manifest.json).", path=True)
    workdir: str = setting("", "Folder of one run, outside of --data_dir: checkpoints, config.json, metrics.jsonl, "
                               "summaries, metrics.json.", path=True)
    export_dir: str = setting("", "Folder of export bundles, which holds the numbered versions (default: "
                                  "WORKDIR/export, if the command takes --workdir).", path=True)
    plugins: tuple[str, ...] = setting((), "Python modules that register encoders and losses of your own, imported "
                                           "first; found from the current folder, or installed (docs/add_an_encoder.md).")
    seed: int = setting(0, "Seed of everything random: split, shuffling, initial values.", lower=0,
                        upper=2**32 - 1)


@dataclasses.dataclass(frozen=True)
class WorldConfig(Section):
    """A generated click log with planted structure, for a first run without data."""
    world_users: int = setting(3000, "Users of the generated log.", lower=10)
    world_items: int = setting(1200, "Items of the generated log.", lower=50)
    world_intents: int = setting(8, "Intents planted in the generated log.", lower=2)
    world_clicks_per_user: int = setting(40, "Mean clicks per user of the generated log.", lower=5)


@dataclasses.dataclass(frozen=True)
class PrepareConfig(Section):
    """From a raw click log to TFRecords."""
    format: str = setting("columns",
        "Form of --input. columns: a header, or --columns; text, JSON lines or Parquet. lists: the same with lists of "
        "items (and times), one row per user. sequence: lines of user and item in time order. sequence_per_user: one "
        "user a line, then its items. amazon: reviews_X_5.json, with meta_X.json beside it; amazon2023: X.jsonl, with "
        "meta_X.jsonl. recbole splits token_seq columns at spaces.",
        choices=("taobao", "movielens", "amazon", "amazon2023", "sequence", "sequence_per_user", "recbole", "columns",
                 "lists"))
    input: str = setting("",
        "Click log: a file (also packed: gz, zst, bz2, xz, zip), several separated by commas, a pattern, or a folder "
        "of parts, whose folders name=value are columns; for movielens, amazon and recbole the folder or the ratings "
        "file.", path=SEVERAL)
    item_features: str = setting("",
        "File of item features joined by item id: TSV, CSV, JSON lines or Parquet, or JSON "
        "{id: {feature: value or list}} "
        "/ {id: [values]}. Features used: --feature_columns and --multi_feature_columns; of JSON all, by default.",
        path=SEVERAL)
    item_features_id: str = setting("", "Column of the item id in --item_features (default: --item_column, else the "
                                        "only one called like an id, such as item, item_id or asin).")
    dense_features: str = setting("",
        "Dense vectors by item id: .npz with arrays `ids` and `vectors`, or Parquet with the columns `item_id` "
        "and `vector`.", path=True)
    columns: tuple[str, ...] = setting((), "Names of all columns, from left to right, of a text --input without a "
                                           "header (formats columns and lists).")
    delimiter: str = setting("", "What separates columns of a text --input, one or several characters, \\t and \\x01 "
                                 "too (default: by format and file name).")
    encoding: str = setting("", "Encoding of a text --input, such as cp1252 or gbk (default: told from the file, and "
                                "said if it is not UTF-8), and of other files that are not UTF-8.")
    quote: str = setting("auto", "Double quotes of text files. none: characters like others. double: around fields. "
                                 "auto: "
                                 "double unless tabs or several characters separate columns; refuses a field whose "
                                 "lines look like rows.", choices=("auto", "double", "none"))
    null_values: tuple[str, ...] = setting(
        ("nan", "NaN", "NAN", "Nan", "NULL", "null", "Null", "nil", "NIL", "\\N", "None", "none", "NONE", "NA", "N/A",
         "n/a", "#N/A", "#N/A N/A", "#NA", "#NULL!", "<NA>", "<na>", "<null>", "<NULL>", "(null)", "(NULL)", "[null]",
         "[NULL]", "NaT", "-nan", "-NaN", "1.#QNAN", "-1.#IND", "undefined"),
        "Words that mean a missing value, as empty text and NaN do: a bad row for ids and times, else no value.")
    id_type: str = setting("auto", "Type of item ids. int: integers from 0 to 10^18 - 1, others are bad rows. string: "
                                   "text, negative numbers and longer ones too. auto: int if all are.",
                           choices=("auto", "int", "string"))
    user_column: str = setting("user_id", "Column of the user id (formats columns, lists and recbole).")
    item_column: str = setting("item_id", "Column of the item id (formats columns, lists and recbole).")
    timestamp_column: str = setting("timestamp", "Column of the time stamp: a number, or an ISO date(-time) (in "
                                                 "--utc_offset unless it names its own); empty: the file is in time "
                                                 "order and has no time stamps (formats columns, lists and recbole).")
    order_column: str = setting("", "Column of numbers that orders clicks of a user with equal time stamps, or all if "
                                    "there are none (default: the file's order; formats columns and recbole).")
    timestamp_unit: str = setting("auto", "Unit of numeric time stamps: told from the values, or seconds and finer "
                                          "since 1970, days, or the digits of a date; date-times have none.",
                                  choices=("auto", "s", "ms", "us", "ns", "d", "yyyymmdd", "yyyymmddhh", "yyyymmddhhmm",
                                           "yyyymmddhhmmss"))
    timestamp_format: str = setting("", "Pattern of date-times that are not ISO, such as '%d/%m/%Y %H:%M'.")
    max_time: str = setting("", "Clicks after this time are bad rows: seconds, or an ISO date(-time) (default: "
                                "tomorrow).")
    dwell_column: str = setting("", "Column of the seconds that the user stayed with the item, rounded down; empty or "
                                    "negative values are unknown (formats columns and recbole).")
    event_column: str = setting("", "Column of the behaviour, for --keep_events and --event_weights (format columns).")
    event_weights: tuple[str, ...] = setting((), "What a target of each behaviour counts in the loss, such as "
                                                 "buy:3,cart:2,pv:1; every behaviour that is kept needs a weight "
                                                 "(default: all count 1).")
    title_column: str = setting("title",
        "Column of the item's title, shown by retrieve, in the log or in --item_features.")
    feature_columns: tuple[str, ...] = setting((), "Categorical item features, one value each (format columns and "
                                                   "--item_features).")
    multi_feature_columns: tuple[str, ...] = setting((), "Item features with several values each, split at "
                                                         "--multi_separator.")
    multi_separator: str = setting("|", "Separator inside a several-valued feature, and of lists of items as text.")
    context_columns: tuple[str, ...] = setting((),
        "Columns of the log that describe the request each click answered, such as country, device or hour, for the "
        "query tower (format columns): a category each, or with :list several, with :number a number, such as "
        "hour:number.")
    user_features: str = setting("",
        "File of users' profiles joined by user id, for the query tower: TSV, CSV, JSON lines or Parquet, or a RecBole "
        ".user file.", path=SEVERAL)
    user_feature_columns: tuple[str, ...] = setting((), "Columns of --user_features that are read, named as those of "
                                                        "--context_columns (default: all).")
    user_features_id: str = setting("", "Column of the user id in --user_features (default: --user_column, else the "
                                        "only one called like an id of users).")
    number_bins: int = setting(16, "Bins, of about equal numbers of clicks, that a number of a user or a request falls "
                                   "into.", lower=2)
    max_values: int = setting(8, "Values kept of a several-valued feature.", lower=1)
    keep_events: tuple[str, ...] = setting((), "Behaviours kept, such as pv,buy (default: all).")
    split: str = setting("leave_one_out",
        "leave_one_out: last click = test, one before = validation. last_days: test on the last day(s), validate "
        "on those before, train on earlier. by_user (HPMN's protocol, for --auc): users whose last click is late are "
        "tested on it, some others validate, the rest are trained on; by a fair coin half lack the last click.",
        choices=("leave_one_out", "last_days", "by_user"))
    test_days: int = setting(1, "Days of the test part (split last_days).", lower=1)
    valid_days: int = setting(1, "Days of the validation part (split last_days); 0: none.", lower=0)
    split_quantile: float = setting(0.7, "Quantile of users' last time stamps after which a user is tested (split "
                                         "by_user).", lower=0.0, upper=1.0)
    valid_share: float = setting(0.1, "Share of the users not tested that validate (split by_user); 0: none.",
                                 lower=0.0, upper=1.0)
    utc_offset: float = setting(0.0, "Hours added to UTC to find a day's border.", lower=-14.0, upper=14.0)
    from_time: str = setting("",
        "Drop clicks before this time: seconds, or an ISO date(-time) in --utc_offset, 20240131 too.")
    to_time: str = setting("",
        "Drop clicks at or after this time: seconds, or an ISO date(-time) in --utc_offset, 20240131 too.")
    min_train_length: int = setting(5, "Training sequences shorter than this are not trained on.", lower=1)
    max_sequence_length: int = setting(10_000, "Most recent clicks kept per user.", lower=2)
    min_item_count: int = setting(1, "Items with fewer training clicks fall out of the vocabulary.", lower=1)
    vocabulary: str = setting("train",
        "Items that have an id: train: those of the training part. all: those of the other parts too, which nothing "
        "is learned of, as papers count that number items before they split. catalogue: those, and every item of "
        "--item_features, or of the file of items that a format has, that has a feature, for train "
        "--id_dropout. (Both need --min_item_count=1.)",
        choices=("train", "all", "catalogue"))
    vocabulary_from: str = setting("",
        "Data folder of an earlier prepare, whose numbers of items and feature values are kept: new ones come after "
        "them, and items without a click today keep theirs.", path=True)
    retire_after: int = setting(0,
        "With --vocabulary_from: days without a click after which an item leaves the vocabulary, and its number is "
        "given to a new one (0: never).", lower=0)
    oov_buckets: int = setting(0, "Hash buckets for items outside the vocabulary (0: they are left out of histories).",
                               lower=0)
    feature_oov_buckets: int = setting(1, "Hash buckets for feature values outside a feature's vocabulary.", lower=0)
    max_bad_rows: int = setting(0, "Unparsable rows tolerated (counted, with examples, in the report).", lower=0)
    shard_records: int = setting(1024, "Sequences per TFRecord shard; a shard is the unit of shuffling.", lower=1)
    impressions: str = setting("",
        "Log of everything that was shown, clicked or not, for --negatives=impressions and --loss=ipw: the folder of "
        "serve --impression_log, or a table with the columns of --format=columns and time stamps.", path=SEVERAL)
    dry_run: bool = setting(False, "Report what would be written, and write nothing.")
    runner: str = setting("local", "What prepares: local is this process; beam is a pipeline of Apache Beam, on whatever "
                                   "--beam_options names (docs/data.md).", choices=("local", "beam"))
    beam_options: str = setting("",
        "Options of Apache Beam with spaces between them, such as '--runner=DirectRunner --direct_num_workers=2' "
        "(default: Beam's own runner in this process).")
    clicks_in_memory: int = setting(4_000_000,
        "Clicks that prepare holds in memory at a time, up to about 300 bytes each; a longer log goes through files in "
        "--scratch_dir. Users and items are held in memory, however many.", lower=1)
    scratch_dir: str = setting("",
        "Folder for what does not fit into memory while prepare works, removed afterwards: 40 bytes a click, and text "
        "that is packed or not UTF-8 once more (default: beside --data_dir).", path=True)

    def __post_init__(self):
        super().__post_init__()
        if self.from_time and self.from_time == self.to_time:
            raise UserError(f"--from={self.from_time} equals --to: no click remains")
        if self.vocabulary != "train" and self.min_item_count > 1:
            raise UserError(f"--vocabulary={self.vocabulary} with --min_item_count={self.min_item_count}: all items have "
                            "an id, however rare; leave one of them out")
