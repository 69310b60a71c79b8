"""Source analysis of modules: meaning of names, imports and length of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from class_source import FUNCTIONS, statements

__all__ = ["Module"]

LATE_TABLES = {"attributes": 2, "modules_of": 0, "add_later": 1, "add_lazy_operators": 1}
"""Functions of `lazy` and of registries that take a table of modules, and the table's position."""


class Module:
    """A module's source.

    Args:
        path: path of the file, relative to the root.
        text: the source.

    Attributes:
        name: its name, with dots.
        names: full names of its imported, defined or assigned names.
        late: full names of its lazy imports.
        imports: full names of all its imports.
        shown: names in its ``__all__``; with `lazy.public_names`, including those that it re-exports, with
            `lazy.own_names`, including those that it defines.
        is_public: True if it calls `lazy.publish` or `lazy.attributes`.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text, self.tree = path, text, ast.parse(text, path)
        parts = path.removesuffix(".py").split("/")
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.package = self.name if self.is_package else self.name.rpartition(".")[0]
        self.names: dict[str, str] = {}
        self.late: dict[str, str] = {}
        self.imports: list[str] = []
        self.shown: set[str] = set()
        self._reexported: set[str] = set()
        self.is_public = False
        self._values: dict[str, ast.expr] = {}
        nodes = list(ast.walk(self.tree))
        self._read_imports(nodes)
        self._read_names()
        for node in nodes:
            if isinstance(node, ast.Call):
                self._read_call(node)
        self.functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
        self.lines_of_code = self._count_lines(nodes)

    def _read_imports(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports.append(alias.name)
                    first = alias.name.partition(".")[0]
                    self.names.setdefault(alias.asname or first, alias.name if alias.asname else first)
            elif isinstance(node, ast.ImportFrom):
                home = self._absolute("." * node.level + (node.module or ""))
                self._reexported.update(alias.name for alias in node.names if alias.name == alias.asname)
                for alias in node.names:
                    self.imports.append(f"{home}.{alias.name}")
                    self.names.setdefault(alias.asname or alias.name, f"{home}.{alias.name}")

    def _read_names(self) -> None:
        for node in statements(self.tree.body):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                self.names[node.name] = f"{self.name}.{node.name}"
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self._values[target.id] = node.value
                        meant = self.full_name(node.value) or f"{self.name}.{target.id}"
                        self.names.setdefault(target.id, meant)
        shown = self._values.get("__all__")
        if shown is not None:
            self.shown |= self._strings(shown)
            called = {each.attr for each in ast.walk(shown) if isinstance(each, ast.Attribute)}
            if "public_names" in called:
                self.shown |= self._reexported
            if "own_names" in called:
                self.shown |= {name for name, full in self.names.items() if full == f"{self.name}.{name}"}

    def _read_call(self, call: ast.Call) -> None:
        """Record the effect of a call on the module, or its import by name."""
        function = self.full_name(call.func)
        called = function.rpartition(".")[2]
        self.is_public |= function.endswith((".lazy.publish", ".lazy.attributes"))
        if called in LATE_TABLES:
            is_elsewhere = called == "attributes" and len(call.args) > 4  # the argument `package`
            home = self.package if is_elsewhere else self.name
            for key, names in self._table(call, LATE_TABLES[called]).items():
                self.imports.append(f"{home}.{key}")
                if called == "attributes":
                    self.late.update({name: f"{home}.{key}.{name}" for name in names.split()})
        elif called == "import_module" and isinstance(call.args[0], ast.Constant):
            self.imports.append(self._absolute(str(call.args[0].value)))

    def _table(self, call: ast.Call, position: int) -> dict[str, str]:
        """Return a literal table of modules, {} for other expressions."""
        named = [word.value for word in call.keywords if word.arg == "table"]
        given = named or call.args[position : position + 1]
        return self._dict(given[0]) if given else {}

    def _dict(self, value: ast.expr) -> dict[str, str]:
        if isinstance(value, ast.Name):
            return self._dict(self._values[value.id]) if value.id in self._values else {}
        table: dict[str, str] = {}
        if isinstance(value, ast.Dict):
            for key, each in zip(value.keys, value.values, strict=True):
                if key is None:
                    table.update(self._dict(each))
                elif isinstance(key, ast.Constant):
                    table[str(key.value)] = " ".join(_strings(each))
        return table

    def _strings(self, value: ast.expr) -> set[str]:
        """Return the strings of a list, including those of unpacked lists and tables."""
        strings = set(_strings(value))
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in self._values:
                for names in self._dict(node).values() or _strings(self._values[node.id]):
                    strings.update(names.split())
        return strings

    def _absolute(self, written: str) -> str:
        """Return the full name of a module written with leading dots."""
        bare = written.lstrip(".")
        level = len(written) - len(bare)
        home = self.package.split(".")
        return ".".join([*home[: len(home) - level + 1], *([bare] if bare else [])]) if level else bare

    def full_name(self, node: ast.expr) -> str:
        """Return the full name of an expression, "" if it is not a name."""
        if isinstance(node, ast.Subscript):
            return self.full_name(node.value)
        if isinstance(node, ast.Attribute):
            owner = self.full_name(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return self.names.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    @property
    def annotations(self) -> Iterator[ast.expr]:
        """Annotations of all parameters except ``*args`` and ``**kwargs``."""
        for function in self.functions:
            given = function.args
            for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                if each.annotation is not None:
                    yield each.annotation

    def is_any(self, annotation: ast.expr) -> bool:
        """Return True if an annotation is `Any`, or a union with `Any`."""
        if isinstance(annotation, ast.BinOp):
            return self.is_any(annotation.left) or self.is_any(annotation.right)
        return self.full_name(annotation) == "typing.Any"

    def _count_lines(self, nodes: Iterable[ast.AST]) -> int:
        """Return the number of lines that are not blank, not only a comment, and not in a docstring."""
        lines = self.text.split("\n")
        for node in nodes:
            match node:
                case ast.Expr(ast.Constant(str())):
                    for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                        lines[number] = ""
        return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _strings(value: ast.expr) -> list[str]:
    return [n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
