"""Settings of what a command tells those who operate it: metrics, logs and profiles."""
import dataclasses
import hashlib
import os
import re
from typing import Mapping

from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting

MAX_PORT = 65535
RUN_FOLDERS = ("workdir", "export_dir", "data_dir")


@dataclasses.dataclass(frozen=True)
class OperationsConfig(Section):
    """Metrics, logs and profiles for those who operate a training."""
    metrics_port: int = setting(0,
        "Port at which each role of a training serves metrics for Prometheus at /metrics while it runs (0: none). "
        "Roles on one host, by TF_CONFIG, take this port and those that follow, chief first, then workers, parameter "
        "servers and the evaluator; each logs its own.", lower=0, upper=MAX_PORT)
    metrics_host: str = setting("127.0.0.1", "Address at which --metrics_port listens; 0.0.0.0 in a container.")
    profile_steps: int = setting(20, "Steps of the profile that SIGUSR2 to a training on one machine, or to a chief, "
                                     "writes into WORKDIR/profile.", lower=1)
    log_format: str = setting("text", "Lines on standard error. json: one JSON object a line, with time, severity, "
                                      "message, command, role, index, run_id and step.", choices=("text", "json"))
    run_id: str = setting("",
        "Name of the run in metrics and JSON logs; default: made of --workdir (else --export_dir, --data_dir), so that "
        "all roles and restarts have the same.")

    def __post_init__(self):
        super().__post_init__()
        if not re.fullmatch(r"[\w.:-]{0,100}", self.run_id, re.ASCII):
            raise UserError(f"--run_id={self.run_id}: give at most 100 letters, digits, and of . : _ -")


def run_id_of(settings: Mapping[str, str]) -> str:
    """The name of a run by the first of its folders that is given, `RUN_FOLDERS`; "" where none is.

    It is the folder's own name with 8 digits that tell it from others of that name, as an address of a store too.
    """
    folder = next(filter(None, (settings.get(name) for name in RUN_FOLDERS)), "")
    if not folder:
        return ""
    path = folder.rstrip("/") if "://" in folder else os.path.abspath(os.path.expanduser(folder))
    name = re.sub(r"[^\w.-]", "_", os.path.basename(path), flags=re.ASCII)[:50]
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
