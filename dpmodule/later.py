"""Attributes that are imported or made when they are first asked for: of packages (PEP 562), and methods of classes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["Method", "attributes", "modules_of"]


def modules_of(table: Mapping[str, str]) -> dict[str, str]:
    """Return the module of every name in a table of modules and the names they define, with blanks between."""
    return {name: module for module, names in table.items() for name in names.split()}


def attributes(
    owner: str,
    table: Mapping[str, str],
    otherwise: Callable[[str], Any] | None = None,
    package: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package some of whose modules are imported late.

    Args:
        owner: its ``__name__``.
        table: modules, and the names that each of them gives the package, with blanks between. They are attributes of
            their package themselves.
        otherwise: returns an attribute that is not in the table, or raises AttributeError (default: that).
        package: what the modules are in (default: `owner`).

    Example:
        >>> __getattr__, __dir__ = attributes("dpmodule.io", {"text": "CSVIter LibSVMIter"})
        >>> __getattr__("CSVIter").__module__
        'dpmodule.io.text'
    """
    homes = modules_of(table)
    parts = frozenset(table) if package is None else frozenset()
    home = package or owner

    def getattribute(name: str) -> Any:
        if name in parts:
            return import_module(f"{home}.{name}")
        if name in homes:
            found = getattr(import_module(f"{home}.{homes[name]}"), name)
        elif otherwise is not None:
            found = otherwise(name)
        else:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        setattr(sys.modules[owner], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[owner]), *homes, *parts})

    return getattribute, names


class Method:
    """A method that is made when it is first looked up, and then takes the place of this.

    Args:
        home: the class it belongs to.
        name: its name there.
        make: returns the function.
    """

    def __init__(self, home: type, name: str, make: Callable[[], Callable[..., Any]]) -> None:
        self._home, self._name, self._make = home, name, make

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function: Any = self._make()
        setattr(self._home, self._name, function)
        return function.__get__(instance, owner)
