"""What prepare's report says of a data set: sizes of its parts and features, and how its vocabulary grew."""
import numpy as np

from clrec_tf.data.features import Feature
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.preparation import splits
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import Sequences
from clrec_tf.preparation.vocabulary import Vocabulary
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files.tally import tally

EVALUATED = {"valid": splits.VALID, "test": splits.TEST}


def growth(log: SplitLog, vocabulary: Vocabulary, values: dict[str, list[str]]) -> dict:
    """How the earlier vocabulary grew: new items and feature values, and numbers that changed for want of new items."""
    known = np.flatnonzero(log.numbered >= 0)
    moved = int((vocabulary.item_id[log.numbered[known]] != known + 1).sum())
    new = {name: len(now) - len(log.known_values(name)[0]) for name, now in values.items()}
    return dict(new=len(vocabulary.items) - len(known), **(dict(moved=moved) if moved else {}),
                **(dict(new_values=new) if new else {}))


def counts(clicks: Clicks, part: np.ndarray, mask: np.ndarray, sequences: dict[str, Sequences],
           vocabulary: Vocabulary) -> Tally:
    """Sizes of the parts, and of what is not trained on; those of some users add up to those of all.

    Args:
      clicks: N clicks, by user.
      part: [N] part of each.
      mask: [N], which are trained on.
      sequences: by name of the part.
      vocabulary: see there.
    """
    short = (part == splits.TRAIN) & ~mask
    sums = {"dropped users": len(np.unique(clicks.user[short])), "dropped clicks": short.sum()}
    known = (vocabulary.item_id > 0) & (vocabulary.item_id <= len(vocabulary.items))
    for name, own in sequences.items():
        sums |= {f"{name} sequences": len(own), f"{name} targets": own.target_count.sum(), f"{name} clicks": len(own.item)}
    for name, which in EVALUATED.items():
        target = part == which
        history = (part < which) & np.isin(clicks.user, clicks.user[target])
        sums[f"{name} users"] = len(np.unique(clicks.user[target]))
        for kind, chosen in (("targets", target), ("histories", history)):
            sums |= {f"{name} of {kind}": chosen.sum(), f"{name} unknown of {kind}": (~known[clicks.item[chosen]]).sum()}
    return tally(sums)


def dropped(found: Tally) -> dict:
    """Of the training part, what is not trained on: sequences that are too short."""
    return dict(users=found.count("dropped users"), clicks=found.count("dropped clicks"))


def of_parts(found: Tally) -> dict:
    """Sizes of the parts by name; of `counts`."""
    return dict(train=dict(sequences=found.count("train sequences"), clicks=found.count("train clicks")),
                **{name: _of_part(found, name) for name in EVALUATED})


def _of_part(found, name):
    """Sizes of a part, and how much of it the vocabulary does not hold."""
    sequences = found.count(f"{name} sequences")
    share = lambda kind: round(found.count(f"{name} unknown of {kind}") / max(1, found.count(f"{name} of {kind}")), 6)
    return dict(sequences=sequences, targets=found.count(f"{name} targets"), clicks=found.count(f"{name} clicks"),
                users_without_known_history=found.count(f"{name} users") - sequences,
                unknown_share_of_targets=share("targets"), unknown_share_of_histories=share("histories"))


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
