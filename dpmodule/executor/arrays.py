"""The arrays that an executor is bound to: arguments, gradients and states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from .._core import mode
from ..base import ArgumentError, ShapeError, dtype_name
from ..context import Context
from ..graph import Graph, Node, infer_from_arrays, infer_shapes, infer_types
from ..graph.infer import read_shape
from ..ndarray import NDArray
from ..ndarray.convert import tensor_of
from ..ndarray.ragged import RaggedNDArray
from ..ndarray.sparse_base import BaseSparseNDArray
from ..ops.dtypes import name_of
from ..ops.shapes import known, prod
from ..ops.sparse import all_rows
from .device_placement import Placement
from .memory import allocate
from .sparse_arrays import allocate_as, is_sparse, kinds_of, stored_bytes
from .storage_types import StorageTypes, check_axes, infer_storage_types

_RAW = attrgetter("raw")


def assign(name: str, target: NDArray, value: Any) -> None:
    """Copy a value into an array.

    Shape:
        value: as the array.

    Args:
        value: an NDArray, tensor, NumPy array or nested list of the array's shape.
    """
    if is_sparse(target):
        target[:] = value if isinstance(value, NDArray) else np.asarray(value)
        return
    own = target.raw
    tensor = tensor_of(value, own.dtype, name_of(own.dtype), own.device)
    if tensor.shape != own.shape:
        raise ShapeError(f"{name} has shape {tuple(tensor.shape)}, expected {target.shape}")
    if tensor is not own:
        with torch.no_grad():
            own.copy_(tensor)


@dataclass(slots=True, eq=False, repr=False)
class Binding:
    """Arguments of binding an executor: graph, arrays and contexts.

    Shape:
        args, aux: as the graph's variables.
        grads: each as its argument.

    Attributes:
        shapes: result of `infer_shapes`, if it is known.
        types: result of `infer_types`, if it is known.
        placement: context of each node, if not all of them run on `ctx`.
        stypes: storage types that the graph assumes for dense arguments: a "row_sparse" one counts as storing all rows,
            so that its gradient may be row-sparse.
    """

    graph: Graph
    ctx: Context
    args: Mapping[str, NDArray]
    grads: Mapping[str, NDArray]
    grad_req: Mapping[str, str]
    aux: Mapping[str, NDArray]
    shapes: Mapping[Node, Any] | None = None
    types: Mapping[Node, Any] | None = None
    placement: Placement | None = None
    stypes: Mapping[str, str] | None = None


@dataclass(slots=True, eq=False, repr=False)
class BoundArrays:
    """An array for each of a graph's variables, and the shapes, types and contexts inferred from them.

    Shape:
        variables: as inferred for the graph; inputs are usually (N, ...).

    Attributes:
        placement: context of each node, empty if all of them run on `context`.
        args: arguments by name.
        grads: gradients by argument name; None if no gradient is computed.
        unwritten: arrays bound to arguments whose gradient is not computed.
        aux: auxiliary states by name.
        variables: arguments and states in the graph's order.
        slots: index of each variable in `variables`, by name.
        shapes: shapes of every node's outputs.
        types: their dtype names.
        storage: storage types of the graph's values; None if all of them are dense.
    """

    graph: Graph
    context: Context
    placement: Placement
    args: dict[str, NDArray]
    grads: dict[str, NDArray | None]
    unwritten: dict[str, NDArray]
    aux: dict[str, NDArray]
    grad_req: dict[str, str]
    variables: list[NDArray]
    slots: dict[str, int]
    shapes: Mapping[Node, Any]
    types: Mapping[Node, Any]
    stypes: Mapping[str, str]
    stored: frozenset[int]
    storage: StorageTypes | None

    @classmethod
    def of(cls, binding: Binding) -> BoundArrays:
        """Return the arrays of a binding, inferring the shapes and types that it lacks."""
        graph, grads, req = binding.graph, binding.grads, binding.grad_req
        args = {name: binding.args[name] for name in graph.argument_names}
        aux = {name: binding.aux[name] for name in graph.auxiliary_names}
        every = {**args, **aux}
        stypes = {name: stype for name, stype in (binding.stypes or {}).items() if stype == "row_sparse"}
        shapes = binding.shapes or infer_from_arrays(graph, {k: v.shape for k, v in every.items()})
        storage = infer_storage_types(graph, {**stypes, **kinds_of(every)})
        if storage is not None:
            check_axes(storage, shapes)
        return cls(
            graph,
            binding.ctx,
            binding.placement or {},
            args,
            {name: grads.get(name) if req.get(name) != "null" else None for name in args},
            {name: grads[name] for name in args if name in grads and req.get(name) == "null"},
            aux,
            dict(req),
            [*args.values(), *aux.values()],
            {name: i for i, name in enumerate((*args, *aux))},
            shapes,
            binding.types
            or infer_types(graph, {k: dtype_name(v.dtype) for k, v in every.items()}, default="float32"),
            stypes,
            frozenset(i for i, name in enumerate(every) if name in stypes),
            storage,
        )

    def context_of(self, node: Node) -> Context:
        """Return the context that a node of the graph runs on."""
        return self.placement.get(node, self.context)

    @property
    def contexts(self) -> list[Context]:
        """The contexts on which nodes run."""
        return list(dict.fromkeys((self.context, *self.placement.values())))

    @property
    def device_key(self) -> tuple[Context, ...]:
        """The context of the executor and of each node; empty if all nodes run on one context."""
        if not self.placement:
            return ()
        return (self.context, *map(self.context_of, self.graph.nodes))

    @property
    def size(self) -> int:
        """Number of elements in the results of all operators, outputs included."""
        result_shapes = (shapes for node, shapes in self.shapes.items() if node.op is not None)
        return sum(prod(shape) for shapes in result_shapes for shape in shapes if shape is not None)

    def outputs(self) -> list[NDArray]:
        """Return new arrays for the outputs.

        Shape:
            returns: each as the graph's output.
        """
        return [
            allocate_as(
                "default" if self.storage is None else self.storage.of((node, i)),
                tuple(self.shapes[node][i] or ()),
                self.context_of(node),
                self.types[node][i] or "float32",
            )
            for node, i in self.graph.heads
        ]

    def values(self) -> list[Any]:
        """Return the inputs of programs: the tensors of all variables, or the records of sparse arrays.

        Shape:
            returns: each as its variable.
        """
        if self.storage is None:
            return list(map(_RAW, self.variables))
        values = []
        for i, array in enumerate(self.variables):
            if array.stype != "default":
                values.append(array.stored)
            else:
                values.append(all_rows(array.raw) if i in self.stored else array.raw)
        return values

    def copy_in(self, slot: int, value: Any) -> None:
        """Copy a tensor or a record into a variable's own array.

        Shape:
            value: as the variable.

        Args:
            value: of its shape and type.
        """
        array = self.variables[slot]
        if isinstance(array, (BaseSparseNDArray, RaggedNDArray)):
            array.take_over(value.clone())
        else:
            array.raw.copy_(value)

    def held_bytes(self) -> dict[str, int]:
        """Return the memory of the arrays in bytes: "arguments", "gradients" and "states"."""
        grads = [grad for grad in self.grads.values() if grad is not None]
        parts = ("arguments", self.args.values()), ("gradients", grads), ("states", self.aux.values())
        return {name: sum(map(stored_bytes, arrays)) for name, arrays in parts}


Arrays = tuple[dict[str, NDArray], dict[str, NDArray], dict[str, NDArray]]
"""Arguments, gradients and auxiliary states by name."""


def resize(
    graph: Graph, arrays: Arrays, given: Mapping[str, Any], partial_shaping: bool, allow_up_sizing: bool
) -> Arrays:
    """Return arrays for new input shapes; arrays whose shape stays are the same objects.

    Args:
        given: new shapes by argument name.
        partial_shaping: allow shapes of variables that are not in `given` to change.
    """
    args, grads, aux = (dict(part) for part in arrays)
    unknown = [k for k in given if k not in args]
    if unknown:
        raise ArgumentError(f"reshape: {', '.join(unknown)} is not an argument; arguments: {', '.join(args)}")
    with mode.np_shapes(graph.is_numpy):
        shapes = infer_shapes(graph, {k: read_shape(tuple(int(d) for d in v)) for k, v in given.items()})
    for node in (*graph.arguments, *graph.auxiliary):
        name, inferred = node.name, shapes[node][0]
        if inferred is None or not known(inferred):
            continue
        own, shape = args if name in args else aux, tuple(max(d, 0) for d in inferred)
        if shape == own[name].shape:
            continue
        if name not in given and not partial_shaping:
            raise ArgumentError(
                f"reshape: the shape of {name} changes from {own[name].shape} to {shape} although it was not "
                "given; set partial_shaping=True to allow this"
            )
        own[name] = _resized(name, own[name], shape, allow_up_sizing)
        if own is args and name in grads:
            grads[name] = _resized(f"gradient of {name}", grads[name], shape, allow_up_sizing)
    return args, grads, aux


def _resized(name: str, array: NDArray, shape: tuple[int, ...], grow: bool) -> NDArray:
    """Return a view of the head of an array in another shape, or a new array if it is too small and may grow."""
    if is_sparse(array):
        return allocate_as(array.stype, shape, array.context, dtype_name(array.dtype))
    if array.size >= prod(shape):
        return array.head_view(shape)
    if not grow:
        raise ArgumentError(
            f"reshape: {name} would grow from {array.shape} to {shape}; set allow_up_sizing=True to allow this"
        )
    return allocate(shape, array.context, dtype_name(array.dtype))


def write_into(array: NDArray, other: NDArray) -> None:
    """Write an array to the head of the memory of another one, if that is large enough.

    Shape:
        array: at most as many elements as the other one.
    """
    count = array.raw.numel()
    if count <= other.raw.numel():
        with torch.no_grad():
            other.raw.view(-1)[:count].copy_(array.raw.view(-1))
