"""Shapes and values of a network's inputs where the user gives none: as declared, usual ones, random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import context, ndarray
from ..base import ArgumentError, MXNetError, Shape
from ..generators import host
from ..ndarray import NDArray
from ..ops.spec import LABEL
from ..symbol import Symbol

__all__ = ["find_shapes", "input_names", "random_batch"]

_SIDES = (224, 112, 32, 28, 48, 24, 12, 64, 96, 128, 160, 256, 299, 300, 512)
"""Heights and widths of images that published networks take, in the order in which they are tried."""


def _labels(net: Symbol) -> set[str]:
    """Return the variables that operators take as labels."""
    return {
        child.name
        for node in net.graph.nodes
        if node.op is not None and node.op.variadic is None
        for (child, _), one in zip(node.inputs, node.op.wanted(node.a))
        if child.op is None and one.kind == LABEL
    }


def input_names(net: Symbol, values: Mapping[str, NDArray]) -> set[str]:
    """Return the arguments that are data or labels: those without values, or by their place without a file."""
    if values:
        return {name for name in net.list_arguments() if name not in values}
    return {net.list_arguments()[0], *_labels(net)}


def _candidates(net: Symbol, values: Mapping[str, NDArray], name: str) -> Iterator[tuple[int, ...]]:
    """Yield shapes that an input may have: a size the network declares, images, rows of numbers."""
    first = next(
        (values[c.name].shape for node in net.graph.nodes if node.op is not None for c, _ in node.inputs
         if c.name in values and values[c.name].ndim > 1),
        None,
    )  # fmt: skip
    channels = [first[1]] if first is not None else []
    for count in (*channels, 3, 1):
        yield from ((1, count, side, side) for side in _SIDES)
    yield from ((1, count) for count in (*channels, 784, 100, 10))


def find_shapes(
    net: Symbol, given: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every argument and auxiliary state.

    Raises:
        ArgumentError: the shape of an input must be given.
        ShapeError: a given shape contradicts the network or its parameters.
    """
    known = {**{k: v.shape for k, v in values.items() if k in net.list_arguments()}, **given}
    found = _complete(net, known)
    if found is not None:
        return found
    open_inputs = [
        n for n in net.list_arguments() if n in input_names(net, values) - _labels(net) - set(given)
    ]
    if len(open_inputs) == 1 or (open_inputs and not values):
        for shape in _candidates(net, values, open_inputs[0]):
            try:
                found = _complete(net, {**known, open_inputs[0]: shape})
            except MXNetError:
                continue
            if found is not None:
                return found
    wanted = " ".join(f"--shape {name}=..." for name in open_inputs or sorted(_labels(net)))
    raise ArgumentError(f"the shapes of the inputs do not follow from the network; give them: {wanted}")


def _complete(net: Symbol, known: Mapping[str, Shape]) -> dict[str, tuple[int, ...]] | None:
    """Return all shapes, or None if some stay unknown."""
    args, _, aux = net.infer_shape_partial(**known)
    names = net.list_arguments() + net.list_auxiliary_states()
    found = dict(zip(names, (*(args or ()), *(aux or ()))))
    if len(found) < len(names) or any(s is None or (0 in s) or not s for s in found.values()):
        return None
    return {name: tuple(shape) for name, shape in found.items() if shape is not None}


def random_batch(
    net: Symbol,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, NDArray],
    grad_req: Any = "null",
    ctx: context.Context | None = None,
) -> Any:
    """Return an executor with the parameters and random inputs.

    Args:
        net: the network.
        shapes: shape of every argument.
        values: parameters by name; those that are not in it are random.
        grad_req: which gradients it keeps.
        ctx: where it runs; None = on the CPU.
    """
    given = {name: shapes[name] for name in net.list_arguments()}
    bound = net.simple_bind(ctx or context.cpu(), grad_req=grad_req, **given)
    random, labels = host(), _labels(net)
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        if name in values:
            values[name].astype(array.dtype).copyto(array)
        elif name.endswith(("gamma", "var")):
            array[:] = 1
        elif name not in labels:
            scale = max(array.size // array.shape[0], 1) ** 0.5
            array[:] = ndarray.array(random.uniform(-1, 1, array.shape) / scale)
    return bound
