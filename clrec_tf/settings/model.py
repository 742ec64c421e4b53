"""Settings that every model reads; those of one tower or encoder stand beside its code."""
import dataclasses

from clrec_tf.settings.registry import TOWERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section):
    """The two towers."""
    model: str = setting("clrec", TOWERS.help, choices=TOWERS.names)
    embedding_dim: int = setting(64, "Width d of item and user vectors.", lower=2)
    feature_dims: tuple[str, ...] = setting((), "Widths of the item features' embeddings, in schema order, summing to "
                                                "--embedding_dim (default: split by largest remainder). multi_clrec: "
                                                "of the features beside the category, any widths (default: d/4).")
    max_history: int = setting(50, "Most recent clicks T of a user that the query tower sees.", lower=1)
    product_dtype: str = setting("float32",
        "Type of the products in the attention MLP and the content encoder, for GPUs; all else, logits and tables "
        "included, is float32.", choices=("float32", "bfloat16"))
    temperature: float = setting(0.07, "Temperature ρ of the logits.", lower=1e-6)
    id_dropout: float = setting(0.0,
        "Share of items whose id a training step does not see, so that features and dense vectors alone learn to "
        "describe an item; items that nobody has clicked are then encoded by those alone (--vocabulary=catalogue, "
        "--cold_items). 0: none.", lower=0.0, upper=0.9)
    use_query_features: bool = setting(True, "Read what is known of users and requests beside clicks, where the data "
                                             "has it (prepare --user_features, --context_columns).")
    history_dropout: float = setting(0.0,
        "Share of examples whose history a training step does not see, so that features of users and requests alone "
        "learn to describe a user; users without any known click are then served by those. 0: none.", lower=0.0,
        upper=0.9)
    use_events: bool = setting(True, "Read the behaviour of each click, where the data has it (prepare "
                                     "--event_weights).")
    position: str = setting("backward",
        "backward: the earliest kept click is position 0 (paper). forward: the latest is.",
        choices=("backward", "forward", "none"))
    time_embedding: str = setting("auto",
        "auto: minutes if the data has time stamps. minutes: boundaries 5..3840 minutes. log2: powers of two of "
        "seconds. none: no time.", choices=("auto", "minutes", "log2", "none"))
    time_boundaries: tuple[str, ...] = setting((),
        "Boundaries of the time buckets in minutes, ascending, instead of 5,10,15,30,…,3840 (time_embedding minutes).")
