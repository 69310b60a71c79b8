"""What stands in the place of Gluon's modules, classes and functions, and says so when one is made or called."""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from ..base import MXNetError
from .names import MODULES

__all__ = ["AbsentType", "absent_from", "add_modules", "names_of"]

_ROOT = __package__


class AbsentType(ABCMeta):
    """The type of classes that stand for something of Gluon.

    Programs may name them, derive from them, decorate what derives from them, and ask `isinstance`: a program that
    defines a network once for Gluon and once as a symbol does all that before it uses either. Making an object, or
    calling what stands for a function, raises.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise; nothing is there to be made or called."""
        own = next(base for base in cls.__mro__ if "__absent_path__" in vars(base))
        what = vars(own)["__absent_path__"] + ("" if own is cls else f", from which {cls.__name__} derives,")
        raise MXNetError(
            f"{what} is not available: Gluon is not part of this package; use torch.nn, which takes its place, "
            "or mx.mod.TorchModule to train a torch module like a symbol"
        )

    def __getattr__(cls, name: str) -> AbsentType:
        if name.startswith("__") or "__absent_path__" not in vars(cls):
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        return _absent(f"{vars(cls)['__absent_path__']}.{name}")


@cache
def _absent(path: str) -> AbsentType:
    place, _, name = path.rpartition(".")
    bases = (MXNetError,) if name.endswith("Error") else ()  # so that it may stand behind `except`
    return AbsentType(name, bases, {"__module__": place, "__absent_path__": path})


_HOMES = {
    name: f"gluon.{package}" if package else "gluon"
    for package, modules in reversed(MODULES.items())
    for text in modules.values()
    for name in text.split()
}
"""Where a name that several modules have is said to be missing from, so that it is one class in all of them."""


def absent_from(place: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that lets every unknown name be reached, but not used.

    Args:
        place: the module's path as programs write it, such as ``gluon.utils``.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # what the import system and tools look for
            raise AttributeError(name)
        return _absent(f"{_HOMES.get(name, place)}.{name}")

    return get


def names_of(package: str) -> list[str]:
    """Return the names of MXNet's that a package of Gluon lacks here, those of its modules too; "" is Gluon itself."""
    return sorted(name for text in MODULES[package].values() for name in text.split())


def add_modules() -> None:
    """Make the modules of Gluon that are not here importable, each with stand-ins for its names."""
    for package, modules in MODULES.items():
        if package:
            _module(package, names_of(package))
        for name, text in modules.items():
            if name:
                _module(f"{package}.{name}".lstrip("."), text.split())


def _module(path: str, names: list[str]) -> None:
    """Make a module, with the packages it is in, unless it is there."""
    full = f"{_ROOT}.{path}"
    if full in sys.modules:
        return
    above, _, name = path.rpartition(".")
    if above:
        _module(above, [])
    made = ModuleType(full, f"Stands for MXNet's gluon.{path}, which is not part of this package.")
    made.__spec__ = ModuleSpec(full, None, is_package=True)
    made.__path__, made.__package__ = [], full
    shown = sorted(names)
    vars(made).update(__getattr__=absent_from(f"gluon.{path}"), __all__=shown, __dir__=shown.copy)
    sys.modules[full] = made
    parent = sys.modules[f"{_ROOT}.{above}".rstrip(".")]
    setattr(parent, name, made)
    if parent.__spec__ is not None and parent.__spec__.loader is None:  # made here too
        parent.__all__.append(name)
