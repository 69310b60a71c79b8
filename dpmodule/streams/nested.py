"""Nested structures of tensors, taken apart into an outline and leaves, and rebuilt.

A nested structure is None, a tensor, or a list, tuple, named tuple, dict, `collections.OrderedDict` or dataclass of
nested structures. Its *outline* is everything but the tensors: a tree of plain tuples that compares with ``==`` and
pickles. Dicts with the same keys in another order have another outline.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .errors import StructureError

Outline = Any
"""None, `TENSOR`, or a tuple (kind, class or None, keys or None, outlines of the children)."""

TENSOR = 1
LIST = 2
TUPLE = 3
NAMED = 4
DICT = 5
ORDERED = 6
DATACLASS = 7

MAX_DEPTH = 200
"""Deepest nesting of a structure."""

_MAX_AXES = 64
_MAX_STEPS = 12
_KEYS = (str, int)
_EXPECTED = "None, a tensor, or a list, tuple, dict or dataclass of these"

Path = tuple[Any, ...]
"""Path of a leaf, innermost step first: ((text, key), path of the parent)."""


def flatten(value: Any) -> tuple[Outline, list[torch.Tensor]]:
    """Return the outline of a nested structure and its tensors in order.

    Args:
        value: None, a tensor, or a list, tuple, dict or dataclass of nested structures.

    Example:
        >>> flatten({"x": torch.zeros(2), "y": [None, torch.ones(1)]})[1]
        [tensor([0., 0.]), tensor([1.])]
    """
    walk = _StructureWalk(check_tensor)
    return walk.visit(value, ()), walk.leaves


def parts(value: Any) -> tuple[Outline, list[torch.Tensor]]:
    """Return outline and tensors of a nested structure, with tensors on any device and of any layout."""
    walk = _StructureWalk(_any_tensor)
    return walk.visit(value, ()), walk.leaves


def outline(value: Any) -> Outline:
    """Return the outline of a nested structure with any tensors."""
    return parts(value)[0]


class _StructureWalk:
    """A traversal of a structure that collects its tensors."""

    def __init__(self, check: Callable[[torch.Tensor, Path], None]) -> None:
        self.leaves: list[torch.Tensor] = []
        self._check = check
        self._open: set[int] = set()

    def visit(self, value: Any, path: Path) -> Outline:
        if value is None:
            return None
        if isinstance(value, torch.Tensor):
            self._check(value, path)
            self.leaves.append(value)
            return TENSOR
        split = _splitter(type(value))
        if split is None:
            raise StructureError(f"{_path_text(path)} is {_brief(value)}; expected {_EXPECTED}")
        if id(value) in self._open:
            raise StructureError(f"{_path_text(path)} is a {type(value).__name__} that contains itself")
        if len(self._open) >= MAX_DEPTH:
            raise StructureError(f"{_path_text(path)} is nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(value))
        try:
            return split(self, value, path)
        finally:
            self._open.discard(id(value))

    def sequence(self, kind: int, value: Sequence[Any], path: Path) -> Outline:
        cls = type(value) if kind == NAMED else None
        return (kind, cls, None, tuple([self.visit(v, (("[{!r}]", i), path)) for i, v in enumerate(value)]))

    def mapping(self, kind: int, value: dict[Any, Any], path: Path) -> Outline:
        for key in value:
            if type(key) not in _KEYS:
                raise StructureError(f"{_path_text(path)} has the key {_brief(key)}; expected str or int")
        children = tuple([self.visit(v, (("[{!r}]", k), path)) for k, v in value.items()])
        return (kind, None, tuple(value), children)

    def record(self, kind: int, value: Any, path: Path) -> Outline:
        names = tuple([field.name for field in dataclasses.fields(value)])
        children = tuple([self.visit(_field(value, n, path), ((".{}", n), path)) for n in names])
        return (kind, type(value), names, children)


_Split = Callable[[_StructureWalk, Any, Path], Outline]

_SPLITTERS: dict[type, _Split | None] = {
    list: lambda walk, value, path: walk.sequence(LIST, value, path),
    tuple: lambda walk, value, path: walk.sequence(TUPLE, value, path),
    dict: lambda walk, value, path: walk.mapping(DICT, value, path),
    OrderedDict: lambda walk, value, path: walk.mapping(ORDERED, value, path),
}


def _splitter(cls: type) -> _Split | None:
    """Return the function that takes a value of this class apart; None if there is none."""
    if cls in _SPLITTERS:
        return _SPLITTERS[cls]
    if dataclasses.is_dataclass(cls):
        return lambda walk, value, path: walk.record(DATACLASS, value, path)
    if issubclass(cls, tuple) and (hasattr(cls, "_make") or hasattr(cls, "n_sequence_fields")):
        return lambda walk, value, path: walk.sequence(NAMED, value, path)
    return None


def _field(value: Any, name: str, path: Path) -> Any:
    try:
        return getattr(value, name)
    except Exception as error:
        text = f"{_path_text((('.{}', name), path))} cannot be read: {type(error).__name__}: {error}"
        raise StructureError(text) from error


def _any_tensor(tensor: torch.Tensor, path: Path) -> None:
    pass


def check_tensor(tensor: torch.Tensor, path: Path = ()) -> None:
    """Raise StructureError if a tensor is not a strided array of numbers on the CPU or CUDA."""
    reason = _unsendable(tensor)
    if reason:
        raise StructureError(f"{_path_text(path)} is {reason}")


def _unsendable(tensor: torch.Tensor) -> str | None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        return f"a {kind} tensor, which has no single block of memory; send to_dense() or its parts"
    if tensor.is_quantized:
        return "a quantised tensor; send its int_repr(), scale and zero point"
    if tensor.ndim > _MAX_AXES:
        return f"a tensor of {tensor.ndim} axes; expected {_MAX_AXES} at most: reshape it"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"a tensor on {tensor.device}; expected cpu or cuda"
    return None


def _path_text(path: Path) -> str:
    steps = []
    while path:
        (text, key), path = path
        steps.append(text.format(key))
    if len(steps) > _MAX_STEPS:
        steps[_MAX_STEPS // 2 : -_MAX_STEPS // 2] = ["..."]
    return "structure" + "".join(reversed(steps))


def _brief(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "(its repr fails)"
    return f"{type(value).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"


def unflatten(shape: Outline, leaves: Sequence[Any]) -> Any:
    """Build a nested structure from its outline and its leaves in order.

    A dataclass is made without calling ``__init__`` or ``__post_init__``; only its fields are set.

    Example:
        >>> unflatten(flatten([torch.zeros(1), (None,)])[0], ["first leaf"])
        ['first leaf', (None,)]
    """
    return _build(shape, iter(leaves))


def _build(shape: Outline, leaves: Iterator[Any]) -> Any:
    if shape is None:
        return None
    if shape == TENSOR:
        return next(leaves)
    kind, cls, keys, children = shape
    items = [_build(child, leaves) for child in children]
    if kind == LIST:
        return items
    if kind == TUPLE:
        return tuple(items)
    if kind == NAMED:
        return maker(cls)(items)
    if kind == DATACLASS:
        return _new_dataclass(cls, keys, items)
    return (dict if kind == DICT else OrderedDict)(zip(keys, items))


def maker(cls: Any) -> Callable[[Sequence[Any]], Any]:
    """Return the function that makes a named tuple of this class from its items."""
    make: Callable[[Sequence[Any]], Any] = getattr(cls, "_make", cls)
    return make


def _new_dataclass(cls: type, names: Sequence[str], items: Sequence[Any]) -> Any:
    instance: Any = object.__new__(cls)
    for name, item in zip(names, items):
        object.__setattr__(instance, name, item)
    return instance
