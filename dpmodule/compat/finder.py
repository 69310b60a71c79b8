"""Imports module paths at which no file of this package lies: MXNet's, and namespaces of operators."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from . import lazy
from .import_paths import GATHERED, MOVED, OPERATORS, PATHS
from .star_imports import find

_ROOT = __name__.partition(".")[0]


class _Paths(MetaPathFinder, Loader):
    """Finds the modules of the tables.

    Python asks it first: it would otherwise find the files of a moved package a second time, under the old name.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, name = fullname.partition(".")
        if root != _ROOT or name not in PATHS:
            return None
        return ModuleSpec(fullname, self, is_package=name in GATHERED)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        path = name.partition(".")[2]
        if path in MOVED:  # both names are one module
            sys.modules[name] = import_module(f"{_ROOT}.{MOVED[path]}")
            return
        if path in OPERATORS:
            module.__doc__, table = OPERATORS[path]
            home, _, space = name.rpartition(".")
            functions = import_module(f"{home}.op_functions")
            space = "" if space == "op" else space
            getattribute, shown = lazy.attributes(
                name,
                list(lazy.modules_of(table)),
                table,
                partial(functions.face_of, space),
                home,
                partial(functions.names_in, space),
            )
        else:
            module.__doc__, home, names = GATHERED[path]
            homes = {_shown(each): f".{home}.{each.partition('=')[0]}" for each in names.split()}
            getattribute, shown = lazy.attributes(
                name,
                [each for each in homes if not each.startswith("_")],
                otherwise=partial(_found, homes, name),
            )
        vars(module).update(__getattr__=getattribute, __dir__=shown)


def _shown(path: str) -> str:
    """Return the name under which a module shows what lies at a path of its row."""
    return path.rpartition("=")[2].rpartition(".")[2]


def _found(homes: dict[str, str], owner: str, name: str) -> object:
    if name not in homes:
        raise AttributeError(f"module {owner!r} has no attribute {name!r}")
    return find(homes[name])


def install() -> None:
    """Have Python ask for these paths."""
    if not any(isinstance(each, _Paths) for each in sys.meta_path):
        sys.meta_path.insert(0, _Paths())
