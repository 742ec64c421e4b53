"""RecTools' SASRec, trained a few epochs at a time: the other side of ``quality``.

It runs as a script of an interpreter that has RecTools, which needs other versions than this package, so it imports
nothing of ours:

  PYTHON rectools_sasrec.py CLICKS.npz '{"epochs": 30, "every": 3, …}'

CLICKS.npz holds `user` [N] and `item` [N] of the training clicks in time order, and `target` [U], the next click of
user u. Each line of the output that begins with {"epochs" is JSON: epochs so far, seconds of training, HR@10, NDCG@10.
"""
import json
import math
import sys
import time
import warnings


def main(path: str, settings: dict) -> None:
    """Trains and prints."""
    warnings.filterwarnings("ignore")
    import numpy as np  # pylint: disable=import-outside-toplevel
    import pandas as pd  # pylint: disable=import-outside-toplevel
    from rectools.dataset import Dataset  # pylint: disable=import-outside-toplevel
    from rectools.models import SASRecModel  # pylint: disable=import-outside-toplevel
    clicks = np.load(path)
    targets = clicks["target"]
    dataset = Dataset.construct(pd.DataFrame(dict(
        user_id=clicks["user"], item_id=clicks["item"], weight=1,
        datetime=pd.Timestamp(2000, 1, 1) + pd.to_timedelta(np.arange(len(clicks["user"])), unit="s"))))
    model = SASRecModel(
        n_blocks=2, n_heads=settings["heads"], n_factors=settings["dim"], session_max_len=settings["history"],
        dropout_rate=0.2, loss="softmax", lr=1e-3, batch_size=128, epochs=settings["every"], verbose=0)
    seconds = 0.0
    for epochs in range(settings["every"], settings["epochs"] + 1, settings["every"]):
        begin = time.monotonic()
        model.fit_partial(dataset, min_epochs=settings["every"], max_epochs=settings["every"])
        seconds += time.monotonic() - begin
        lists = model.recommend(np.arange(len(targets)), dataset, k=10, filter_viewed=True)
        ranks = lists["rank"].to_numpy()[lists["item_id"].to_numpy() == targets[lists["user_id"].to_numpy()]]
        print(json.dumps(dict(
            epochs=epochs, seconds=round(seconds, 2), hr=len(ranks) / len(targets),
            ndcg=sum(1 / math.log2(rank + 1) for rank in ranks) / len(targets))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
