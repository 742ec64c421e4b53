"""Settings of evaluation, reports, export and retrieval."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting

AUTHORS_USERS = 10_000  # of --pop100_protocol=authors


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(Section):
    """Metrics of a trained model."""
    eval_split: str = setting("test",
        "Part evaluated. train: of each training sequence one random example, whose lists are those of the paper's "
        "Table 10; its hits are on clicks that were trained on.", choices=("test", "valid", "train"))
    eval_checkpoint: str = setting("best", "best, latest, or the prefix of a checkpoint.", path=True)
    ks: tuple[str, ...] = setting(("1", "5", "10", "50"), "Cut-offs k of the ranking metrics.")
    list_length: int = setting(10, "Length of the lists of the diversity and popularity metrics.", lower=1)
    filter_seen: bool = setting(True, "Leave items of the user's history out of the ranking.")
    candidate_sets: tuple[str, ...] = setting(("full", "pop100", "uniform100"), "Candidate sets, of full, pop100, "
                                                                                "uniform100.")
    pop100_protocol: str = setting("canonical",
        "How the popular negatives of pop100 are drawn. canonical: by training clicks. bert4rec_py2: by clicks of all "
        "parts, as BERT4Rec's code does under Python 2. authors: as canonical, on at most 10,000 users, as the paper's "
        "authors' code does.", choices=("canonical", "bert4rec_py2", "authors"))
    auc: bool = setting(False, "Also the AUC of the next click against one random item (HPMN's protocol; prepare "
                               "--split=by_user).")
    eval_intents: int = setting(0, "Intents K of each user that an item's score is made of, heaviest first (0: all, or "
                                   "the heaviest alone where the loss trains no other).", lower=0)
    max_users: int = setting(0, "Users evaluated, drawn at random (0: all).", lower=0)
    untrained: bool = setting(False, "Also evaluate the model with its initial values, as a baseline.")

    def __post_init__(self):
        super().__post_init__()
        if self.pop100_protocol == "authors":
            object.__setattr__(self, "max_users", min(self.max_users or AUTHORS_USERS, AUTHORS_USERS))


@dataclasses.dataclass(frozen=True)
class ReportConfig(Section):
    """The page made from finished runs."""
    html: str = setting("", "File for the page; one that is there is replaced.", path=True)


@dataclasses.dataclass(frozen=True)
class ExportConfig(Section):
    """The serving bundle."""
    export_version: int = setting(0, "Version folder (0: one more than the newest).", lower=0)
    export_checkpoint: str = setting("best", "best, latest, or the prefix of a checkpoint.", path=True)
    cold_items: bool = setting(True, "Also items without any training click, which a model trained with --id_dropout "
                                     "knows by their features.")
    attributes: tuple[str, ...] = setting((), "Attributes of items that requests can be filtered by, such as "
                                              "category,price: features of the data set, or columns of "
                                              "--attribute_items, with :list of several values each.")
    attribute_items: str = setting("", "File of items that has --attributes as columns: TSV, CSV, JSON lines or "
                                       "Parquet, as --item_features of prepare.", path=True)
    forget_updates: bool = setting(False, "Restore the items that update_index has deleted in the newest version of "
                                          "--export_dir, which otherwise stay deleted.")
    index: str = setting("auto",
        "exact: all items. scann, faiss: some parts of them, with --target_recall. auto: exact below 20,000 items, else "
        "ScaNN, or faiss where that is not installed.", choices=("auto", "exact", "scann", "faiss"))
    target_recall: float = setting(0.95, "Recall of the index against exact search below which nothing is published.",
                                   lower=0.0, upper=1.0)
    recall_k: int = setting(100, "Results k that this recall is measured over.", lower=1, upper=10_000)
    export_users: int = setting(1000, "Held-out users on whom export measures recall and parity.", lower=1)
    serving_base_path: str = setting("", "Path of --export_dir as TensorFlow Serving sees it, for models.config, such "
                                         "as /models/clrec in a container (default: the absolute --export_dir).")
    allow_constant_lists: bool = setting(False, "Export even a model that gives the same list to everybody.")
    scann_export_dir: str = setting("", "Folder for a second SavedModel of the same version that searches by ScaNN's "
                                        "operations, for a TensorFlow Serving built with them (empty: none).",
                                    path=True)


@dataclasses.dataclass(frozen=True)
class RetrieveConfig(Section):
    """Retrieval from a bundle, also by the service."""
    history: str = setting("",
        "Comma-separated original item ids, oldest first; empty: JSON lines from standard input.")
    k: int = setting(10, "Items retrieved per user.", lower=1, upper=10_000)
    exclude_seen: bool = setting(False, "Leave the history's items out of the result.")
    intents: int = setting(0, "Intents K that a user is searched with, the heaviest ones (0: all, or the heaviest alone "
                              "where the loss trains no other). Fewer are faster and find less.", lower=0)
    merge: str = setting("maximum",
        "How the intents' lists become one. maximum: the items of highest score, whichever intent they are from. "
        "quota: each intent brings its share, in proportion to the weights and at least a tenth.",
        choices=("maximum", "quota"))
    filter: str = setting("", "JSON of what attributes of items must be (export --attributes), such as "
                              "'{\"category\": [\"a\", \"b\"], \"price\": {\"max\": 20}}'.")
    users: str = setting("",
        "File of users for bulk retrieval, .jsonl or .parquet, with `user_id` and `history` and, if known, "
        "`timestamps`, `request_time` and `dwell` in seconds.", path=True)
    output: str = setting("", "File for bulk results, .parquet or .jsonl.", path=True)
    embeddings: str = setting("", "File (.npz) for the vectors of items, and of users where given, with their ids.",
                              path=True)
    similar_to: str = setting("", "Comma-separated original item ids, for each of which similar items are retrieved in "
                                  "place of users' (as --popularity 0 unless that is given).")
    vectors: str = setting("", "File (.parquet or .jsonl) for the items' vectors with ids, titles and attributes, for "
                               "vector databases.", path=True)
    retrieve_batch: int = setting(512, "Users searched at once in bulk retrieval.", lower=1)
