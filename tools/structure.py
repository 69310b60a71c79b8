"""Structure of a package from its sources: classes, their attributes, imports, types, lines of code.

Nothing is imported, so any revision can be analysed. `tools/sizes.py` prints the figures, `tests/test_structure.py`
checks them.
"""

from __future__ import annotations

import ast
import builtins
import gc
import io
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from class_source import Class, classes_in, read_class, statements, values_used
from module_source import Module

__all__ = ["Package", "SingleUse", "sources_at", "sources_in"]

PLAIN_BASES = {"abc.ABC", "typing.Protocol", "typing.Generic", *dir(builtins)}
"""Bases outside the package, whose attributes `dir` lists."""


def sources_in(root: Path, *folders: str) -> dict[str, str]:
    """Return path -> text of the Python files of folders, with paths relative to `root`."""
    files = (path for folder in folders for path in sorted((root / folder).rglob("*.py")))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}


def sources_at(root: Path, revision: str, *folders: str) -> dict[str, str]:
    """Return path -> text of the Python files of folders in a revision, without a checkout.

    Raises:
        subprocess.CalledProcessError: the revision or folder does not exist.
    """
    line = ["git", "-C", str(root), "archive", "--format=tar", revision, "--", *folders]
    packed = subprocess.run(line, capture_output=True, check=True).stdout
    sources = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                sources[member.name] = file.read().decode("utf-8")
    return sources


@dataclass(frozen=True, order=True)
class SingleUse:
    """A class with exactly one subclass that is never made.

    Attributes:
        name: the class.
        subclass: its subclass.
        is_public: True if a public module lists it.
    """

    name: str
    subclass: str
    is_public: bool


class Package:
    """All modules of a package, its classes and its imports.

    Args:
        sources: path -> text.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        is_collecting = gc.isenabled()
        gc.disable()  # it would repeatedly scan a million nodes, all of which are kept
        try:
            found = [Module(path, text) for path, text in sources.items()]
        finally:
            if is_collecting:
                gc.enable()
        self.modules = {module.name: module for module in found}

    def resolve(self, name: str) -> str:
        """Return the full name of a definition, following imports and tables of `lazy`."""
        seen = set()
        while name not in seen:
            seen.add(name)
            names = name.split(".")
            sizes = (size for size in range(len(names) - 1, 0, -1) if ".".join(names[:size]) in self.modules)
            size = next(sizes, None)
            if size is None or name in self.modules:
                return name
            module, first = self.modules[".".join(names[:size])], names[size]
            target = module.late.get(first) or module.names.get(first)
            if target is not None:
                name = ".".join([target, *names[size + 1 :]])
        return name

    # imports

    @cached_property
    def edges(self) -> dict[str, set[str]]:
        """All imports of every module; the name of a package means its ``__init__``."""
        return {
            name: {home for target in module.imports if (home := self._home(target)) not in (None, name)}
            for name, module in self.modules.items()
        }

    def _home(self, target: str) -> str | None:
        """Return the module of an import; for a re-exported name, the module that defines it."""
        if target in self.modules:
            return target
        parent, _, name = target.rpartition(".")
        module = self.modules.get(parent)
        if module is None or not module.is_package:
            return parent if module else None
        onward = module.late.get(name) or module.names.get(name)
        if onward is None:
            return None  # compiled
        return self._home(onward) if onward.startswith(f"{parent}.") and onward != target else parent

    def circles(self) -> dict[str, list[list[str]]]:
        """Return, by package, groups of its modules and subpackages that import each other in circles.

        The code of the package is called ``__init__``.
        """
        packages = [name for name, module in self.modules.items() if module.is_package]
        found = {name: _components(self._siblings(name)) for name in packages}
        return {name: groups for name, groups in found.items() if groups}

    def _siblings(self, package: str) -> dict[str, set[str]]:
        """Return the imports among the children of a package."""
        siblings: dict[str, set[str]] = defaultdict(set)
        for name, targets in self.edges.items():
            importer = _child(package, name)
            if importer is not None:
                siblings[importer] |= {_child(package, target) for target in targets} - {None, importer}
        return siblings

    # annotations

    def bare_any(self, home: str) -> tuple[int, int]:
        """Return the numbers of parameters of a package annotated with `Any` alone, and annotated at all.

        `*args` and `**kwargs` are left out, as they are usually passed to an operator.
        """
        of_home = (each for each in self.modules.values() if f"{each.name}.".startswith(f"{home}."))
        found = [each.is_any(annotation) for each in of_home for annotation in each.annotations]
        return sum(found), len(found)

    # classes

    @cached_property
    def classes(self) -> dict[str, Class]:
        """Classes by full name."""
        classes = {
            name: read_class(name, node, module.full_name)
            for module in self.modules.values()
            for name, node in classes_in(module.name, module.tree.body)
        }
        for each in classes.values():
            each.bases = [self.resolve(base) for base in each.bases]
        for module in self.modules.values():
            self._read_gifts(module, classes)
        return classes

    def _read_gifts(self, module: Module, classes: Mapping[str, Class]) -> None:
        """Record attributes that a module sets on classes from outside."""
        for node in statements(module.tree.body):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Attribute):
                    owner = classes.get(self.resolve(module.full_name(target.value)))
                    if owner is not None:
                        owner.give(target.attr, node.value)

    def made(self, names: Iterable[str]) -> set[str]:
        """Return the classes that the package instantiates, registers, or passes to other code."""
        used = {name for name in names if self.classes[name].is_registered}
        short = {name.rpartition(".")[2] for name in names}
        for module in self.modules.values():
            if any(each in module.text for each in short):
                used.update(self.resolve(module.full_name(each)) for each in values_used(module.tree))
        return used.intersection(names)

    @cached_property
    def public(self) -> set[str]:
        """Full names of public names."""
        modules = [module for module in self.modules.values() if module.is_public]
        return {self.resolve(f"{module.name}.{name}") for module in modules for name in module.shown}

    def single_use_bases(self) -> list[SingleUse]:
        """Return the classes with exactly one subclass that are never instantiated, except protocols."""
        below: dict[str, list[str]] = defaultdict(list)
        for each in self.classes.values():
            for base in each.bases:
                below[base].append(each.name)
        alone = {name: below[name][0] for name in self.classes if len(below[name]) == 1}
        made = self.made(alone)
        return sorted(
            SingleUse(name, subclass, name in self.public)
            for name, subclass in alone.items()
            if name not in made and "typing.Protocol" not in self.classes[name].bases
        )

    def several_meanings(self) -> dict[str, list[str]]:
        """Return the class names that several modules define, with the classes."""
        meanings: dict[str, list[str]] = defaultdict(list)
        for module in self.modules.values():
            names = {name.rpartition(".")[2]: name for name, _ in classes_in(module.name, module.tree.body)}
            for short, name in names.items():
                meanings[short].append(name)
        return {short: names for short, names in sorted(meanings.items()) if len(names) > 1}

    def family(self, name: str) -> list[Class] | None:
        """Return a class and all its bases; None if an unknown one is outside the package."""
        members: dict[str, Class] = {}
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in self.classes:
                members[each] = self.classes[each]
                waiting += (base for base in members[each].bases if base not in members)
            elif each not in PLAIN_BASES:
                return None
        return list(members.values())

    def unset_reads(self) -> dict[str, dict[str, int]]:
        """Return, by class, the attributes that its methods read but it and its bases never set, with lines.

        A declaration without a value, a slot, and None alone set nothing. Classes with an unknown base outside the
        package, or with a ``__getattr__`` that does not only raise, are skipped.
        """
        found = {name: self._unset(each) for name, each in self.classes.items()}
        return {name: reads for name, reads in found.items() if reads}

    def _unset(self, each: Class) -> dict[str, int]:
        family = self.family(each.name)
        if family is None or any(one.is_dynamic for one in family):
            return {}
        given = {name for one in family for name, is_real in one.given.items() if is_real}
        outside = (getattr(builtins, base, object) for one in family for base in one.bases)
        given.update(dir(_Plain), *map(dir, outside))
        return {name: line for name, line in each.read.items() if name not in given}


class _Plain:
    """A class without attributes."""


def _child(package: str, name: str) -> str | None:
    """Return the child of a package that is or contains a module."""
    if name == package:
        return "__init__"
    inner = name.removeprefix(f"{package}.")
    return None if inner == name else inner.partition(".")[0]


def _components(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of two nodes or more that reach each other, after Tarjan."""
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(node: str) -> None:
        first, height = len(low), len(stack)
        low[node] = first
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in low:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == first:
            components.append(sorted(stack[height:]))
            del stack[height:]

    for node in list(graph):
        if node not in low:
            visit(node)
    return sorted(group for group in components if len(group) > 1)
