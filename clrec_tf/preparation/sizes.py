"""What prepare's report says of a data set: sizes of its parts and features, and how its vocabulary grew."""
import numpy as np

from clrec_tf.data.features import Feature
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.preparation import splits
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation.splits import Sequences
from clrec_tf.preparation.vocabulary import Vocabulary

EVALUATED = {"valid": splits.VALID, "test": splits.TEST}


def growth(log: SplitLog, vocabulary: Vocabulary, values: dict[str, list[str]]) -> dict:
    """How the earlier vocabulary grew: new items and feature values, and numbers that changed for want of new items."""
    known = np.flatnonzero(log.numbered >= 0)
    moved = int((vocabulary.item_id[log.numbered[known]] != known + 1).sum())
    new = {name: len(now) - len(log.known_values(name)[0]) for name, now in values.items()}
    return dict(new=len(vocabulary.items) - len(known), **(dict(moved=moved) if moved else {}),
                **(dict(new_values=new) if new else {}))


def dropped(log: SplitLog, mask: np.ndarray) -> dict:
    """Of the training part, what is not trained on: sequences that are too short."""
    short = (log.part == splits.TRAIN) & ~mask
    return dict(users=len(np.unique(log.clicks.user[short])), clicks=int(short.sum()))


def of_parts(log: SplitLog, sequences: dict[str, Sequences], vocabulary: Vocabulary) -> dict:
    """Sizes of the parts by name."""
    train = sequences["train"]
    return dict(train=dict(sequences=len(train), clicks=len(train.item)),
                **{name: _of_part(log, which, sequences[name], vocabulary)
                   for name, which in EVALUATED.items()})


def _of_part(log: SplitLog, which: int, sequences: Sequences, vocabulary: Vocabulary) -> dict:
    """Sizes of a part, and how much of it the vocabulary does not hold."""
    clicks, part = log.clicks, log.part
    known = (vocabulary.item_id > 0) & (vocabulary.item_id <= len(vocabulary.items))
    target = part == which
    history = (part < which) & np.isin(clicks.user, clicks.user[target])
    share = lambda mask: round(float(1 - known[clicks.item[mask]].mean()), 6) if mask.any() else 0.0
    return dict(sequences=len(sequences), targets=int(sequences.target_count.sum()), clicks=len(sequences.item),
                users_without_known_history=len(np.unique(clicks.user[target])) - len(sequences),
                unknown_share_of_targets=share(target), unknown_share_of_histories=share(history))


def of_query(features: tuple[QueryFeature, ...], missing: dict[str, float]) -> dict:
    """Of each feature of users and requests: kind, known values or bins, width, and the share of those without one."""
    return {feature.key: dict(kind=feature.kind, values=feature.rows - 1, width=feature.width,
                              missing=missing[feature.key]) for feature in features}


def of_features(features: tuple[Feature, ...], feature_rows: tuple[np.ndarray, ...], vocabulary: Vocabulary
                     ) -> dict:
    """Of each feature: known values, width, and items of the vocabulary that lack it."""
    return {feature.name: dict(vocabulary=feature.vocabulary_size, width=feature.width,
                               items_without=int((rows[vocabulary.items] == 0).all(1).sum()))
            for feature, rows in zip(features, feature_rows)}
