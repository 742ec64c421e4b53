"""Settings of the towers and the queue."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section):
    """The two towers and the queue of negatives."""
    model: str = setting("clrec",
        "clrec: one vector per user. multi_clrec: --num_intents vectors per user, and a queue for each intent.",
        choices=("clrec", "multi_clrec"))
    embedding_dim: int = setting(64, "Width d of item and user vectors.", lower=2)
    feature_dims: tuple[str, ...] = setting((), "Widths of the item features' embeddings, in schema order, summing to "
                                                "--embedding_dim (default: split by largest remainder). multi_clrec: "
                                                "of the features beside the category, any widths (default: d/4).")
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
    product_dtype: str = setting("float32",
        "Type of the products in the attention MLP and the content encoder, for GPUs; all else, logits and tables "
        "included, is float32.", choices=("float32", "bfloat16"))
    similarity: str = setting("cosine", "cosine (paper) or dot (ablation).", choices=("cosine", "dot"))
    temperature: float = setting(0.07, "Temperature ρ of the logits.", lower=1e-6)
    position: str = setting("backward",
        "backward: the earliest kept click is position 0 (paper). forward: the latest is.",
        choices=("backward", "forward", "none"))
    time_embedding: str = setting("auto",
        "auto: minutes if the data has time stamps. minutes: boundaries 5..3840 minutes. log2: powers of two of "
        "seconds. none: no time.", choices=("auto", "minutes", "log2", "none"))
    time_boundaries: tuple[str, ...] = setting((),
        "Boundaries of the time buckets in minutes, ascending, instead of 5,10,15,30,…,3840 (time_embedding minutes).")
    queue: str = setting("auto",
        "in_batch: the batch's own positives. raw: queue of ids, re-encoded each step. cached: queue of item vectors. "
        "auto: cached; raw for multi_clrec, whose entries stay longer.", choices=("auto", "in_batch", "raw", "cached"))
    queue_size: int = setting(2560,
        "Queue entries Q that a row is compared with, at least the batch size. multi_clrec: half from the main queue, "
        "half from the queue of the target's intent, so each of the 1+H queues holds Q/2.", lower=1)
    mask_same_user: bool = setting(False, "Leave a user's other clicks out of its own denominator.")
    balanced_gradient: bool = setting(True,
        "Cached queue: in the gradient of the items, each of the batch's stands for the whole queue's share, as in a "
        "raw queue on average. Off: as the formula reads, by which items are pushed apart by a share B/Q only.")
    prefill_queue: bool = setting(False, "Fill the queue with shuffled training targets before the first step.")
    num_intents: int = setting(16, "multi_clrec: intents H, vectors per user.", lower=1, upper=1024)
    category_feature: str = setting("", "multi_clrec: item feature by which clicks are routed to intents (default: "
                                        "the first).")
    use_dwell: bool = setting(True, "multi_clrec: weigh clicks by how long the user stayed, where the data says so.")
    residual: bool = setting(False, "multi_clrec: MLPs add to their input, and items are normalized before they are "
                                    "summed, as the method's predecessor did.")
    st_mode: str = setting("soft",
        "multi_clrec: gradient of the choice among a user's vectors. literal: as the formula reads, without bound. "
        "capped: at most --st_max_ratio. soft: of the mixture of all vectors.", choices=("literal", "capped", "soft"))
    st_max_ratio: float = setting(100.0, "multi_clrec: largest e^(s_h − s_h*) in the gradient of st_mode capped.",
                                  lower=1.0)
    routing_weight: float = setting(1.0, "multi_clrec: weight λ1 of the loss that targets are routed clearly.",
                                    lower=0.0)
    vector_weight: float = setting(1.0, "multi_clrec: weight λ2 of the loss that the vector of a target's intent is "
                                        "the nearest to it.", lower=0.0)
    balance_weight: float = setting(1.0, "multi_clrec: weight λ3 of the loss that all intents are used equally.",
                                    lower=0.0)
    selection_weight: float = setting(0.0, "multi_clrec: weight of the loss that the vector of a target's intent is "
                                           "the one selected, by which weights become chances (not in the paper).",
                                      lower=0.0)
    balance_items: str = setting("all", "multi_clrec: whose routing is balanced: all clicks of a batch, its targets, "
                                        "or its unique items.", choices=("all", "targets", "unique"))
    balance_hinge: bool = setting(False, "multi_clrec: balance pulls at intents with less than their share only.")
    routing_confidence: float = setting(1.0, "multi_clrec: a target routed with more than this probability draws no "
                                             "further (.95 is a remedy for collapse).", lower=0.0, upper=1.0)

    @property
    def queue_kind(self) -> str:
        """--queue, chosen where it is auto."""
        return {"clrec": "cached", "multi_clrec": "raw"}[self.model] if self.queue == "auto" else self.queue
