"""This machine: its memory, and GPUs that are there but not seen."""
import glob
import os
from typing import Iterator
from typing import Optional

import tensorflow as tf

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.sizes import shown

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of version 2 and 1
_DEVICES = "/dev/nvidia[0-9]*"


def check_gpus(about: About, product_dtype: str) -> Iterator[Finding]:
    """GPUs that TensorFlow sees, and those that only the system sees."""
    seen, devices = tf.config.list_physical_devices("GPU"), glob.glob(_DEVICES)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen:
        yield about.ok(f"TensorFlow sees {len(seen)} of them")
    elif devices and hidden in ("", "-1"):
        yield about.note(f"CUDA_VISIBLE_DEVICES={hidden} hides {len(devices)} of them",
                         "unset it where they are to be used")
    elif devices:
        yield about.fault(f"the system has {len(devices)} of them, TensorFlow sees none",
                          "install its CUDA libraries (pip install 'tensorflow[and-cuda]' with the constraints), or a "
                          "driver that fits them; set CUDA_VISIBLE_DEVICES= where none is to be used")
    else:
        yield about.ok("there is none: the CPU does the work")
    if not seen and product_dtype != "float32":
        yield about.note(f"--product_dtype={product_dtype} is for GPUs and TensorFlow sees none",
                         "leave it out; on a CPU it is slower")


def check_memory(about: About, need_bytes: int, what: str) -> Iterator[Finding]:
    """Compares a need with this machine's memory, or with the limit that its container has.

    Args:
      about: makes the findings.
      need_bytes: a lower bound.
      what: that needs it.
    """
    total, available = _memory("MemTotal"), _memory("MemAvailable")
    limit = _limit()
    most, whose = (limit, "the container may take") if limit and limit < total else (total, "this machine has")
    text = f"{what} needs at least {shown(need_bytes)}, {whose} {shown(most)}"
    if need_bytes > most:
        yield about.fault(text, "give more memory, spread tables over parameter servers, or lower --embedding_dim")
    elif need_bytes > available:
        yield about.note(f"{text}, of which others use some: {shown(available)} are available", "end what else runs here")
    else:
        yield about.ok(text)


def _memory(name: str) -> int:
    """A figure of /proc/meminfo in bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines[name].split()[0]) * 1024


def _limit() -> Optional[int]:
    """The memory that this container may take, None where nothing limits it."""
    for path in _LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None
