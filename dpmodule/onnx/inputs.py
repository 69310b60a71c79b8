"""What goes into an exported model: names, shapes and types, as a user says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import ArgumentError, did_you_mean, dtype_name
from ..ndarray import NDArray
from ..symbol import Symbol
from .prediction import prediction_graph

Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of a model.

    Attributes:
        shapes: of each input, by name; a name in place of a length stands for any.
        dtypes: type names by name.
        sizes: a length that each of the names stood for.
    """

    shapes: Mapping[str, Dims]
    dtypes: Mapping[str, str]
    sizes: Mapping[str, int]


def described_inputs(
    symbol: Symbol,
    params: Mapping[str, NDArray],
    shapes: Any,
    types: Any,
    dynamic: Any = False,
    dynamic_shapes: Any = None,
) -> ModelInputs:
    """Return the inputs of a symbol as the arguments of `export_model` describe them."""
    names = input_names(symbol, params)
    given = _by_name("in_shapes", names, shapes)
    dtypes = types if isinstance(types, (list, tuple)) else [types] * len(names)
    if len(dtypes) != len(names):
        raise ArgumentError(f"in_types has {len(dtypes)} types, expected one for each of the inputs {names}")
    sizes: dict[str, int] = {}
    marked = _marks(names, given, dynamic, dynamic_shapes)
    found = {name: _dims(name, given[name], marked[name], sizes) for name in names}
    return ModelInputs(found, {name: dtype_name(each) for name, each in zip(names, dtypes)}, sizes)


def input_names(symbol: Symbol, params: Mapping[str, NDArray]) -> list[str]:
    """Return the arguments that are neither parameters nor labels of losses, in order."""
    graph = prediction_graph(symbol.graph)
    labels = set(graph.labels)
    return [name for name in graph.argument_names if name not in params and name not in labels]


def _by_name(what: str, names: Sequence[str], shapes: Any) -> dict[str, Sequence[Any]]:
    if isinstance(shapes, Mapping):
        for name in shapes:
            if name not in names:
                raise ArgumentError(
                    f"{what} names {name!r}; the inputs are {names}{did_you_mean(name, names)}"
                )
        shapes = [shapes.get(name) for name in names]
    if shapes is None or len(shapes) != len(names) or None in shapes:
        count = "none" if shapes is None else len([s for s in shapes if s is not None])
        raise ArgumentError(
            f"{what}: got {count}, expected a shape for each of the inputs {names}; inputs are the arguments that are "
            "not in params (is one of them missing there?)"
        )
    if names and not isinstance(shapes[0], (list, tuple)):
        raise ArgumentError(f"{what} is {shapes!r}, expected a list of shapes, one for each of {names}")
    return dict(zip(names, shapes))


Marks = dict[str, dict[int, str]]


def _marks(names: Sequence[str], given: Mapping[str, Any], dynamic: Any, dynamic_shapes: Any) -> Marks:
    """Return the names of dynamic lengths, by input and axis."""
    if isinstance(dynamic, Mapping):
        return _marks_by_name(names, given, dynamic)
    if dynamic not in (True, False, None):
        raise ArgumentError(
            f"dynamic is {dynamic!r}, expected True, False, or axes by input as {{'data': {{0: 'batch'}}}}"
        )
    marked: Marks = {name: {} for name in names}
    for name in names:
        marked[name].update(_names_in(name, given[name]))
    if dynamic and dynamic_shapes is None:
        for name in names:
            marked[name].setdefault(0, "batch")
    elif dynamic:
        for name, shape in _by_name("dynamic_input_shapes", names, dynamic_shapes).items():
            pairs = list(zip(shape, given[name]))
            if len(shape) != len(given[name]) or any(isinstance(d, int) and d != size for d, size in pairs):
                raise ArgumentError(
                    f"dynamic_input_shapes has {tuple(shape)} for {name!r} of {tuple(given[name])}"
                )
            marked[name].update(_names_in(name, shape))
    return marked


def _marks_by_name(names: Sequence[str], given: Mapping[str, Any], dynamic: Mapping[Any, Any]) -> Marks:
    marked: Marks = {name: _names_in(name, given[name]) for name in names}
    for name, axes in dynamic.items():
        if name not in marked:
            raise ArgumentError(
                f"dynamic names {name!r}; the inputs are {list(names)}{did_you_mean(name, names)}"
            )
        if not isinstance(axes, Mapping):
            axes = {axis: f"{name}_{axis}" for axis in axes}
        for axis, mark in axes.items():
            if not isinstance(axis, int) or not -len(given[name]) <= axis < len(given[name]):
                raise ArgumentError(
                    f"dynamic[{name!r}] names axis {axis!r}, the shape is {tuple(given[name])}"
                )
            if not isinstance(mark, str) or not mark:
                raise ArgumentError(f"dynamic[{name!r}][{axis}] is {mark!r}, expected a name for the length")
            marked[name][axis % len(given[name])] = mark
    return marked


def _names_in(name: str, shape: Sequence[Any]) -> dict[int, str]:
    return {
        axis: str(dim) if dim is not None else "batch" if axis == 0 else f"{name}_{axis}"
        for axis, dim in enumerate(shape)
        if dim is None or isinstance(dim, str)
    }


def _dims(name: str, shape: Sequence[Any], marks: Mapping[int, str], sizes: dict[str, int]) -> Dims:
    """Return a shape with names in it, and note which lengths they stood for."""
    found: list[int | str] = []
    for axis, dim in enumerate(shape):
        mark = marks.get(axis)
        if mark is None:
            if not isinstance(dim, int) or dim < 1:
                raise ArgumentError(
                    f"in_shapes has {tuple(shape)} for {name!r}, expected lengths of at least 1"
                )
            found.append(dim)
            continue
        # lengths that differ for different names cannot be taken for each other
        size = dim if isinstance(dim, int) and dim > 0 else 2 + 2 * len(sizes)
        if isinstance(dim, int) and sizes.get(mark, size) != size:
            raise ArgumentError(
                f"the name {mark!r} stands for {sizes[mark]} and for {size} (axis {axis} of {name!r})"
            )
        sizes.setdefault(mark, size)
        found.append(mark)
    return tuple(found)
