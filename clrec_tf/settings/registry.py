"""Implementations by the names that a flag chooses them with, and the settings that stand beside each.

A registry is the only list of its names: flags with their help, refusals, documents, proofs and benchmarks read it. An
implementation is a class with `Settings`, a frozen dataclass of ``setting`` fields, and `summary`, a phrase for --help.
"""
import dataclasses
from typing import Callable

from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section

TYPES = (bool, int, float, str, tuple[str, ...])  # of settings


class Registry:
    """Classes by name.

    Args:
      flag: that chooses among them.
    """

    def __init__(self, flag: str):
        self.flag, self._classes = flag, {}

    def register(self, name: str, tower: str = "") -> Callable[[type], type]:
        """Decorator: the class becomes what `flag` calls `name`.

        Args:
          name: as users give it.
          tower: the one --model that takes this class under this name; "": every one without a class of its own.

        Raises:
          ValueError: the name is taken, the class has no settings, or one that cannot be a flag or that another class
            defines differently.
        """
        def add(cls):
            if (name, tower) in self._classes:
                raise ValueError(f"--{self.flag}={name} is registered twice: {self._classes[name, tower]} and {cls}")
            known = {name: field for registry in (self, *_ALL) for name, field in registry.fields().items()}
            for field in _checked_fields(cls):
                if field.name in known and _facts(known[field.name]) != _facts(field):
                    raise ValueError(f"--{field.name} of {cls} is another setting than the one of that name: share its "
                                     "definition, or choose another name")
            cls.registered_name, self._classes[name, tower] = name, cls
            return cls
        return add

    def unregister(self, name: str, tower: str = "") -> None:
        """Takes a class out again, for tests and notebooks that define it anew."""
        del self._classes[name, tower]

    def names(self) -> tuple[str, ...]:
        """What users may give, in the order of registration; not what only one tower has, which chooses it itself."""
        return tuple(name for name, tower in self._classes if not tower)

    def get(self, name: str, tower: str = "") -> type:
        """The class of a name for a tower; `UserError` where there is none."""
        cls = self._classes.get((name, tower)) or self._classes.get((name, ""))
        if cls is None:
            raise UserError(f"--{self.flag}={name}" + (f" with --model={tower}" if name in self.names() else "") +
                            f": must be one of {', '.join(self.names())}")
        return cls

    def classes(self) -> dict[tuple[str, str], type]:
        """(name, tower) -> class."""
        return dict(self._classes)

    def fields(self) -> dict[str, dataclasses.Field]:
        """Settings of all classes by name."""
        return {field.name: field for cls in self._classes.values() for field in dataclasses.fields(cls.Settings)}

    def owners(self, setting: str) -> list[str]:
        """Names of the classes that read a setting."""
        return list(dict.fromkeys(name for (name, _), cls in self._classes.items()
                                  if setting in {field.name for field in dataclasses.fields(cls.Settings)}))

    def help(self) -> str:
        """What each name stands for."""
        return " ".join(f"{name}: {self._classes[name, ''].summary}" for name in self.names())


def _checked_fields(cls) -> tuple[dataclasses.Field, ...]:
    """The settings of a class; `ValueError` where they cannot be flags."""
    settings = getattr(cls, "Settings", type(None))
    if not issubclass(settings, Section) or "__dataclass_fields__" not in vars(settings):
        raise ValueError(f"{cls} needs Settings, a frozen dataclass that is a settings.setting.Section")
    for field in dataclasses.fields(settings):
        if "help" not in field.metadata:
            raise ValueError(f"{field.name} of {settings} must be made by settings.setting.setting")
        if field.type not in TYPES:
            raise ValueError(f"--{field.name} of {settings} has the type {field.type}: a flag is one of bool, int, float, "
                             "str and tuple[str, ...]")
    try:
        settings()
    except UserError as error:
        raise ValueError(f"defaults of {settings}: {error}") from error
    return dataclasses.fields(settings)


def _facts(field):
    return field.type, field.default, dict(field.metadata)


TOWERS, ENCODERS, LOSSES = Registry("model"), Registry("user_encoder"), Registry("loss")
PRETEXTS = Registry("pretext")
_ALL = (TOWERS, ENCODERS, LOSSES, PRETEXTS)  # whose settings are flags side by side
