"""Tables 11 and 12 and figure 6: positions and times, head aggregation, and what that does to a list."""
from clrec_tf.lab.paper_tables import measures
from clrec_tf.lab.paper_tables.definition import ANY_DATA
from clrec_tf.lab.paper_tables.definition import Column
from clrec_tf.lab.paper_tables.definition import On
from clrec_tf.lab.paper_tables.definition import Row
from clrec_tf.lab.paper_tables.definition import Table

ATTENTION = dict(target_mode="sliding", batch_size=256, queue="cached", queue_size=2560, schedule="cosine",
                 validate_every=0.0, popularity=("0", "1"), candidate_sets=("full",), ks=("10", "50"))
SMALL = dict(embedding_dim=32, max_history=20, learning_rate=4e-3, epochs=4)  # of a simulation or another small log
NO_COSINE = dict(similarity="dot", temperature=1.0)
CONCATENATION = dict(head_aggregation="concat_mlp", **NO_COSINE)
COSINE_TEXT = "Without the cosine the temperature is 1, since an inner product has no bound."


def _hits(figures):
    """HR@50 as trained, beside the figures of production, and of the same models at popularity 1, in their order."""
    return (Column("hr@50/full", paper={ANY_DATA: figures}),
            Column("hr@50/full/popularity=1", order=tuple(sorted(figures, key=figures.get, reverse=True))))


T11 = Table(
    "T11", "Positions and time buckets",
    "Most clicks are found with backward positions and time buckets together, fewest with forward ones and time "
    "buckets.",
    (Row("FwdPosEmb", dict(position="forward", time_embedding="none")),
     Row("BackPosEmb", dict(position="backward", time_embedding="none")),
     Row("TimeBucketEmb", dict(position="none")),
     Row("FwdPosEmb + TBE", dict(position="forward")),
     Row("BackPosEmb + TBE", dict(position="backward"))),
    _hits({"FwdPosEmb": .185, "BackPosEmb": .182, "TimeBucketEmb": .189, "FwdPosEmb + TBE": .164,
           "BackPosEmb + TBE": .191}),
    {"simulator": On(6, SMALL), "ml100k": On(12, SMALL | dict(max_history=50)),
     "taobao": On(12, SMALL | dict(max_history=50))}, ATTENTION)

T12 = Table(
    "T12", "Head aggregation",
    f"Weighted head aggregation with the cosine is ahead of means and concatenation. {COSINE_TEXT}",
    (Row("MeanPooling", dict(head_aggregation="mean", **NO_COSINE)),
     Row("MeanPooling + Cosine", dict(head_aggregation="mean")),
     Row("MeanPooling + MLP", dict(head_aggregation="mean_mlp", **NO_COSINE)),
     Row("MeanPooling + MLP + Cosine", dict(head_aggregation="mean_mlp")),
     Row("Concatenation + MLP", CONCATENATION),
     Row("WHA + Cosine", dict(head_aggregation="wha"))),
    _hits({"MeanPooling": .151, "MeanPooling + Cosine": .181, "MeanPooling + MLP": .105,
           "MeanPooling + MLP + Cosine": .177, "Concatenation + MLP": .178, "WHA + Cosine": .197}),
    {"simulator": On(8, SMALL), "ml100k": On(14, SMALL | dict(max_history=50)),
     "taobao": On(14, SMALL | dict(max_history=50))}, ATTENTION)

F6 = Table(
    "F6", "Intents in one list of a single vector (figure 6)",
    "The list of WHA with the cosine mixes a user's intents, that of concatenation is dominated by one. The paper "
    "shows one user; here it is the entropy of the categories among the first 50, nats, mean over users. "
    f"{COSINE_TEXT}",
    (Row("Concatenation + MLP", CONCATENATION), Row("WHA + Cosine", dict(head_aggregation="wha")),
     Row("clicks of the user", measure=measures.history_entropy)),
    (Column("category_entropy@50", 3, order=("WHA + Cosine", "Concatenation + MLP")), Column("hr@50/full")),
    {"simulator": On(3, SMALL), "generated": On(4, SMALL)}, ATTENTION | dict(list_length=50),
    measure=measures.category_entropy)
