"""Arrays of an executor for other input shapes: the same memory where it is large enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..base import ArgumentError, dtype_name
from ..graph import Graph, infer_shapes
from ..ndarray import NDArray
from ..ops.shapes import known, prod
from .memory import allocate
from .sparse_arrays import allocate_as, is_sparse

Arrays = tuple[dict[str, NDArray], dict[str, NDArray], dict[str, NDArray]]
"""Arguments, gradients and auxiliary states by name."""


def resize(
    graph: Graph,
    arrays: Arrays,
    given: Mapping[str, Any],
    partial_shaping: bool,
    allow_up_sizing: bool,
) -> Arrays:
    """Return arrays for new input shapes; those whose shape stays are the same objects.

    Args:
        given: new shapes by argument name.
        partial_shaping: allow shapes of variables that are not in `given` to change.
    """
    args, grads, aux = (dict(part) for part in arrays)
    unknown = [k for k in given if k not in args]
    if unknown:
        raise ArgumentError(f"reshape: {', '.join(unknown)} is no argument; arguments: {', '.join(args)}")
    shapes = infer_shapes(graph, {k: tuple(int(d) for d in v) for k, v in given.items()})
    for node in (*graph.arguments, *graph.auxiliary):
        name, shape = node.name, shapes[node][0]
        own = args if name in args else aux
        if shape is None or not known(shape) or shape == own[name].shape:
            continue
        if name not in given and not partial_shaping:
            raise ArgumentError(
                f"reshape: the shape of {name} changes from {own[name].shape} to {shape} although it was not "
                "given; set partial_shaping=True if that is meant"
            )
        own[name] = _resized(name, own[name], shape, allow_up_sizing)
        if own is args and name in grads:
            grads[name] = _resized(f"gradient of {name}", grads[name], shape, allow_up_sizing)
    return args, grads, aux


def _resized(name: str, array: NDArray, shape: tuple[int, ...], grow: bool) -> NDArray:
    """Return the head of an array in another shape, or a new array if it is too small and may grow."""
    if is_sparse(array):
        return allocate_as(array.stype, shape, array.context, dtype_name(array.dtype))
    if array.size >= prod(shape):
        return array.head_view(shape)
    if not grow:
        raise ArgumentError(
            f"reshape: {name} would grow from {array.shape} to {shape}; set allow_up_sizing=True to allow that"
        )
    return allocate(shape, array.context, dtype_name(array.dtype))


def show_in(array: NDArray, other: NDArray) -> None:
    """Write an array to the head of the memory of another one, if that is large enough.

    Shape:
        array: at most as many elements as the other one.
    """
    count = array.raw.numel()
    if count <= other.raw.numel():
        with torch.no_grad():
            other.raw.view(-1)[:count].copy_(array.raw.view(-1))
