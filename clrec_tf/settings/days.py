"""Settings of the daily round."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class DaysConfig(Section):
    """One day after the other (daily)."""
    days_dir: str = setting("", "Folder that holds a folder for each day, and history.jsonl.", path=True)
    day: str = setting("", "Name of the day, such as 2026-11-29 (default: today in UTC). Days follow each other in the "
                           "order in which they are first run.")
    gate: tuple[str, ...] = setting(("hr@50/full:-0.01", "aggregate_diversity@50/full:-0.05"),
        "What today's model must reach to be published, as METRIC:CHANGE, where CHANGE is the least allowed relative "
        "change against yesterday's model on the same clicks. METRIC: hr@K/full, ndcg@K/full or "
        "aggregate_diversity@K/full, at another popularity than 0 with /popularity=A behind.")
    gate_users: int = setting(20, "Users of the test part that --gate needs at least; a day with fewer is refused.",
                              lower=1)
    max_drift: float = setting(1.0, "Least total variation between the click frequencies of two days' items at which "
                                    "the day is stopped before training (1: never).", lower=0.0, upper=1.0)
