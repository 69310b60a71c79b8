"""Shapes and values of a network's inputs: from its files, from the user, common ones, and random values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from .. import context, ndarray
from .._devices.generators import host
from ..base import ArgumentError, MXNetError, ShapeError
from ..executor.storage_types import declared_storage_types
from ..graph.node import printable
from ..ndarray import NDArray
from ..ops.spec import LABEL, PARAM
from ..symbol import Symbol
from .data import Samples

Shapes = dict[str, tuple[int, ...]]

_COMMON_SIZES = (224, 112, 32, 28, 48, 24, 12, 64, 96, 128, 160, 256, 299, 300, 512)
"""Heights and widths of images of published networks, in the order of trials."""
_OTHER_SIZES = tuple(side for side in range(4, 301) if side not in _COMMON_SIZES)

_STEPS = 8
"""Length of sequences to try."""
_LABEL_SHAPES: tuple[tuple[int, ...], ...] = ((), (1, 6))
"""Shapes of one sample's label: a class, or the class and corners of an object, which detectors take."""


def label_inputs(net: Symbol) -> set[str]:
    """Return the variables that operators take as labels."""
    return _inputs_of_kind(LABEL, net)


def parameter_inputs(net: Symbol) -> set[str]:
    """Return the variables that operators take as parameters."""
    return _inputs_of_kind(PARAM, net)


def _inputs_of_kind(kind: str, net: Symbol) -> set[str]:
    """Return the variables that operators use as LABEL or PARAM."""
    return {
        child.name
        for node in net.graph.nodes
        if node.op is not None and node.op.variadic is None
        for (child, _), one in zip(node.inputs, node.op.active_inputs(node.a))
        if child.op is None and one.kind == kind
    }


def input_names(net: Symbol, values: Mapping[str, NDArray]) -> set[str]:
    """Return the arguments that are data or labels: those without values, or by name if there are no values."""
    arguments = net.list_arguments()
    if values:
        return {name for name in arguments if name not in values}
    return {"data" if "data" in arguments else arguments[0], *label_inputs(net)}


LENGTHS = "_lengths"
"""Ending of the name of an array with the lengths of a ragged input's rows."""


def ragged_inputs(net: Symbol) -> list[str]:
    """Return the variables whose rows have different lengths."""
    stored = declared_storage_types(net.graph)
    return [name for name in net.list_arguments() if stored.get(name) == "ragged"]


def ragged_values(elements: Any, lengths: Any) -> NDArray:
    """Return a ragged array of all elements and the length of each row."""
    return ndarray.ragged_array(elements, [0, *np.cumsum(lengths).tolist()])


def data_input(net: Symbol, values: Mapping[str, NDArray]) -> str:
    """Return the argument for the samples."""
    labels = {name for name in net.list_arguments() if name.endswith("label")}
    names = [n for n in net.list_arguments() if n in input_names(net, values) - label_inputs(net) - labels]
    if len(names) != 1:
        raise ArgumentError(
            f"the network has {len(names)} inputs without values ({', '.join(names) or 'none'}), expected one "
            "for the samples; check that its parameters are complete"
        )
    return names[0]


def given_shapes(
    net: Symbol,
    requested: Sequence[tuple[str | None, tuple[int, ...]]],
    values: Mapping[str, NDArray],
    batch: int,
) -> Shapes:
    """Return the shapes of ``--shape`` by name; a sample shape without a name is that of the data."""
    shapes = {
        data_input(net, values) if name is None else name: (batch, *shape) if name is None else shape
        for name, shape in requested
    }
    unknown = sorted(set(shapes) - set(net.list_arguments()))
    if unknown:
        raise ArgumentError(
            f"--shape names {', '.join(unknown)}, expected some of {', '.join(net.list_arguments())}"
        )
    return shapes


def find_shapes(
    net: Symbol,
    given: Mapping[str, tuple[int, ...]],
    values: Mapping[str, NDArray],
    batch: int = 1,
    guess: bool = True,
) -> Shapes:
    """Return the shape of every argument and auxiliary state.

    Args:
        given: shapes from the user.
        values: parameters by name.
        batch: number of samples if it is not known.
        guess: whether to try common shapes for an input that network and parameters do not determine.
    """
    known = {**_shapes_of(net, values), **given}
    inputs = [
        n for n in net.list_arguments() if n in input_names(net, values) - label_inputs(net) - set(given)
    ]
    try:
        result = _infer_with_labels(net, {**_declared(net, known, inputs, batch), **known}, batch)
    except ShapeError as error:
        if given and values:
            shown = " ".join(f"--shape {name}={','.join(map(str, shape))}" for name, shape in given.items())
            raise ArgumentError(f"{shown} does not fit the parameters: {error}") from error
        raise
    data = [name for name in inputs if not name.endswith("label")] or inputs
    if result is None and guess and (len(data) == 1 or (data and not values)):
        result = _guess(net, known, values, data[0], batch)
    if result is None:
        others = {*inferred(net, values, known)[0], *parameter_inputs(net)}
        names = [name for name in net.list_arguments() if name not in others]
        labels = label_inputs(net)
        names = [name for name in names if name not in labels] or names or inputs
        wanted = " ".join(f"--shape {name}=..." for name in names)
        raise ArgumentError(f"the shapes of the inputs cannot be inferred; set them: {wanted}")
    return result


def input_lines(
    net: Symbol,
    names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...]],
    values: Mapping[str, NDArray],
    is_built_in: bool,
) -> list[str]:
    """Return a line for each input: its shape, and its source if it is not the command line.

    Args:
        shapes: shape of every argument.
        given: shapes from the user.
        values: parameters by name.
        comes_along: whether it is a built-in network, whose shapes are not from a file.
    """
    saved = {} if is_built_in else _declared(net, _shapes_of(net, values), names, 1)
    origins = {
        **dict.fromkeys(names, " (assumed)"),
        **dict.fromkeys(saved, " (as saved)"),
        **dict.fromkeys(given, ""),
    }
    return [f"input: {printable(name)} {shapes[name]}{origins[name]}" for name in names]


def sample_shape(net: Symbol, values: Mapping[str, NDArray]) -> tuple[int, ...] | None:
    """Return the shape of one sample, inferred or found by trying common sizes; None if it is unknown."""
    try:
        return find_shapes(net, {}, values)[data_input(net, values)][1:]
    except MXNetError:
        return None


def width(net: Symbol, values: Mapping[str, NDArray]) -> int | None:
    """Return the number of values in a sample, as `sample_shape` finds it."""
    shape = sample_shape(net, values)
    return None if shape is None else math.prod(shape)


def inferred(
    net: Symbol, values: Mapping[str, NDArray], given: Mapping[str, tuple[int, ...]]
) -> tuple[Shapes, list[tuple[int, ...] | None]]:
    """Return the shapes of arguments and auxiliary states, as far as they can be inferred, and of the outputs."""
    args, outputs, aux = net.infer_shape_partial(**{**_shapes_of(net, values), **given})
    names = net.list_arguments() + net.list_auxiliary_states()
    known = dict(zip(names, (*(args or ()), *(aux or ()))))
    return {name: tuple(s) for name, s in known.items() if s and 0 not in s}, list(outputs or ())


def fit_samples(samples: Samples, net: Symbol, values: Mapping[str, NDArray], batch: int) -> Samples:
    """Return samples in the shape of the network's input: unchanged, or rows of numbers as images."""
    name, shape = data_input(net, values), samples.x.shape[1:]
    try:
        inferred(net, values, {name: (batch, *shape)})
        return samples
    except ShapeError as error:
        wanted = sample_shape(net, values)
        if wanted is None or (wanted == shape):
            raise ShapeError(
                f"{samples.name}: samples of shape {shape} do not fit the network: {error}"
            ) from error
    if math.prod(wanted) == math.prod(shape):
        if len(shape) == 1:
            return replace(samples, x=samples.x.reshape(-1, *wanted))
        raise ShapeError(f"{samples.name}: a sample has the shape {shape}, but the network takes {wanted}")
    hint = ""
    if len(shape) == 1:
        hint = "; in a CSV, --label-column sets the label column, or 'none'"
    raise ShapeError(
        f"{samples.name}: a sample has {math.prod(shape)} values, but the network takes "
        f"{math.prod(wanted)}{hint}"
    )


def _shapes_of(net: Symbol, values: Mapping[str, NDArray]) -> Shapes:
    return {name: values[name].shape for name in net.list_arguments() if name in values}


def _declared(net: Symbol, known: Mapping[str, tuple[int, ...]], inputs: Sequence[str], batch: int) -> Shapes:
    """Return the shapes of inputs that are known except for the number of samples."""
    inferred_shapes = dict(zip(net.list_arguments(), net.infer_shape_partial(**known)[0] or ()))
    return {
        name: (batch, *shape[1:])
        for name in inputs
        if (shape := inferred_shapes[name]) and shape[0] == 0 and all(size for size in shape[1:])
    }


def _guess(
    net: Symbol, known: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray], name: str, batch: int
) -> Shapes | None:
    for sample in _candidate_shapes(net, values):
        try:
            result = _infer_with_labels(net, {**known, name: (batch, *sample)}, batch)
        except MXNetError:
            continue
        if result is not None:
            return result
    return None


def _infer_with_labels(net: Symbol, known: Mapping[str, tuple[int, ...]], batch: int) -> Shapes | None:
    """Return all shapes, with common ones of labels that cannot be inferred; None if others are unknown."""
    result = _infer_all(net, known)
    names = [name for name in net.list_arguments() if name in label_inputs(net) or name.endswith("label")]
    unknown = [name for name in names if name not in known]
    for sample in _LABEL_SHAPES if result is None and unknown else ():
        with suppress(MXNetError):
            result = result or _infer_all(net, {**known, **dict.fromkeys(unknown, (batch, *sample))})
    return result


def _candidate_shapes(net: Symbol, values: Mapping[str, NDArray]) -> Iterator[tuple[int, ...]]:
    """Yield likely sample shapes: images, rows of numbers, sequences of rows."""
    first = next(
        (values[c.name].shape for node in net.graph.nodes if node.op is not None for c, _ in node.inputs
         if c.name in values and values[c.name].ndim > 1),
        None,
    )  # fmt: skip
    channels = first[1:2] if first is not None else ()
    if first is not None and len(first) == 2:
        yield from (channels, (_STEPS, *channels))
    for count in (*channels, 3, 1):
        yield from ((count, side, side) for side in _COMMON_SIZES)
    yield from ((count,) for count in (784, 100, 10, 1))
    for count in channels:
        yield from ((count, side, side) for side in _OTHER_SIZES)


def _infer_all(net: Symbol, known: Mapping[str, tuple[int, ...]]) -> Shapes | None:
    """Return all shapes, None if some are unknown."""
    shapes, _ = inferred(net, {}, known)
    return shapes if len(shapes) == len({*net.list_arguments(), *net.list_auxiliary_states()}) else None


def random_batch(
    net: Symbol,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, NDArray],
    grad_req: Any = "null",
    ctx: context.Context | None = None,
) -> Any:
    """Return an executor with the parameters and random inputs.

    Args:
        shapes: shape of every argument.
        values: parameters by name; others are random.
        ctx: its device; None: the CPU.
    """
    given: dict[str, Any] = {name: shapes[name] for name in net.list_arguments()}
    bound = net.simple_bind(ctx or context.cpu(), grad_req=grad_req, **given)
    random, labels = host(), label_inputs(net)
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        if name in values:
            values[name].astype(array.dtype).copyto(array)
        elif array.stype == "ragged":
            array[:] = ragged_values(np.zeros(array.shape), np.ones(array.shape[0], int))
        elif name.endswith(("gamma", "var")):
            array[:] = 1
        elif name not in labels:
            scale = max(array.size // array.shape[0], 1) ** 0.5
            array[:] = ndarray.array(random.uniform(-1, 1, array.shape) / scale)
    return bound
