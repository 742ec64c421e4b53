"""Which settings a day can follow."""
import re

from clrec_tf.config import Config
from clrec_tf.days.history import HISTORY_FILE
from clrec_tf.days.history_figure import FIGURE_FILE
from clrec_tf.days.one_daily import LOCK_FILE
from clrec_tf.errors import UserError
from clrec_tf.stores.lease import NAME as LEASE_FILE

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_OTHERS = ("export", HISTORY_FILE, FIGURE_FILE, LOCK_FILE, LEASE_FILE)  # what else stands beside the days
_CHECKPOINTS = ("best", "latest")


def check_settings(config: Config, day: str) -> None:
    """`UserError` where a flag is none that daily can follow."""
    config.encoder_class.refuse_search("daily publishes what it trains")
    if not _NAME.fullmatch(day) or day in _OTHERS:
        raise UserError(f"--day={day} must be a name of letters, digits, dots and hyphens, such as 2026-11-29, and "
                        f"none of {', '.join(_OTHERS)}")
    for flag, value in (("vocabulary_from", config.prepare.vocabulary_from), ("init_from", config.train.init_from)):
        if value:
            raise UserError(f"--{flag}={value}: daily takes the last published day of --days_dir; leave --{flag} out")
    if config.prepare.dry_run:
        raise UserError("--dry_run: daily trains on what it prepares; look at the data with python -m clrec_tf.prepare "
                        "--dry_run")
    _check_checkpoints(config.evaluate.eval_checkpoint, config.export.export_checkpoint)


def _check_checkpoints(judged: str, published: str) -> None:
    """`UserError` where another model would be published than --gate has judged."""
    if judged not in _CHECKPOINTS or judged != published:
        raise UserError(f"--eval_checkpoint={judged} and --export_checkpoint={published}: daily publishes what --gate has "
                        f"judged, so both must be {' or both '.join(_CHECKPOINTS)}")
