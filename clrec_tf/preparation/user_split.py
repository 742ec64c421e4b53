"""Split by users and time, HPMN's protocol (Ren et al. 2019; the public repository alimamarankgroup/HPMN).

Users whose last click is later than most others' are tested, a share of the others validates, the rest is trained on.
There a user is one row: a fair coin decides between the last item (label 1) and a random other one (label 0). Here a
training user of label 1 gives the whole sequence, one of label 0 all but the last click, which nothing may learn.

Letters: N clicks, U users.
"""
import numpy as np

from clrec_tf.data.user_draws import labels
from clrec_tf.data.user_draws import user_draws
from clrec_tf.data.user_draws import VALIDATION
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import TEST
from clrec_tf.preparation.splits import TRAIN
from clrec_tf.preparation.splits import VALID

# Parts beside those of `splits`: history of a user who is evaluated, before all other parts; and left out, after them.
CONTEXT, LEFT_OUT = TRAIN - 1, TEST + 1


def split_time(last: np.ndarray, quantile: float) -> int:
    """Time after which a last click makes a user a test user: place int(U·quantile) of the ascending last [U]."""
    return int(np.sort(last)[min(int(len(last) * quantile), len(last) - 1)])


def parts(clicks: Clicks, after: int, valid_share: float, seed: int, users: np.ndarray) -> np.ndarray:
    """Part of each click [N].

    Args:
      clicks: with time stamps, of some or all users; every user has one.
      after: time after which a last click is tested, see `split_time`.
      valid_share: chance of a user who is not tested to be validated.
      seed: see `user_draws`.
      users: their numbers [U] in the log.

    Returns:
      Of users tested or validated, the last click is TEST or VALID and the others `CONTEXT`; a user with a single click
      is among them without history. Of the others, all clicks are TRAIN, but the last is `LEFT_OUT` at label 0.
    """
    is_last = np.diff(clicks.user, append=-1) != 0
    tested = clicks.timestamp[is_last] > after
    validated = ~tested & (user_draws(seed, VALIDATION, users) < valid_share)
    target = np.where(tested, TEST, np.where(validated, VALID, np.where(labels(seed, users), TRAIN, LEFT_OUT)))
    earlier = np.where(tested | validated, CONTEXT, TRAIN)
    return np.where(is_last, target[clicks.user], earlier[clicks.user]).astype(np.int8)
