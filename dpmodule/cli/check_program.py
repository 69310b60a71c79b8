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
from ..base import ArgumentError, FileFormatError

_MAX_BYTES = 2**20
"""Bytes: what is read takes up to a thousand times as much memory."""


def check_program(path: str) -> int:
    """Read the imports and attribute names of a program, and print every line that needs work, and what.

    Returns:
        The exit status: 0 if nothing needs work, 1 if something does.
    """
    names = _ProgramNames(_parse_program(path))
    if not names.systems:
        raise ArgumentError(f"{path}: imports none of mxnet, dynet, paddle, parlai and dpmodule")
    found = sorted(set(names.problems()))
    for line, text in found:
        print(f"{path}:{line}: {text}")
    lines = len({line for line, _ in found})
    print(
        f"{path}: {lines} {'line needs' if lines == 1 else 'lines need'} work"
        if lines
        else f"{path}: nothing needs work"
    )
    return 1 if found else 0


def _parse_program(path: str) -> ast.Module:
    if not os.path.isfile(path):
        raise ArgumentError(f"{path}: expected a file of Python, this is a device or a pipe")
    size = os.path.getsize(path)
    if size > _MAX_BYTES:
        raise ArgumentError(f"{path}: {size:,} bytes, expected a program of at most {_MAX_BYTES:,}")
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the program's strings look like is not the question
            return ast.parse(file.read(), path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        raise FileFormatError(f"{path}: this is no Python 3: {place}{why}") from None


class _ProgramNames:
    """What the names of a program stand for, and which of them need work."""

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
        """Yield the number of each line that needs work, and what to do."""
        for statement in self._imports:
            yield from ((statement.lineno, text) for text in _import_problems(statement))
        members, inside = members_of(self.systems), set()
        for node in self._nodes:  # what stands outside comes before its parts
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
        """Return the dotted path that a name, or attributes of one, stand for; "" if that is not known."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._paths:
            return ""
        return ".".join([self._paths[node.id], *reversed(parts)])


def _imported_paths(node: ast.Import | ast.ImportFrom) -> list[tuple[str, ast.alias]]:
    """Return the dotted path of everything that a statement imports; relative ones are nobody's but the program's."""
    if isinstance(node, ast.Import):
        return [(each.name, each) for each in node.names]
    if node.level or not node.module:
        return []
    return [(node.module if each.name == "*" else f"{node.module}.{each.name}", each) for each in node.names]


def _bound_names(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return the names that a statement makes, and the dotted paths they stand for."""
    found = {}
    for path, each in _imported_paths(node):
        if each.name != "*" and system_of(path):
            is_top = isinstance(node, ast.Import) and each.asname is None
            name = each.name.partition(".")[0] if is_top else each.asname or each.name
            found[name] = name if is_top else path
    return found


def _import_problems(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield what to do about an import: what to write, or why something of it is not here."""
    for path, each in _imported_paths(node):
        if not system_of(path):
            continue
        place = find_target(path)
        if place.path is None:
            if not path.startswith(
                ("mxnet.gluon", "dpmodule.gluon")
            ):  # may be imported; to use it is the error
                yield f"{path}: {place.advice}"
            elif path.startswith("mxnet."):
                yield f"import of {path}: write dpmodule{path.removeprefix('mxnet')}"
        elif place.path != path:
            yield f"import of {path}: write {_new_import(node, each, place)}"


def _new_import(node: ast.Import | ast.ImportFrom, each: ast.alias, place: NameTarget) -> str:
    """Return the import to write."""
    path = place.path or ""
    if isinstance(node, ast.ImportFrom):
        if each.name == "*":
            return f"from {path} import {each.name}"
        module, _, name = path.rpartition(".")
        return f"from {module} import {name}" + (f" as {each.asname}" if each.asname else "")
    top = each.name.partition(".")[0]
    if each.asname or each.name == top:
        return f"import {path} as {each.asname or top}"
    return f"import {path}, and dpmodule for {top}"


_OLD_PACKAGES = {
    "dpmodule.autobatch": "dynet",
    "dpmodule.fluid": "paddle.fluid",
    "dpmodule.agents": "parlai.core",
    "dpmodule": "mxnet",
}
"""What a path of this package was called, the longest first."""

_PACKAGE_OF = {"_dynet": "dynet", "dynet_config": "dynet", "dynet_viz": "dynet"}
"""Modules of a system that stand beside its package."""


@dataclass(frozen=True)
class NameTarget:
    """Where a name of an old program is found here."""

    path: str | None
    """The path here, with the package; None where there is nothing."""
    advice: str = ""
    """What to do instead; empty if there is nothing to do but to write the new path."""
    is_module: bool = False


@cache
def moving_table() -> Mapping[str, Any]:
    """Return what ``moving.json`` holds.

    "moved" has where modules went to, "absent" why a name was left out, "instead" what to use for one that is not here,
    all by the old path; "members" has what to do about members of objects, by system and name.
    """
    found: Mapping[str, Any] = json.loads(Path(__file__).with_name("moving.json").read_text(encoding="utf-8"))
    return found


def system_of(path: str) -> str:
    """Return the system that a dotted path belongs to, "" if it is none of these."""
    top = path.partition(".")[0]
    tops = {name.partition(".")[0] for name in (*moving_table()["moved"], *moving_table()["instead"])}
    return _PACKAGE_OF.get(top, top) if top in tops else ""


def members_of(systems: set[str]) -> dict[str, str]:
    """Return what to do about members of objects, by name, for programs of some systems."""
    found = moving_table()["members"]
    return {
        name: text for system in sorted(systems) if system in found for name, text in found[system].items()
    }


def longest_prefix(path: str, among: Mapping[str, str]) -> str:
    """Return the longest beginning of a dotted path, by whole words, that is among some, "" if none is."""
    while path and path not in among:
        path = path.rpartition(".")[0]
    return path


def advice(path: str) -> str:
    """Say what to do about an old name that is not here: why it was left out, and what to use instead."""
    why, instead = (
        longest_prefix(path, moving_table()["absent"]),
        longest_prefix(path, moving_table()["instead"]),
    )
    found = [f"left out: {moving_table()['absent'][why]}"] if why else []
    return "; ".join(found + ([moving_table()["instead"][instead]] if instead else []))


@cache
def find_target(path: str) -> NameTarget:
    """Look up a dotted path of an old program, such as ``mxnet.nd.array``.

    Nothing but this package is imported. What stands behind a name that is neither a module nor a class is not looked
    at, since only a running program knows what it is.
    """
    start = longest_prefix(path, moving_table()["moved"])
    if not start:
        return NameTarget(None, advice(path))
    new = moving_table()["moved"][start]
    owner: Any = importlib.import_module(new)
    for name in path[len(start) :].split(".")[1:]:
        if not isinstance(owner, (ModuleType, type)):
            break
        found = _member(owner, name)
        if found is None:
            return NameTarget(None, _missing_advice(path, owner, name))
        owner, new = found[0], f"{new}.{name}"
    if hasattr(owner, "__left_out_path__"):  # may be named, as all of Gluon, but not used
        return NameTarget(None, advice(f"mxnet.{owner.__left_out_path__}"))
    return NameTarget(new, is_module=isinstance(owner, ModuleType))


def _member(owner: Any, name: str) -> tuple[Any] | None:
    """Return a member of a module or class, which may be a module that has not been imported yet, or None."""
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


def _missing_advice(path: str, owner: Any, name: str) -> str:
    """Say what to do about a name that its module or class here does not have."""
    parts = [owner.__name__] if isinstance(owner, ModuleType) else [owner.__module__, owner.__qualname__]
    here = ".".join(parts)
    start = next((new for new in _OLD_PACKAGES if f"{here}.".startswith(f"{new}.")), "dpmodule")
    old = f"{_OLD_PACKAGES[start]}{here[len(start) :]}.{name}"
    if start != "dpmodule" and isinstance(
        owner, type
    ):  # classes are named by the package that they are taken from
        old = f"{_OLD_PACKAGES[start]}.{owner.__qualname__}.{name}"
    text = advice(old) or advice(path)
    if text:
        return text
    near = difflib.get_close_matches(name, dir(owner), 1)
    return f"{here} has no {name}" + (f", the nearest name is {near[0]}" if near else "")
