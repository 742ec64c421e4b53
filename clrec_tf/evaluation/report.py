"""From scores to the metrics of one evaluation: a flat dict whose names state the candidate set, and a table of it.

Names: `hr@10/full`, `recall@50/full`, `ndcg@10/pop100`, `mrr/uniform100`, `aggregate_diversity@10/full`; the same with
`most_popular/` in front for the most-popular recommender under the same protocol, and with `/low` and `/high` behind
for the 95 % bootstrap interval over users. HR, NDCG and MRR rank a user's next click; recall looks at all targets.

`hr@10/full/new` and `hr@10/full/repeated` are `hr@10/full` of the users whose next click is on an item that is new to
them, or that their history holds; `repeated_targets` is the share of the latter. A system that leaves seen items out of
its lists serves the former: under the seen filter a repeated target stays a candidate while its rivals of the same kind
are gone. Clicks outside the vocabulary count as new, and a group without users has no figure. `hr@10/full/cold` and
`hr@10/full/warm` are those of users whose next click is on an item that no training has a click of, or on another, where
there are such items (`cold_references` has what to compare them with).

`hr@10/full/popularity=0.5` and the like are those of the dial's curve (see `curve`); `hr@10/full` is at popularity 0,
the model as trained. `popularity` is the value that validation users chose.

Of a model with several intents, `--eval_intents` says how many of a user's vectors are searched; `intents/…` and
`hr@10/full/given_intent` stand in `intent_report`.
"""
import os
from typing import Optional
from typing import Sequence

from absl import logging
import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import UserError
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation.sampled_negatives import clicks_of_all_parts
from clrec_tf.evaluation.sampled_negatives import sample_negatives
from clrec_tf.evaluation.sampled_negatives import SIZE
from clrec_tf.settings.serving import EvaluateConfig
from clrec_tf.system.json_files import save_json

METRICS_FILE = "metrics.json"
CANDIDATE_SETS = ("full", "pop100", "uniform100")
MOST_POPULAR = "most_popular/"
UNTRAINED = "untrained/"  # the model with its initial values, where an evaluation includes it
RANDOM, RANDOM_COLD, BY_FEATURE = "random/", "random_cold/", "by_feature/"  # see `cold_references`
COLD_REFERENCES = {RANDOM: "random", RANDOM_COLD: "random cold", BY_FEATURE: "by feature"}


def evaluate_vectors(user_vectors: np.ndarray, item_vectors: np.ndarray, evaluation_set: EvaluationSet,
                     counts: np.ndarray, config: EvaluateConfig, seed: int, temperature: Optional[float] = None,
                     **options) -> dict:
    """`evaluate_scorer` for inner products, of several vectors per user as `protocols.vector_scorer` joins them.

    Args: user_vectors [U,d] or [U,K,d]; item_vectors [V,d], row i = item i + 1; temperature: see there.
    """
    return evaluate_scorer(protocols.vector_scorer(user_vectors, item_vectors, temperature), evaluation_set, counts,
                           config, seed, **options)


def evaluate_scorer(score_chunk: protocols.ScoreChunk, evaluation_set: EvaluationSet, counts: np.ndarray,
                    config: EvaluateConfig, seed: int, *, candidate_sets: Optional[Sequence[str]] = None,
                    cold: Optional[np.ndarray] = None, detailed: bool = True, intervals: bool = True,
                    popular_lists: Optional[np.ndarray] = None,
                    memory_bytes: int = protocols.MEMORY_BYTES) -> dict:
    """Metrics of one model, and with `detailed` of most-popular beside it.

    Args:
      score_chunk: see `protocols`; its users are those of `evaluation_set` in the same order.
      evaluation_set: U users; sample them before (`EvaluationSet.sample(config.max_users, seed)`).
      counts: int [V], training clicks of items 1..V.
      config: cut-offs, list length, seen filter, candidate sets.
      seed: of the sampled negatives and the bootstrap.
      candidate_sets: overrides `config.candidate_sets`.
      cold: bool [V], items without a training click; None: nothing is said of them.
      detailed: also most-popular, lists (diversity and popularity) and bootstrap intervals. Validation during training
        passes False.
      intervals: whether the details have bootstrap intervals.
      popular_lists: of `most_popular_lists`; given, the details are of this model alone.
      memory_bytes: bound of the score matrices.

    Returns:
      {name: float, int, str or bool}.

    Raises:
      UserError: an unknown candidate set, a cut-off that is no positive integer, or scores that are not finite.
    """
    candidate_sets = tuple(config.candidate_sets if candidate_sets is None else candidate_sets)
    cutoffs = check_settings(config.ks, candidate_sets)
    all_parts = config.pop100_protocol == "bert4rec_py2"
    weights = dict(pop100=clicks_of_all_parts(evaluation_set, len(counts)) if all_parts else counts,
                   uniform100=np.ones(len(counts)))
    negatives = {name: sample_negatives(evaluation_set, weights[name], seed)
                 for name in candidate_sets if name in weights}
    arguments = dict(full="full" in candidate_sets, negatives=negatives, filter_seen=config.filter_seen,
                     list_length=config.list_length if detailed else 0, memory_bytes=memory_bytes)
    ranked = protocols.rank_targets(score_chunk, evaluation_set, len(counts), **arguments)
    result = dict(split=config.eval_split, users=evaluation_set.num_users, items=len(counts),
                  filter_seen=config.filter_seen)
    result |= dict(pop100_protocol=config.pop100_protocol) if "pop100" in negatives else {}
    result |= _user_means(ranked, evaluation_set, cutoffs, seed if detailed and intervals else None, cold)
    result |= _facts(ranked, evaluation_set, negatives)
    if detailed and popular_lists is not None:
        result |= _list_metrics(ranked.lists, popular_lists, counts, cold)
    elif detailed:
        popular = protocols.rank_targets(
            protocols.most_popular_scorer(counts), evaluation_set, len(counts), **arguments)
        reference = (_user_means(popular, evaluation_set, cutoffs, None, cold)
                     | _list_metrics(popular.lists, popular.lists, counts, cold))
        result |= _list_metrics(ranked.lists, popular.lists, counts, cold)
        result |= {MOST_POPULAR + name: value for name, value in reference.items()}
        result |= _named_histogram("truth/degree_histogram", counts, counts)
    return result


def most_popular_lists(evaluation_set: EvaluationSet, counts: np.ndarray, config: EvaluateConfig) -> np.ndarray:
    """int32 [U,L], what most-popular recommends under the same filter: what a popularity index refers to."""
    return protocols.rank_targets(protocols.most_popular_scorer(counts), evaluation_set, len(counts), full=False,
                                  list_length=config.list_length, filter_seen=config.filter_seen).lists


def check_settings(ks: Sequence[str], candidate_sets: Sequence[str]) -> list[int]:
    """The cut-offs, ascending; `UserError` where --ks or --candidate_sets have none or others than there are."""
    if set(candidate_sets) - set(CANDIDATE_SETS) or not candidate_sets:
        raise UserError(f"--candidate_sets={','.join(candidate_sets)}: choose from {', '.join(CANDIDATE_SETS)}")
    try:
        cutoffs = sorted({int(k) for k in ks})
    except ValueError as error:
        raise UserError(f"--ks={','.join(map(str, ks))}: cut-offs must be integers ({error})") from error
    if not cutoffs or cutoffs[0] < 1:
        raise UserError(f"--ks={','.join(map(str, ks))}: cut-offs must be ≥ 1")
    return cutoffs


def check_model(config: EvaluateConfig, encoder: type, num_intents: int) -> None:
    """`UserError` where --eval_intents asks for more than the H intents of a model, or rankings of one without any."""
    if not config.auc:
        encoder.refuse_search("evaluate ranks the catalogue", "give --auc, which compares pairs")
    if config.eval_intents > num_intents:
        raise UserError(f"--eval_intents={config.eval_intents}: the model has {num_intents} vector"
                        f"{'s' if num_intents > 1 else ''} per user (--num_intents of --model=multi_clrec, --interests "
                        f"of --user_encoder=mind); give at most {num_intents}")


def warn_of_large_cutoffs(config: EvaluateConfig, num_items: int, flag: str = "ks", given: str = "") -> None:
    """Says which cut-offs, by default of --ks, leave no candidate out, so that every known target is a hit."""
    cutoffs = check_settings(config.ks, config.candidate_sets)
    for name in config.candidate_sets:
        candidates = num_items if name == "full" else min(num_items, SIZE + 1)
        large = [str(k) for k in cutoffs if k >= candidates]
        if large:
            logging.warning("--%s=%s: of the %d candidates of /%s at most, %s leave none out: hr@k is the ceiling there "
                            "for every model", flag, given or ",".join(config.ks), candidates, name, ", ".join(large))


def _user_means(ranked, evaluation_set, cutoffs, interval_seed, cold):
    """Means over users of the ranking metrics of every candidate set, with bootstrap intervals if a seed is given."""
    per_user, some_users, groups = {}, {}, []
    targets, splits = evaluation_set.target_ids, evaluation_set.target_splits
    for name, counts in ranked.counts.items():
        next_click = splits[:-1] if name == "full" else slice(None)
        better, tied = counts.better[next_click], counts.tied[next_click]
        per_user |= {f"hr@{k}/{name}": metrics.hit_rate(better, tied, k) for k in cutoffs}
        per_user |= {f"ndcg@{k}/{name}": metrics.ndcg(better, tied, k) for k in cutoffs}
        per_user[f"mrr/{name}"] = metrics.reciprocal_rank(better, tied)
        if name == "full":
            arguments = counts.better, counts.tied, targets, splits
            per_user |= {f"recall@{k}/full": metrics.recall(*arguments, k) for k in cutoffs}
            some_users["recall5@50/full"] = metrics.recall_of_next(*arguments, 50)
            groups = [{f"hr@{k}/full/{group}": per_user[f"hr@{k}/full"][users] for k in cutoffs}
                      for group, users in groups_of(evaluation_set, cold).items() if users.any()]
    result = {name: float(values.mean()) for part in (per_user, *groups) for name, values in part.items()}
    result |= {name: float(values.mean()) for name, values in some_users.items() if len(values)}
    for part in () if interval_seed is None else (per_user, *groups):
        result |= metrics.named_intervals(part, interval_seed)
    return result


def groups_of(evaluation_set, cold=None):
    """Users [U] by whether the history holds the next click, and by whether that is on a cold item, bool [V]."""
    repeated = protocols.is_repeated(evaluation_set)
    groups = dict(new=~repeated, repeated=repeated)
    if cold is not None and cold.any():
        items = evaluation_set.next_clicks
        known = (items > 0) & (items <= len(cold))
        is_cold = known & cold[np.where(known, items - 1, 0)]
        groups |= dict(cold=is_cold, warm=known & ~is_cold)
    return groups


def _facts(ranked, evaluation_set, negatives):
    """What bounds the metrics: targets in the vocabulary, repeated clicks, users with few candidates."""
    result = {}
    splits = evaluation_set.target_splits
    for name, counts in ranked.counts.items():
        known = np.isfinite(counts.better)
        result[f"ceiling/{name}"] = float((known[splits[:-1]] if name == "full" else known).mean())
        if name == "full":
            result["recall_ceiling/full"] = float(metrics.recall(
                np.where(known, 0, np.inf), np.ones(len(known)), evaluation_set.target_ids, splits, 1).mean())
    result["repeated_targets"] = float(groups_of(evaluation_set)["repeated"].mean())
    for name, ids in negatives.items():
        result[f"users_short_of_negatives/{name}"] = int(np.count_nonzero(ids[:, -1] == 0))
    return result


def _list_metrics(lists, popular_lists, counts, cold):
    recommended = metrics.recommendation_counts(lists, len(counts))
    popular = metrics.recommendation_counts(popular_lists, len(counts))
    suffix = f"@{lists.shape[1]}/full"
    values = dict(aggregate_diversity=metrics.aggregate_diversity(recommended), coverage=metrics.coverage(recommended))
    if recommended.any():  # else histories cover the catalogue, as `findings` says
        values |= dict(gini=metrics.gini(recommended),
                       popularity_index=metrics.popularity_index(recommended, popular, counts),
                       arp=metrics.arp(lists, counts), aplt=metrics.aplt(lists, counts))
        if cold is not None and cold.any():
            values["cold_share"] = float(recommended[cold].sum() / recommended.sum())
    return {name + suffix: value for name, value in values.items()} | _named_histogram(
        f"degree_histogram{suffix}", recommended, counts)


def _named_histogram(name, recommended, counts):
    """`name/b` for each bucket b of `metrics.degree_histogram`."""
    return {f"{name}/{bucket}": int(total) for bucket, total in
            enumerate(metrics.degree_histogram(recommended, counts))}


def metrics_table(result: dict, model_name: str = "model") -> str:
    """The metrics as text: one line each, the model beside its references and its bootstrap interval."""
    known = {MOST_POPULAR: "most popular", UNTRAINED: "untrained", **COLD_REFERENCES}
    references = {prefix: title for prefix, title in known.items() if any(name.startswith(prefix) for name in result)}
    lines = [("", model_name, *references.values(), "95 % interval")]
    for name, value in result.items():
        if (name.startswith((*known, "truth/", "degree_histogram")) or name.endswith(("/low", "/high"))
                or "/popularity=" in name or name in ("popularity", "popularity_of")):  # which `curve_table` shows
            continue
        interval = [result.get(f"{name}/{bound}") for bound in ("low", "high")]
        lines.append((name, _text(value), *(_text(result.get(prefix + name)) for prefix in references),
                      f"{interval[0]:.4f} – {interval[1]:.4f}" if None not in interval else ""))
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join([line[0].ljust(widths[0])] + [
        cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]).rstrip() for line in lines)


def _text(value):
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def save_metrics(workdir: str, result: dict) -> str:
    """Writes metrics.json atomically and returns its path."""
    path = os.path.join(workdir, METRICS_FILE)
    save_json(path, result)
    return path
