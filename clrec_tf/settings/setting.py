"""What a setting and a section of settings are: default, help, choices and bounds in one place."""
import dataclasses

from clrec_tf.errors import UserError
from clrec_tf.system.local_path import local_path

SEVERAL = "several"  # paths, separated by commas


def setting(default, help, choices=None, lower=None, upper=None,  # pylint: disable=redefined-builtin
            path=False):
    """One setting: default, help text, allowed choices or inclusive numeric bounds, whether it is a `local_path`, or
    `SEVERAL`. Help and choices may be functions of no arguments, for what a registry holds."""
    return dataclasses.field(
        default=default, metadata=dict(help=help, choices=choices, lower=lower, upper=upper, path=path))


def choices_of(field: dataclasses.Field) -> tuple:
    """Values that a setting may have; empty: any."""
    choices = field.metadata["choices"] or ()
    return tuple(choices() if callable(choices) else choices)


def help_of(field: dataclasses.Field) -> str:
    """What a setting does."""
    text = field.metadata["help"]
    return text() if callable(text) else text


class Section:
    """Validates each field against its own choices and bounds; paths are expanded."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, meta = getattr(self, field.name), field.metadata
            if meta["path"]:
                parts = value.split(",") if meta["path"] == SEVERAL else [value]
                object.__setattr__(  # frozen for everybody else
                    self, field.name, ",".join(local_path(part, field.name) for part in parts))
            choices = choices_of(field)
            if choices and value not in choices:
                raise UserError(f"--{field.name}={value}: must be one of {', '.join(map(str, choices))}")
            for bound, broken in (("lower", lambda v, b: v < b), ("upper", lambda v, b: v > b)):
                limit = meta[bound]
                # `value != value` is NaN, which passes every comparison.
                if limit is not None and value is not None and (value != value or broken(value, limit)):
                    raise UserError(f"--{field.name}={value}: must be {'≥' if bound == 'lower' else '≤'} {limit}")

    def check(self, config) -> None:
        """`UserError` where these settings contradict others of the whole configuration."""
