"""The parts of the proof: each runs, prints its table and gives (rows, checks)."""
import functools

from clrec_tf.config import Config
from clrec_tf.lab.checks import Check
from clrec_tf.lab.proof import optima
from clrec_tf.lab.proof import stochastic
from clrec_tf.lab.proof import table_checks
from clrec_tf.lab.simulator import contexts
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator import intents_end_to_end
from clrec_tf.lab.simulator import launches_end_to_end
from clrec_tf.lab.simulator import weekend
from clrec_tf.lab.text_tables import decimals
from clrec_tf.lab.text_tables import print_table
from clrec_tf.lab.text_tables import spread


def closed_forms(config: Config):
    """Prints the table; (rows, checks)."""
    evaluated = optima.evaluate(config.paths.seed)
    rows = [dict(world=each.name, loss=loss, **columns)
            for each in evaluated for loss, columns in each.measured.items()]
    print_table(("world", "loss", "KL(oracle‖model), nats", "oracle recall@20", "biased recall@20",
                 "agg. diversity@20, items", "pop-AUC"),
                [(row["world"], row["loss"], decimals(row["kl"]), decimals(row["oracle_recall"]),
                  decimals(row["biased_recall"]), str(row["diversity"]), decimals(row["pop_auc"])) for row in rows],
                names=2)
    print("\n" + "\n".join(f"{loss}: {meaning}" for loss, meaning in optima.LEGEND.items()))
    return rows, table_checks.all_checks(evaluated)


def trained_tables(config: Config):
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


def launched(config: Config):
    """Trains towers on a log before items are launched and prints how they are found afterwards; (rows, checks)."""
    rows, checks = launches_end_to_end.run(config)
    print_spreads(rows, launches_end_to_end.FIGURES)
    return rows, checks


PARTS = {
    "closed_forms": closed_forms,
    "stochastic": trained_tables,
    "end_to_end": functools.partial(towers, end_to_end.run),
    "intents": functools.partial(towers, intents_end_to_end.run),
    "weekend": weekdays,
    "contexts": functools.partial(towers, contexts.run),
    "launches": launched,
}


def print_spreads(rows, figures):
    """A line for each simulation and model: the `figures` (name: decimals) over the seeds."""
    cases = dict.fromkeys((row["world"], row["model"]) for row in rows)
    by_case = {case: [row for row in rows if (row["world"], row["model"]) == case] for case in cases}
    print_table(("world", "model", "seeds", *figures),
                [(*case, str(len(seeds)), *(spread([row[name] for row in seeds if name in row], digits)
                                            for name, digits in figures.items()))
                 for case, seeds in by_case.items()], names=2)


def print_checks(checks: list[Check]) -> None:
    """Every check with its verdict, then how many hold and which do not."""
    print_table(("check", "value", "bound", "verdict"),
                [(check.name, f"{check.value:.3g}", f"{check.relation} {check.bound:g}", verdict(check))
                 for check in checks], names=1)
    failed = [check.name for check in checks if not check.passed]
    print(f"\n{len(checks) - len(failed)} of {len(checks)} checks hold")
    print("".join(f"FAILED  {name}\n" for name in failed), end="")


def verdict(check: Check) -> str:
    """One word."""
    return "ok" if check.passed else "FAILED"
