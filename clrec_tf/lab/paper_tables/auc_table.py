"""Table 9: AUC of a user's next click against one random item, of many encoders."""
from clrec_tf.lab.paper_tables.definition import ANY_DATA
from clrec_tf.lab.paper_tables.definition import Column
from clrec_tf.lab.paper_tables.definition import On
from clrec_tf.lab.paper_tables.definition import Row
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.lab.paper_tables.encoder_tables import ATTENTION
from clrec_tf.lab.paper_tables.encoder_tables import SMALL

ENCODERS = {"DNN": "dnn", "SVD++": "svdpp", "GRU4Rec": "gru4rec", "Caser": "caser", "DIEN": "dien", "RUM": "rum",
            "LSTM": "lstm", "SHAN": "shan", "HPMN": "hpmn"}
MULTI = dict(model="multi_clrec", queue="raw")
AMAZON = {"DNN": .7546, "SVD++": .7155, "GRU4Rec": .7760, "Caser": .7582, "DIEN": .7770, "RUM": .7464, "LSTM": .7765,
          "SHAN": .7763, "HPMN": .7809, "CLRec": .7785, "IPW + Multi encoder": .7888, "Multi-CLRec": .7993}
TAOBAO = {"DNN": .7460, "SVD++": .8371, "GRU4Rec": .8471, "Caser": .8745, "DIEN": .8934, "RUM": .8370, "LSTM": .8681,
          "SHAN": .8828, "HPMN": .9240, "CLRec": .9278, "IPW + Multi encoder": .9319, "Multi-CLRec": .9353}

T9 = Table(
    "T9", "AUC of many encoders",
    "Multi-CLRec is ahead of IPW with its encoder, of CLRec and of all others. Here the encoders before CLRec are "
    "trained with the same sampled softmax, all rows with the same width, number of negatives and epochs. `auc/paired` "
    "has both rows of each user, where the paper has one by a coin. `auc/paired_rebiased` puts log p̂ back, which a "
    "contrastive loss divides out and uniform negatives reward. Beauty's file has no time stamps: leave-one-out "
    "instead of a split by users. Of Taobao's sample categories stand for items.",
    (*(Row(name, dict(user_encoder=encoder, loss="sampled_softmax")) for name, encoder in ENCODERS.items()),
     Row("CLRec", dict(loss="contrastive")),
     Row("IPW + Multi encoder", MULTI | dict(loss="ipw", propensity_data="clicks")),
     Row("Multi-CLRec", MULTI | dict(loss="contrastive"))),
    (Column("auc/paired", 4, {ANY_DATA: TAOBAO, "beauty5": AMAZON}), Column("auc/paired_rebiased"),
     Column("auc/coin_flip")),
    {"taobao_categories": On(14, SMALL | dict(max_history=99)), "generated_by_user": On(25, SMALL),
     "beauty5": On(45, SMALL | dict(embedding_dim=64))}, ATTENTION | dict(auc=True), seeds=1)
