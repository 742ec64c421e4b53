"""python -m clrec_tf.debias_proof: proves in small simulations what each loss learns, and that the program's losses do.

  python -m clrec_tf.debias_proof --json=proof.json
  python -m clrec_tf.debias_proof --parts=stochastic --mask_hits     (a planted defect: must fail)

closed_forms: the exact optimum of every loss in simulations of known exposure and relevance. stochastic: the same
losses and queues that models train with, trained on a table, beside their closed forms. end_to_end: towers trained from
the logs of larger simulations, with every loss, beside the truth (--flagfile=configs/exposure_world.flags). intents and
weekend: Multi-CLRec's towers where exposure follows intent, and from weekdays to a weekend
(--flagfile=configs/intent_world.flags). launches: items that nobody has clicked, found by their features, beside what
can be known of them (--flagfile=configs/launches.flags). Another --seed makes other simulations and draws, and must
come to the same verdicts. Exit code 1: a check failed."""
import dataclasses

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import TrainConfig
from clrec_tf.data.schema import save_json
from clrec_tf.errors import UserError
from clrec_tf.lab.children import quiet_about_functions
from clrec_tf.lab.proof.parts import PARTS
from clrec_tf.lab.proof.parts import print_checks
from clrec_tf.system import atomic
from clrec_tf.system.versions import versions
from clrec_tf.training.threads import set_threads

EXIT_FAILED = 1


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
    print_checks(checks)
    return dict(rows=rows, checks=[dict(dataclasses.asdict(check), passed=check.passed) for check in checks],
                passed=all(check.passed for check in checks), seed=config.paths.seed,
                mask_hits=config.proof.mask_hits, versions=versions())


def main(config: Config) -> int:
    """Runs the command."""
    set_threads(TrainConfig(threads=1, parallel_ops=1))  # operations on a table gain nothing from more
    proof = prove(config)
    if config.benchmark.json:
        save_json(config.benchmark.json, proof)
    return 0 if proof["passed"] else EXIT_FAILED


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "proof", "benchmark", "exposure_world", "model", "loss", "train", "evaluate"),
                     usage=__doc__)
