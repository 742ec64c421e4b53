"""What a setting and a section of settings are: default, help, choices and bounds in one place."""
import dataclasses

from clrec_tf.errors import UserError
from clrec_tf.system.local_path import local_path

SEVERAL = "several"  # paths, separated by commas


def setting(default, help, choices=None, lower=None, upper=None,  # pylint: disable=redefined-builtin
            path=False):
    """One setting: default, help text, allowed choices or inclusive numeric bounds, whether it is a `local_path`, or
    `SEVERAL`."""
    return dataclasses.field(
        default=default, metadata=dict(help=help, choices=choices, lower=lower, upper=upper, path=path))


class Section:
    """Validates each field against its own choices and bounds; paths are expanded."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, meta = getattr(self, field.name), field.metadata
            if meta["path"]:
                parts = value.split(",") if meta["path"] == SEVERAL else [value]
                object.__setattr__(  # frozen for everybody else
                    self, field.name, ",".join(local_path(part, field.name) for part in parts))
            if meta["choices"] and value not in meta["choices"]:
                raise UserError(f"--{field.name}={value}: must be one of {', '.join(map(str, meta['choices']))}")
            for bound, broken in (("lower", lambda v, b: v < b), ("upper", lambda v, b: v > b)):
                limit = meta[bound]
                # `value != value` is NaN, which passes every comparison.
                if limit is not None and value is not None and (value != value or broken(value, limit)):
                    raise UserError(f"--{field.name}={value}: must be {'≥' if bound == 'lower' else '≤'} {limit}")
