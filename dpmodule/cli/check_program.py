"""``dpmodule check --program``: the lines of an old program that need work, found without running it."""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import os
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import base
from .._core.import_paths import MOVED
from ..base import ArgumentError, FileFormatError

_MAX_BYTES = 2**20
"""Largest program in bytes; parsing takes up to a thousand times as much memory."""


def check_program(path: str) -> int:
    """Print every line of a program that needs work, and what to do, from its imports and attribute names.

    Returns:
        The exit code: 0 if nothing needs work, else 1.
    """
    names = _ProgramNames(_parse_program(path))
    if not names.systems:
        raise ArgumentError(f"{path}: the program does not import mxnet, dynet, paddle, parlai or dpmodule")
    problems = sorted(set(names.problems()))
    for line, text in problems:
        print(f"{path}:{line}: {text}")
    lines = len({line for line, _ in problems})
    print(
        f"{path}: {lines} {'line needs' if lines == 1 else 'lines need'} work"
        if lines
        else f"{path}: nothing needs work"
    )
    return 1 if problems else 0


def _parse_program(path: str) -> ast.Module:
    if not os.path.isfile(path):
        raise ArgumentError(f"{path}: expected a Python file, got a device or a pipe")
    size = os.path.getsize(path)
    if size > _MAX_BYTES:
        raise ArgumentError(f"{path}: {size:,} bytes, expected a program of at most {_MAX_BYTES:,}")
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the program's strings are not needed
            return ast.parse(file.read(), path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        location = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        raise FileFormatError(f"{path}: not valid Python 3: {location}{reason}") from None


class _ProgramNames:
    """The meanings of the names of a program, and the names that need work."""

    def __init__(self, program: ast.Module) -> None:
        self._nodes = list(ast.walk(program))
        self._paths: dict[str, str] = {}
        self._imports = [node for node in self._nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        for statement in self._imports:
            self._paths.update(_bound_names(statement))
        imported = [path for statement in self._imports for path, _ in _imported_paths(statement)]
        self.systems = {system_of(path) for path in imported} - {""}
        for node in self._nodes:  # nd = mx.nd
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                path = self._path(node.value)
                if path and find_target(path).path:
                    self._paths.setdefault(node.targets[0].id, path)

    def problems(self) -> Iterator[tuple[int, str]]:
        """Yield each line number that needs work, with what to do."""
        for statement in self._imports:
            yield from ((statement.lineno, text) for text in _import_problems(statement))
        members, inside = members_of(self.systems), set()
        for node in self._nodes:  # outer attributes come before their parts
            if not isinstance(node, (ast.Attribute, ast.Name)) or id(node) in inside:
                continue
            path, line = self._path(node), node.end_lineno or node.lineno
            if path and (advice := find_target(path).advice):
                yield line, f"{ast.unparse(node)}: {advice}"
            elif not path and isinstance(node, ast.Attribute) and node.attr in members:
                yield line, f".{node.attr}: {members[node.attr]}"
            while path and isinstance(node, ast.Attribute):
                node = node.value
                inside.add(id(node))

    def _path(self, node: ast.AST) -> str:
        """Return the dotted path of a name or attribute; "" if it is unknown."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._paths:
            return ""
        return ".".join([self._paths[node.id], *reversed(parts)])


def _imported_paths(node: ast.Import | ast.ImportFrom) -> list[tuple[str, ast.alias]]:
    """Return the dotted path of everything that a statement imports, without relative imports."""
    if isinstance(node, ast.Import):
        return [(alias.name, alias) for alias in node.names]
    if node.level or not node.module:
        return []
    return [
        (node.module if alias.name == "*" else f"{node.module}.{alias.name}", alias) for alias in node.names
    ]


def _bound_names(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return the names that a statement binds, and their dotted paths."""
    names = {}
    for path, alias in _imported_paths(node):
        if alias.name != "*" and system_of(path):
            is_top = isinstance(node, ast.Import) and alias.asname is None
            name = alias.name.partition(".")[0] if is_top else alias.asname or alias.name
            names[name] = name if is_top else path
    return names


def _import_problems(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield what to do about an import: the new import, or why a name is missing."""
    for path, alias in _imported_paths(node):
        if not system_of(path):
            continue
        target = find_target(path)
        if target.path is None:
            if not path.startswith(("mxnet.gluon", "dpmodule.gluon")):  # may be imported, but not used
                yield f"{path}: {target.advice}"
            elif path.startswith("mxnet."):
                yield f"import of {path}: write dpmodule{path.removeprefix('mxnet')}"
        elif target.path != path:
            yield f"import of {path}: write {_new_import(node, alias, target)}"


def _new_import(node: ast.Import | ast.ImportFrom, alias: ast.alias, target: NameTarget) -> str:
    """Return the import to write."""
    path = target.path or ""
    if isinstance(node, ast.ImportFrom):
        if alias.name == "*":
            return f"from {path} import {alias.name}"
        module, _, name = path.rpartition(".")
        return f"from {module} import {name}" + (f" as {alias.asname}" if alias.asname else "")
    top = alias.name.partition(".")[0]
    if alias.asname or alias.name == top:
        return f"import {path} as {alias.asname or top}"
    return f"import {path}, and dpmodule for {top}"


_OLD_PACKAGES = {
    "dpmodule.autobatch": "dynet",
    "dpmodule.fluid": "paddle.fluid",
    "dpmodule.agents": "parlai.core",
    "dpmodule": "mxnet",
}
"""Packages of other systems by our package, the longest path first."""

_PACKAGE_OF = {"_dynet": "dynet", "dynet_config": "dynet", "dynet_viz": "dynet"}
"""Systems of further top-level modules."""


@dataclass(frozen=True)
class NameTarget:
    """The counterpart of a name of an old program."""

    path: str | None
    """The path in this package; None if there is no counterpart."""
    advice: str = ""
    """What to do instead; empty if the new path is enough."""
    is_module: bool = False


@cache
def moving_table() -> Mapping[str, Any]:
    """Return the content of ``moving.json``.

    By old path: "moved" has the new module, "absent" the reason why a name was left out, "instead" its replacement;
    "members" has advice on members of objects, by system and name.
    """
    table: Mapping[str, Any] = json.loads(Path(__file__).with_name("moving.json").read_text(encoding="utf-8"))
    return table


def system_of(path: str) -> str:
    """Return the system of a dotted path, "" if it is unknown."""
    top = path.partition(".")[0]
    tops = {name.partition(".")[0] for name in (*moving_table()["moved"], *moving_table()["instead"])}
    return _PACKAGE_OF.get(top, top) if top in tops else ""


def members_of(systems: set[str]) -> dict[str, str]:
    """Return the advice on members of objects, by name, for programs of some systems."""
    members = moving_table()["members"]
    return {
        name: text
        for system in sorted(systems)
        if system in members
        for name, text in members[system].items()
    }


def longest_prefix(path: str, among: Mapping[str, str]) -> str:
    """Return the longest prefix of a dotted path, by whole words, that is in `among`, "" if there is none."""
    while path and path not in among:
        path = path.rpartition(".")[0]
    return path


def advice(path: str) -> str:
    """Return why an old name was left out, and what to use instead."""
    why, instead = (
        longest_prefix(path, moving_table()["absent"]),
        longest_prefix(path, moving_table()["instead"]),
    )
    reasons = [f"left out: {moving_table()['absent'][why]}"] if why else []
    return "; ".join(reasons + ([moving_table()["instead"][instead]] if instead else []))


@cache
def find_target(path: str) -> NameTarget:
    """Return the counterpart of a dotted path of an old program, such as ``mxnet.nd.array``.

    Only this package is imported. Members of names that are neither modules nor classes are not checked, since their
    type is known only at run time.
    """
    start = longest_prefix(path, moving_table()["moved"])
    if not start:
        return NameTarget(None, advice(path))
    new = moving_table()["moved"][start]
    owner: Any = importlib.import_module(new)
    for name in path[len(start) :].split(".")[1:]:
        if not isinstance(owner, (ModuleType, type)):
            break
        member = _member(owner, name)
        if member is None:
            return NameTarget(None, missing_name(owner, name, path)[1])
        owner, new = member[0], f"{new}.{name}"
    if hasattr(owner, "__left_out_path__"):  # may be named but not used, like all of Gluon
        return NameTarget(None, advice(f"mxnet.{owner.__left_out_path__}"))
    return NameTarget(new, is_module=isinstance(owner, ModuleType))


def _member(owner: Any, name: str) -> tuple[Any] | None:
    """Return a member of a module or class, importing submodules; None if there is none."""
    try:
        return (getattr(owner, name),)
    except (AttributeError, base.MXNetError):
        pass
    if not isinstance(owner, ModuleType) or name.startswith("_"):
        return None
    try:
        return (importlib.import_module(f"{owner.__name__}.{name}"),)
    except ImportError:
        return None


def missing_name(owner: Any, name: str, path: str = "") -> tuple[str, str]:
    """Return the old path of a name that a module or class of this package lacks, and what to do instead.

    Args:
        owner: the module or class.
        name: the missing name.
        path: another old path of it.
    """
    parts = [owner.__name__] if isinstance(owner, ModuleType) else [owner.__module__, owner.__qualname__]
    module_path = ".".join(parts)
    start = next((new for new in _OLD_PACKAGES if f"{module_path}.".startswith(f"{new}.")), "dpmodule")
    places = [module_path[len(start) :]]
    places += [f".{old}" for old, new in MOVED.items() if start == "dpmodule" and places[0] == f".{new}"]
    if start != "dpmodule" and isinstance(
        owner, type
    ):  # classes are listed under the package that exports them
        places = [f".{owner.__qualname__}"]
    paths = [f"{_OLD_PACKAGES[start]}{place}.{name}" for place in places]
    near = difflib.get_close_matches(name, dir(owner), 1)
    for old in [*paths, *filter(None, [path])]:
        if text := advice(old):
            is_general = start == "dpmodule.fluid" and old not in moving_table()["instead"]
            return old, f"{text}; the nearest name is {near[0]}" if is_general and near else text
    return paths[0], f"{module_path} has no {name}" + (f", the nearest name is {near[0]}" if near else "")
