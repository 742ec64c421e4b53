"""python -m clrec_tf.debias_proof: proves in small worlds what each loss learns, and that the program's losses do.

  python -m clrec_tf.debias_proof --json=proof.json
  python -m clrec_tf.debias_proof --parts=stochastic --mask_hits     (a planted defect: must fail)

closed_forms: the exact optimum of every loss in worlds whose exposure and relevance are known. stochastic: the same
losses and queues that models train with, trained on a table, beside their closed forms. end_to_end: towers trained from
the logs of larger worlds, with every loss, beside the truth (--flagfile=configs/exposure_world.flags). intents and
weekend: Multi-CLRec's towers where exposure follows intent, and from weekdays to a weekend
(--flagfile=configs/intent_world.flags). Another --seed makes other worlds and draws, and must come to the same
verdicts. Exit code 1: a check failed."""
import dataclasses
import functools

import numpy as np

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import TrainConfig
from clrec_tf.data.schema import save_json
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.children import quiet_about_functions
from clrec_tf.lab.proof import checks as table_checks
from clrec_tf.lab.proof import stochastic
from clrec_tf.lab.proof import table
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator import intents_end_to_end
from clrec_tf.lab.simulator import weekend
from clrec_tf.system import atomic
from clrec_tf.system.versions import versions
from clrec_tf.training.threads import set_threads

EXIT_FAILED = 1


def closed_forms(config: Config):
    """Prints the table; (rows, checks)."""
    evaluated = table.evaluate(config.paths.seed)
    rows = [dict(world=each.name, loss=loss, **columns)
            for each in evaluated for loss, columns in each.measured.items()]
    print_table(("world", "loss", "KL(oracle‖model), nats", "oracle recall@20", "biased recall@20",
                 "agg. diversity@20, items", "pop-AUC"),
                [(row["world"], row["loss"], decimals(row["kl"]), decimals(row["oracle_recall"]),
                  decimals(row["biased_recall"]), str(row["diversity"]), decimals(row["pop_auc"])) for row in rows],
                names=2)
    print("\n" + "\n".join(f"{loss}: {meaning}" for loss, meaning in table.LEGEND.items()))
    return rows, table_checks.all_checks(evaluated)


def trained(config: Config):
    """Trains every loss and prints how near its closed form it came; (rows, checks)."""
    rows, checks = stochastic.run(config.paths.seed, config.proof.mask_hits)
    print_table(("trained loss", "KL(own target‖model), nats", "bound", "KL(oracle‖model), nats", "verdict"),
                [(row["loss"], decimals(row["kl_own_target"], 4), f"{check.relation} {row['bound']:g}",
                  decimals(row["kl_oracle"], 4), verdict(check)) for row, check in zip(rows, checks)], names=1)
    return rows, checks


def towers(run, config: Config):
    """Trains towers on generated logs by `run` and prints them beside the truth; (rows, checks)."""
    rows, checks = run(config)
    length = config.evaluate.list_length
    figures = {f"aggregate_diversity@{length}/full": 0, f"popularity_index@{length}/full": 3, "hr@50/full": 4,
               f"oracle_recall@{length}": 5, f"ctr@{length}": 4, "kl_oracle": 3}
    print_spreads(rows, figures)
    return rows, checks


def weekdays(config: Config):
    """Trains towers on weekdays and prints their hit rates then and at the weekend; (rows, checks)."""
    rows, checks = weekend.run(config)
    print_spreads(rows, weekend.FIGURES)
    return rows, checks


def print_spreads(rows, figures):
    """A line for each world and model: the `figures` (name: decimals) over the seeds."""
    cases = dict.fromkeys((row["world"], row["model"]) for row in rows)
    seeds = {case: [row for row in rows if (row["world"], row["model"]) == case] for case in cases}
    print_table(("world", "model", "seeds", *figures),
                [(*case, str(len(of)), *(spread([row[name] for row in of if name in row], digits)
                                         for name, digits in figures.items())) for case, of in seeds.items()], names=2)


def spread(values: list, digits: int) -> str:
    """The mean, and in brackets the least and the largest where there are several."""
    if not values:
        return ""
    between = f" ({decimals(min(values), digits)}–{decimals(max(values), digits)})" if len(values) > 1 else ""
    return decimals(np.mean(values), digits) + between


# Each prints its table and returns (rows, checks).
PARTS = {"closed_forms": closed_forms, "stochastic": trained, "end_to_end": functools.partial(towers, end_to_end.run),
         "intents": functools.partial(towers, intents_end_to_end.run), "weekend": weekdays}


def decimals(value: float, digits: int = 3) -> str:
    """Fixed decimals, and no "-0.000"."""
    return f"{np.round(value, digits) + 0.0:.{digits}f}"


def verdict(check) -> str:
    """One word."""
    return "ok" if check.passed else "FAILED"


def print_table(header, rows, names):
    """Columns as wide as their widest entry; the first `names` of them to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    print()
    for row in (header, *rows):
        print("  ".join(entry.ljust(width) if place < names else entry.rjust(width)
                        for place, (entry, width) in enumerate(zip(row, widths))))


def prove(config: Config) -> dict:
    """Runs the parts of --parts and prints what they find.

    Returns:
      `rows` by part, `checks` (name, value, relation, bound, passed), whether all `passed`, and what that depends on.

    Raises:
      UserError: there is no part of a name, or --json cannot be written.
    """
    unknown = [name for name in config.proof.parts if name not in PARTS]
    if unknown or not config.proof.parts:
        raise UserError(f"--parts={','.join(config.proof.parts)}: choose from {','.join(PARTS)}")
    if config.benchmark.json:
        atomic.check_file_place(config.benchmark.json, "json")
    quiet_about_functions()
    rows, checks = {}, []
    for name in dict.fromkeys(config.proof.parts):
        rows[name], made = PARTS[name](config)
        checks += made
    print_table(("check", "value", "bound", "verdict"),
                [(c.name, f"{c.value:.3g}", f"{c.relation} {c.bound:g}", verdict(c)) for c in checks], names=1)
    failed = [check.name for check in checks if not check.passed]
    print(f"\n{len(checks) - len(failed)} of {len(checks)} checks hold")
    print("".join(f"FAILED  {name}\n" for name in failed), end="")
    return dict(rows=rows, checks=[dict(dataclasses.asdict(c), passed=c.passed) for c in checks], passed=not failed,
                seed=config.paths.seed, mask_hits=config.proof.mask_hits, versions=versions())


def main(config: Config) -> int:
    """Runs the command."""
    set_threads(TrainConfig(threads=1, parallel_ops=1))  # operations on a table gain nothing from more
    found = prove(config)
    if config.benchmark.json:
        save_json(config.benchmark.json, found)
    return 0 if found["passed"] else EXIT_FAILED


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "proof", "benchmark", "exposure_world", "model", "loss", "train", "evaluate"),
                     usage=__doc__)
