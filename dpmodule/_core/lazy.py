"""Lazy attributes of public modules (PEP 562) and classes.

It also provides module paths without a file: those of MXNet, and namespaces of operators.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Any

from .import_paths import GATHERED, MOVED, OPERATORS, PATHS, find, paths

_ROOT = __name__.partition(".")[0]


def modules_of(table: Mapping[str, str]) -> dict[str, str]:
    """Return the module of every name in a table of modules and their space-separated names."""
    return {name: module for module, names in table.items() for name in names.split()}


def public_names(names: Mapping[str, object]) -> list[str]:
    """Return the ``__all__`` of a module that only re-exports names.

    Submodules are left out.

    Args:
        names: its ``vars()`` after all imports.
    """
    return [
        name for name, value in names.items() if not (name.startswith("_") or isinstance(value, ModuleType))
    ]


def own_names(names: Mapping[str, object]) -> list[str]:
    """Return the ``__all__`` of a module that shows all functions and classes that it defines.

    Args:
        names: its ``vars()`` after all definitions.
    """
    owner = names["__name__"]
    return [
        name
        for name, value in names.items()
        if not name.startswith("_") and getattr(value, "__module__", None) == owner
    ]


def attributes(
    owner: str,
    shown: list[str],
    table: Mapping[str, str] = MappingProxyType({}),
    otherwise: Callable[[str], Any] | None = None,
    package: str | None = None,
    operators: Callable[[], Iterable[str]] = tuple,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a public module.

    The first finds names that are imported late, and names that MXNet's module of this path imports itself (see
    `import_paths`). The second lists the module's own public names only.

    Args:
        owner: its ``__name__``.
        shown: its ``__all__``. A star import also brings operators, which may be added later, and the imports of
            MXNet's module.
        table: modules and the space-separated names that each of them defines. The modules are attributes of their
            package themselves.
        otherwise: returns any other attribute, or raises AttributeError (default: raise).
        package: package of the modules (default: `owner`).
        operators: returns the names of operators in the module.

    Example:
        >>> __getattr__, __dir__ = attributes("dpmodule.io", ["CSVIter"], {"text": "CSVIter LibSVMIter"})
        >>> __getattr__("CSVIter").__module__
        'dpmodule.io.text'
        >>> [name for name in __dir__() if not name.startswith("__")]
        ['CSVIter']
    """
    homes = modules_of(table)
    submodules = frozenset(table) if package is None else frozenset()
    home = package or owner
    prefix = "".join(f"{each}." for each in owner.split(".")[1:])
    borrowed = paths(owner)
    vars(sys.modules[owner]).pop("__all__", None)  # so that `getattribute` is asked for it

    def found(name: str) -> Any:
        if name == "__all__":
            return sorted({*shown, *operators(), *borrowed})
        if name in submodules:
            return import_module(f"{home}.{name}")
        if f"{prefix}{name}" in PATHS:
            return import_module(f"{owner}.{name}")
        if name in homes:
            value = getattr(import_module(f"{home}.{homes[name]}"), name)
        elif name in borrowed:
            value = find(borrowed[name])
        elif otherwise is not None:
            value = otherwise(name)
        else:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        setattr(sys.modules[owner], name, value)
        return value

    def names() -> list[str]:
        marks = (name for name in vars(sys.modules[owner]) if name.startswith("__"))
        return sorted({*shown, *operators(), *marks})

    return _explained(owner, found), names


def _explained(owner: str, found: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return ``__getattr__`` of a module, whose errors are those of `explain_missing` if it was called."""

    def getattribute(name: str) -> Any:
        try:
            return found(name)
        except AttributeError:
            explain = _explain[-1] if _explain else _explanation(owner)
            if explain is not None:
                explain(sys.modules[owner], name)
            raise

    return getattribute


def publish(owner: str, shown: list[str]) -> None:
    """Set ``__dir__`` of a public module without late imports, and ``__getattr__`` if it needs one.

    Type checkers do not see them and still report unknown names. A module needs ``__getattr__`` if its star import
    brings more than its own names, see `attributes`; without one, attribute access takes half the time.

    Args:
        owner: its ``__name__``.
        shown: its ``__all__``.
    """
    getattribute, names = attributes(owner, shown)
    found: dict[str, Any] = {"__getattr__": getattribute} if paths(owner) else {"__all__": sorted({*shown})}
    if _explanation(owner) is not None:
        found["__getattr__"] = getattribute
    elif not paths(owner):
        _getattr_if_explained[owner] = getattribute
    vars(sys.modules[owner]).update(found, __dir__=names)
    _add_explained()


def _explanation(owner: str) -> Callable[[ModuleType, str], None] | None:
    """Return what explains missing names of a module without `explain_missing`, None for most modules."""
    if not f"{owner}.".startswith(f"{_ROOT}.fluid."):
        return None

    def explain(module: ModuleType, name: str) -> None:
        import_module(f"{_ROOT}.as_mxnet").explain_missing_name(module, name, depth=3)

    return explain


_explain: list[Callable[[ModuleType, str], None]] = []
_getattr_if_explained: dict[str, Callable[[str], Any]] = {}


def explain_missing(explain: Callable[[ModuleType, str], None]) -> None:
    """Let a function explain errors about names that public modules do not have.

    Args:
        explain: is called with the module and the name, and raises a better error.
    """
    _explain[:] = [explain]
    _add_explained()


def _add_explained() -> None:
    """Give ``__getattr__`` to modules that otherwise do without it."""
    while _explain and _getattr_if_explained:
        owner, getattribute = _getattr_if_explained.popitem()
        vars(sys.modules[owner])["__getattr__"] = getattribute


class Method:
    """A method that is created at its first use and then replaces this descriptor."""

    def __init__(self, home: type, name: str, make: Callable[[], Callable[..., Any]]) -> None:
        self._home, self._name, self._make = home, name, make

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function: Any = self._make()
        setattr(self._home, self._name, function)
        return function.__get__(instance, owner)


class _Paths(MetaPathFinder, Loader):
    """Importer of the modules in the tables of `import_paths`.

    It comes first: Python would otherwise import the files of a moved package again under the old name.
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
            getattribute, shown = attributes(
                name,
                list(modules_of(table)),
                table,
                partial(functions.op_function_in, space),
                home,
                partial(functions.names_in, space),
            )
        else:
            module.__doc__, home, names = GATHERED[path]
            homes = {_shown(each): f".{home}.{each.partition('=')[0]}" for each in names.split()}
            getattribute, shown = attributes(
                name,
                [each for each in homes if not each.startswith("_")],
                otherwise=partial(_found, homes, name),
            )
        vars(module).update(__getattr__=getattribute, __dir__=shown)


def _shown(path: str) -> str:
    """Return the name under which a module exports a path of its row."""
    return path.rpartition("=")[2].rpartition(".")[2]


def _found(homes: dict[str, str], owner: str, name: str) -> object:
    if name not in homes:
        raise AttributeError(f"module {owner!r} has no attribute {name!r}")
    return find(homes[name])


def install_paths() -> None:
    """Install the importer."""
    if not any(isinstance(each, _Paths) for each in sys.meta_path):
        sys.meta_path.insert(0, _Paths())
