"""Tables 3, 6, 7 and 10 with figure 4: what is trained against what, and what that does to the lists."""
from clrec_tf.lab.paper_tables import measures
from clrec_tf.lab.paper_tables.definition import ANY_DATA
from clrec_tf.lab.paper_tables.definition import Column
from clrec_tf.lab.paper_tables.definition import On
from clrec_tf.lab.paper_tables.definition import Row
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.lab.paper_tables.encoder_tables import ATTENTION
from clrec_tf.lab.paper_tables.encoder_tables import SMALL

ML1M = dict(embedding_dim=64, max_history=50, learning_rate=2e-3, epochs=1)
# As configs/sasrec.flags, with fewer epochs.
SASREC = dict(user_encoder="sasrec", target_mode="all", batch_size=2048, embedding_dim=64, transformer_blocks=2,
              warmup_steps=100, schedule="cosine", validate_every=0.0, queue="cached", queue_size=2560)
OF_TRAINING = dict(eval_split="train", candidate_sets=("full",), ks=("10",), popularity=("0",))

T3 = Table(
    "T3", "Popularity and diversity beside MIND",
    "CLRec's items are less popular than MIND's and are clicked more often; both lists together are clicked more often "
    "than MIND's alone. Popularity index 1 is that of most-popular. `ctr@10` is known in a simulation alone, "
    "`clicked@10` is the share of users whose next click is in the list; lists of both take turns.",
    (Row("MIND", dict(user_encoder="mind", interest_reading="target", loss="sampled_softmax")),
     Row("CLRec", dict(loss="contrastive")),
     Row("MIND and CLRec", measure=measures.lists_in_turn, needs=("MIND", "CLRec"))),
    (Column("popularity_index@10/full", 3, {ANY_DATA: {"MIND": .658, "CLRec": .224}}),
     Column("aggregate_diversity@10/full", 0), Column("ctr@10", 4, {ANY_DATA: {"MIND": .0587, "CLRec": .0630}}),
     Column("clicked@10")),
    {"simulator": On(5, SMALL), "generated": On(8, SMALL), "ml1m": On(25, ML1M)}, ATTENTION,
    measure=measures.list_figures)

T6 = Table(
    "T6", "Features on the candidates",
    "Encoding candidates, and so negatives, with their features finds more clicks; histories have them in both rows.",
    (Row("CLRec + negatives w/o features", dict(candidate_features=False)),
     Row("CLRec + negatives with features", dict(candidate_features=True))),
    (Column("hr@50/full", 4, {ANY_DATA: {"CLRec + negatives w/o features": .174,
                                         "CLRec + negatives with features": .194}}),
     Column("hr@50/full/popularity=1",
            order=("CLRec + negatives with features", "CLRec + negatives w/o features")),
     Column("aggregate_diversity@10/full", 0)),
    {"generated": On(4, SMALL), "ml1m_genres": On(15, ML1M), "beauty5": On(8, SMALL | dict(embedding_dim=64))},
    ATTENTION)

T7 = Table(
    "T7", "The task u2u, and a momentum encoder",
    "Co-training with a user's later clicks as one more target finds more of the next five clicks; MoCo's momentum "
    "encoder adds nothing to it. Next clicks follow the log's exposure too; `ctr@10`, the share of a list of 10 that "
    "would be clicked if it were shown, is known in a simulation alone.",
    (Row("u2i"), Row("u2u", dict(pretext="u2u")), Row("u2u + MoCo", dict(pretext="u2u", momentum_encoder=.999))),
    (Column("hr@50/full", 4, {ANY_DATA: {"u2i": .179, "u2u": .183, "u2u + MoCo": .182}}),
     Column("recall5@50/full", 4, {ANY_DATA: {"u2i": .121, "u2u": .127, "u2u + MoCo": .126}}),
     Column("hr@50/full/popularity=1"), Column("ctr@10")),
    {"simulator_days": On(6, SMALL), "taobao": On(6, SMALL | dict(max_history=50))}, ATTENTION,
    measure=measures.list_figures)

T10 = Table(
    "T10", "Distinct items of all lists (and figure 4)",
    "CLRec's lists hold more of the catalogue than a softmax's. Lists of 10 follow one random part of each training "
    "sequence; seen items are left out. The encoder is SASRec's.",
    (Row("ground truth", measure=measures.distinct_next_clicks),
     Row("full softmax", dict(loss="full_softmax"), data=("ml1m",)),
     Row("softmax", dict(loss="sampled_softmax")), Row("CLRec", dict(loss="contrastive"))),
    (Column("aggregate_diversity@10/full", 0, {
        "ml1m": {"ground truth": 1883, "softmax": 2348, "CLRec": 3020},
        "beauty": {"ground truth": 19820, "softmax": 24340, "CLRec": 44408}}),
     Column("popularity_index@10/full", 3), Column("gini@10/full", 3)),
    # With few items the queue of all clicks, by which a Transformer learns in fewer steps (docs/training.md).
    {"ml1m": On(45, dict(max_history=50, dropout=.2, learning_rate=4e-3, epochs=8, queue="all_clicks")),
     "beauty": On(30, dict(max_history=50, dropout=.5, learning_rate=1e-2, epochs=12))},
    SASREC | OF_TRAINING, seeds=1, picture=True)
