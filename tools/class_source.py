"""Source analysis of classes: attributes that they set and read, and classes that a module instantiates."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

__all__ = ["FUNCTIONS", "Class", "classes_in", "read_class", "statements", "values_used"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PLAIN_DECORATORS = {"dataclass", "final", "runtime_checkable", "total_ordering"}
"""Class decorators that do not pass the class to code that instantiates it."""
NAMED_ONLY = {"isinstance", "issubclass", "cast", "super", "TypeVar", "get_type_hints"}
"""Functions with a class as argument that do not instantiate it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
FullName = Callable[[ast.expr], str]
"""Returns the full name of an expression, "" if it is not a name."""


@dataclass
class Class:
    """A class of the package.

    Attributes:
        name: module and name, with dots.
        line: number of its first line.
        bases: full names of its bases; "" for other expressions.
        is_registered: True if a decorator receives it.
        is_dynamic: True if it accesses attributes by computed names.
        given: attributes that the class sets, and True if their value is ever not None.
        read: attributes of `self` that its methods read, with the line of the first access.
    """

    name: str
    line: int
    bases: list[str] = field(default_factory=list)
    is_registered: bool = False
    is_dynamic: bool = False
    given: dict[str, bool] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)

    def give(self, attribute: str, value: ast.expr | None) -> None:
        """Record that an attribute is set."""
        is_none = isinstance(value, ast.Constant) and value.value is None
        self.given[attribute] = self.given.get(attribute, False) or not is_none


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, including those in `if`, `for`, `try` and `with`."""
    for node in body:
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            for inner in ("body", "orelse", "finalbody", "handlers"):
                yield from statements(getattr(node, inner, ()))


def classes_in(home: str, body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield (full name, class) of every class, including nested ones."""
    for node in statements(body):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            name = f"{home}.{node.name}"
            if isinstance(node, ast.ClassDef):
                yield name, node
            yield from classes_in(name, node.body)


def read_class(name: str, node: ast.ClassDef, full_name: FullName) -> Class:
    """Return the attributes that a class sets and reads, and its bases with the names of its module."""
    result = Class(name, node.lineno, [full_name(base) for base in node.bases])
    decorators = {
        full_name(statement.func if isinstance(statement, ast.Call) else statement).rpartition(".")[2]
        for statement in node.decorator_list
    }
    result.is_registered = bool(decorators - PLAIN_DECORATORS)
    for statement in statements(node.body):
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            result.given[statement.name] = True
            result.is_dynamic |= statement.name in ("__getattr__", "__getattribute__") and not _only_raises(
                statement
            )
            if not isinstance(statement, ast.ClassDef):
                _read_method(statement, result)
        else:
            _read_values(statement, result, "dataclass" in decorators)
    return result


def _only_raises(node: ast.stmt) -> bool:
    """Return True if a method is annotated to return nothing because it always raises."""
    return ast.unparse(getattr(node, "returns", None) or ast.Constant(None)) == "NoReturn"


def _read_values(node: ast.stmt, found: Class, is_record: bool) -> None:
    """Record the attributes that a statement of a class body sets; a constructor sets the fields of a record."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if is_record:
            found.given[node.target.id] = True
        elif node.value is not None:
            found.give(node.target.id, node.value)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Name):
                    found.give(each.id, node.value)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        found.given.update(dict.fromkeys((each.asname or each.name for each in node.names), True))


def _read_method(method: Function, found: Class) -> None:
    """Record the attributes that a method sets and reads on its first argument, or on an object from `__new__`."""
    arguments = _arguments(method)
    if not arguments or any(_is_name(child, "staticmethod") for child in method.decorator_list):
        return
    own, created = arguments[0], set[str]()
    values: dict[ast.expr, ast.expr] = {}  # single values of targets
    for node in _walk(method.body, own):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values.update(dict.fromkeys(targets, node.value or ast.Constant(None)))
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith("__new__"):
                created.update(child.id for child in targets if isinstance(child, ast.Name))
        elif isinstance(node, ast.Call):
            _read_setattr(node, own, found)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if isinstance(node.ctx, ast.Store) and node.value.id in {own, *created}:
                found.give(node.attr, values.get(node))
            elif isinstance(node.ctx, ast.Load) and node.value.id == own:
                found.read.setdefault(node.attr, node.lineno)


def _walk(body: Iterable[ast.AST], own: str) -> Iterator[ast.AST]:
    """Yield the nodes of a method, outer ones first, without nested functions and classes that rebind `self`."""
    waiting = deque(body)
    while waiting:
        node = waiting.popleft()
        is_function = isinstance(node, (*FUNCTIONS, ast.Lambda))
        if not isinstance(node, ast.ClassDef) and not (is_function and own in _arguments(node)):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _read_setattr(call: ast.Call, own: str, found: Class) -> None:
    """Record the attribute that a call sets by a literal name."""
    match call:
        case ast.Call(
            func=ast.Name("setattr") | ast.Attribute(ast.Name("object"), "__setattr__"),
            args=[ast.Name(owner), ast.Constant(str(name)), value],
        ) if owner == own:
            found.give(name, value)


def _arguments(function: Function | ast.Lambda) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def values_used(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the names that are called or used as values: not those in annotations, bases or type tests."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield node
        waiting += _parts_with_values(node)


def _parts_with_values(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a node in which the name of a class may be a value."""
    match node:
        case ast.Attribute(ast.Name() | ast.Attribute()) | ast.arg():
            return ()  # the class in `Class.attribute` is not a value
        case ast.Call(ast.Name(name)) if name in NAMED_ONLY:
            return [each for each in node.args if not _is_type(each)]
        case ast.ClassDef():
            return [*node.decorator_list, *node.body]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.args, *node.decorator_list, *node.body]
        case ast.AnnAssign():
            return [] if node.value is None else [node.value]
        case ast.ExceptHandler():
            return node.body
        case ast.Subscript():
            return [node.value] if _is_type(node.slice) else [node.value, node.slice]
        case ast.BinOp(op=ast.BitOr()) if _is_type(node):
            return ()  # an alias of types
    return ast.iter_child_nodes(node)


def _is_type(node: ast.AST) -> bool:
    """Return True if an expression may name types: names, subscripts, and unions or tuples of them."""
    match node:
        case ast.Tuple() | ast.List():
            return all(map(_is_type, node.elts))
        case ast.BinOp(op=ast.BitOr()):
            return _is_type(node.left) and _is_type(node.right)
        case ast.Subscript():
            return _is_type(node.value) and _is_type(node.slice)
    return isinstance(node, (ast.Name, ast.Attribute)) or (
        isinstance(node, ast.Constant) and node.value is None
    )
