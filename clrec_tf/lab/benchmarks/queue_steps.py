"""Training speed on generated ids: queue variants beside what their counts allow, bare operations, and growth."""
import statistics

from absl import logging

from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.counts import bare_step
from clrec_tf.lab.benchmarks.counts import encoded_items
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab.children import in_child

VARIANTS = ("in_batch", "raw", "cached")
COSTLY_HIDDEN = 512
ENCODERS = {"ids": {}, "features": dict(features=True), "costly": dict(content=True)}
TOWERS = ("mean", "multi_att")
DRAWS = ("uniform", "zipf")
FEW_ITEMS, LARGE_QUEUE = 10_000, 65_536
STEPS = 10  # different batches; also the steps per call


def run(config: Config) -> dict:
    """All comparisons.

    Args:
      config: `benchmark` says how much; `model` and `train` are the settings that the cases vary.

    Returns:
      `ratios` (the headline figures), `cases` (each with samples/s, bound, and bare operations), `growth`.

    Raises:
      UserError: settings under which nothing can be compared.
    """
    if config.loss.queue_size >= LARGE_QUEUE:
        raise UserError(f"--queue_size={config.loss.queue_size}: growth is measured up to {LARGE_QUEUE}; choose less")
    clicks = config.train.batch_size * (histories(config)[0] + 1)
    if few_items(config) < clicks:
        remedy = f"give --benchmark_items={2 * clicks} or more, or lower" if clicks <= FEW_ITEMS else "lower"
        raise UserError(f"--benchmark_items={config.benchmark.benchmark_items}: growth is measured from "
                        f"{few_items(config)} items on, which are not the {clicks} distinct ones that a step needs; "
                        f"{remedy} --batch_size or --benchmark_histories")
    cases = []
    for history in histories(config):
        for encoder in ENCODERS:
            for tower in TOWERS:
                measured = in_child(variants, case_config(config, history, user_encoder=tower), encoder)
                for case in measured:
                    log_case(case)
                cases += measured
    growth = {"items": in_child(grow_items, config), "queue": in_child(grow_queue, config)}
    logging.info("growth %s", growth)
    return dict(ratios=headlines(cases, growth, histories(config)), cases=cases, growth=growth,
                rounds=config.benchmark.rounds)


def headlines(cases: list[dict], growth: dict, lengths: list[int]) -> dict[str, float]:
    """The ratios that stand for all: uniform ids, and the mean as query tower where items' encoding is compared.

    The sizes that a growth was measured between stand in its name. `step_time_vs_bare_ops` is that of the default
    model: ids, the longest history, multi-head attention, cached queue.
    """
    by_name = {case["name"]: case for case in cases}
    ratios = {}
    for length in lengths:
        for tower, name in (("mean", "costly"), ("multi_att", "costly_multi_att")):
            case = by_name[f"costly_T{length}_{tower}_uniform"]
            ratios[f"cached_vs_raw_{name}_T{length}"] = case["cached_vs_raw"]
            ratios[f"cached_vs_raw_{name}_T{length}_of_bound"] = case["of_bound"]
    default = by_name[f"ids_T{lengths[-1]}_multi_att_uniform"]
    for part in growth.values():
        small, large = (name.replace("=", "") for name in part["ms_per_step"])
        name = f"step_time_{large}_vs_{small}".replace("V1000000_vs_V10000", "V1e6_vs_V1e4")
        ratios[name] = part["ratio"]
    return ratios | {"step_time_vs_bare_ops": default["variants"]["cached"]["vs_bare_ops"]}


def histories(config: Config) -> list[int]:
    """--benchmark_histories, ascending."""
    try:
        lengths = sorted(int(length) for length in config.benchmark.benchmark_histories)
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1:
        raise UserError(f"--benchmark_histories={','.join(config.benchmark.benchmark_histories)}: must be lengths of "
                        "at least 1, such as 10,50")
    return lengths


def few_items(config: Config) -> int:
    """The smaller catalogue of the comparison of catalogues."""
    return min(FEW_ITEMS, config.benchmark.benchmark_items // 2)


def case_config(config: Config, history: int, **model) -> Config:
    """The settings with a length of history and other changes."""
    return config.but(max_history=history, content_hidden=COSTLY_HIDDEN, steps_per_call=STEPS, **model).without_unread()


def variants(config: Config, encoder: str) -> list[dict]:
    """The three variants on one model, in turn with their bare operations; one case per draw of ids."""
    cases, trainer, tables, history, tower = [], None, {}, config.model.max_history, config.tower.user_encoder
    for draw in DRAWS:
        items = GeneratedItems(config.benchmark.benchmark_items, draw=draw, **ENCODERS[encoder])
        trainer = trainer or Trainer(items, config, VARIANTS)
        batches = draw_batches(items, config, STEPS)
        bare = {kind: bare_step(items, trainer, kind, batches, tables) for kind in VARIANTS}
        calls = {kind: trainer.call(kind, in_turn(batches)) for kind in VARIANTS}
        calls |= {f"{kind} bare": bare[kind].call(STEPS) for kind in VARIANTS}
        seconds = timing.take_turns(calls, config.benchmark.rounds)
        encoded = {kind: encoded_items(items, batches, kind, config.loss.queue_size) for kind in VARIANTS}
        ratio, bound = timing.ratio(seconds, "raw", "cached"), encoded["raw"] / encoded["cached"]
        cases.append(dict(
            name=f"{encoder}_T{history}_{tower}_{draw}", encoder=encoder, user_encoder=tower, history=history,
            draw=draw, items=items.count, batch=config.train.batch_size, queue=config.loss.queue_size,
            cached_vs_raw=round(ratio, 3), bound=round(bound, 3),
            of_bound=round((ratio - 1) / (bound - 1), 3) if bound > 1 else None,
            variants={kind: dict(samples_per_s=samples_per_s(config, seconds[kind]), ms_per_step=ms(seconds[kind]),
                                 bare_ms_per_step=ms(seconds[f"{kind} bare"]), encoded_items=round(encoded[kind], 1),
                                 vs_bare_ops=round(timing.ratio(seconds, kind, f"{kind} bare"), 3),
                                 bare_operations=bare[kind].listed()) for kind in VARIANTS}))
    return cases


def log_case(case: dict) -> None:
    """One line for a case."""
    logging.info("%-30s cached/raw %.2f, items encoded %.2f; samples/s %s; over bare operations %s", case["name"],
                 case["cached_vs_raw"], case["bound"], *({kind: side[figure] for kind, side in case["variants"].items()}
                                                         for figure in ("samples_per_s", "vs_bare_ops")))


def grow_items(config: Config) -> dict:
    """Step time with few and with many items, as many distinct ids in each step."""
    config, sides = case_config(config, histories(config)[0]), {}
    for count in (few_items(config), config.benchmark.benchmark_items):
        items = GeneratedItems(count, draw="distinct")
        sides[f"V={count}"] = Trainer(items, config).call("cached", in_turn(draw_batches(items, config, STEPS)))
    return compared(config, sides)


def grow_queue(config: Config) -> dict:
    """Step time of the cached queue at --queue_size and at `LARGE_QUEUE`."""
    history, sides = histories(config)[0], {}
    items = GeneratedItems(config.benchmark.benchmark_items)
    for capacity in (config.loss.queue_size, LARGE_QUEUE):
        changed = case_config(config, history, queue_size=capacity)
        sides[f"Q={capacity}"] = Trainer(items, changed).call("cached", in_turn(draw_batches(items, changed, STEPS)))
    return compared(case_config(config, history), sides)


def compared(config: Config, sides: dict) -> dict:
    """Two sides in turn: ms per step of each, and the second over the first."""
    seconds = timing.take_turns(sides, config.benchmark.rounds)
    small, large = sides
    milliseconds = {name: ms(seconds[name]) for name in sides}
    return dict(ms_per_step=milliseconds, ratio=round(timing.ratio(seconds, large, small), 3))


def ms(seconds) -> float:
    """Milliseconds per step, median of the calls."""
    return round(1000 * statistics.median(seconds) / STEPS, 3)


def samples_per_s(config: Config, seconds) -> int:
    """Training samples per second, median of the calls."""
    return round(config.train.batch_size * STEPS / statistics.median(seconds))
