"""Modules that can be called: `clrec_tf.train` is a command's module, and a function of the library too."""
import importlib
import inspect
import sys
import types


class CallableModule(types.ModuleType):
    """A module whose call is that of a function elsewhere, which is imported when it is needed."""

    def __call__(self, *args, **kwargs):
        return self._function()(*args, **kwargs)

    @property
    def __signature__(self):
        return inspect.signature(self._function())

    def _function(self):
        module, name = self.__dict__["_called"]
        return getattr(importlib.import_module(module), name)


def make_callable(name: str, module: str, function: str) -> None:
    """Makes the imported module `name` callable as `function` of `module`."""
    called = sys.modules[name]
    called.__class__, called.__dict__["_called"] = CallableModule, (module, function)
