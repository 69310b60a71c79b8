"""``dpmodule check --program``: the lines of an old program that need work, found without running it."""

from __future__ import annotations

import ast
import os
import tokenize
import warnings
from collections.abc import Iterator

from ..base import ArgumentError, FileFormatError
from . import moving

_LARGEST = 2**20
"""Bytes: what is read takes up to a thousand times as much memory."""


def check_program(path: str) -> int:
    """Read the imports and attribute names of a program, and print every line that needs work, and what.

    Returns:
        The exit status: 0 if nothing needs work, 1 if something does.
    """
    names = _Names(_parsed(path))
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


def _parsed(path: str) -> ast.Module:
    if not os.path.isfile(path):
        raise ArgumentError(f"{path}: expected a file of Python, this is a device or a pipe")
    size = os.path.getsize(path)
    if size > _LARGEST:
        raise ArgumentError(f"{path}: {size:,} bytes, expected a program of at most {_LARGEST:,}")
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the program's strings look like is not the question
            return ast.parse(file.read(), path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        raise FileFormatError(f"{path}: this is no Python 3: {place}{why}") from None


class _Names:
    """What the names of a program stand for, and which of them need work."""

    def __init__(self, program: ast.Module) -> None:
        self._nodes = list(ast.walk(program))
        self._paths: dict[str, str] = {}
        self._imports = [node for node in self._nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        for statement in self._imports:
            self._paths.update(_bound(statement))
        imported = [path for statement in self._imports for path, _ in _imported(statement)]
        self.systems = {moving.system_of(path) for path in imported} - {""}
        for node in self._nodes:  # nd = mx.nd
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                path = self._path(node.value)
                if path and moving.find(path).path:
                    self._paths.setdefault(node.targets[0].id, path)

    def problems(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each line that needs work, and what to do."""
        for statement in self._imports:
            yield from ((statement.lineno, text) for text in _import_problems(statement))
        members, inside = moving.members(self.systems), set()
        for node in self._nodes:  # what stands outside comes before its parts
            if not isinstance(node, (ast.Attribute, ast.Name)) or id(node) in inside:
                continue
            path, line = self._path(node), node.end_lineno or node.lineno
            if path and (lacks := moving.find(path).lacks):
                yield line, f"{ast.unparse(node)}: {lacks}"
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


def _imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, ast.alias]]:
    """Return the dotted path of everything that a statement imports; relative ones are nobody's but the program's."""
    if isinstance(node, ast.Import):
        return [(each.name, each) for each in node.names]
    if node.level or not node.module:
        return []
    return [(node.module if each.name == "*" else f"{node.module}.{each.name}", each) for each in node.names]


def _bound(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return the names that a statement makes, and the dotted paths they stand for."""
    found = {}
    for path, each in _imported(node):
        if each.name != "*" and moving.system_of(path):
            is_top = isinstance(node, ast.Import) and each.asname is None
            name = each.name.partition(".")[0] if is_top else each.asname or each.name
            found[name] = name if is_top else path
    return found


def _import_problems(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield what to do about an import: what to write, or why something of it is not here."""
    for path, each in _imported(node):
        if not moving.system_of(path):
            continue
        place = moving.find(path)
        if place.path is None:
            if not path.startswith(
                ("mxnet.gluon", "dpmodule.gluon")
            ):  # may be imported; to use it is the error
                yield f"{path}: {place.lacks}"
            elif path.startswith("mxnet."):
                yield f"import of {path}: write dpmodule{path.removeprefix('mxnet')}"
        elif place.path != path:
            yield f"import of {path}: write {_statement(node, each, place)}"


def _statement(node: ast.Import | ast.ImportFrom, each: ast.alias, place: moving.Place) -> str:
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
