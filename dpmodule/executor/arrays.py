"""The arrays an executor is bound to, as users see them: arguments, gradients, states and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError, ShapeError, dtype_name
from ..context import Context
from ..graph import Graph, Node, infer_shapes, infer_types
from ..ndarray import NDArray
from ..ndarray.convert import tensor_of
from ..ops.dtypes import name_of
from ..ops.shapes import prod
from .malloc import settle
from .memory import allocate
from .placement import Placement
from .sparse_arrays import allocate_as, is_sparse, kinds_of, stored_bytes
from .storage import storage_of

__all__ = ["Binding", "BoundArrays", "assign"]


def assign(name: str, target: NDArray, value: Any) -> None:
    """Copy a value into an array.

    Args:
        name: what the array is called in messages.
        target: the array.
        value: an NDArray, tensor, NumPy array or nested list of the array's shape.

    Raises:
        ShapeError: the value has another shape.
        DTypeError: the value holds no numbers.
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


@dataclass(frozen=True, slots=True)
class Binding:
    """What an executor is bound to.

    Attributes:
        graph: what is going to run.
        ctx: where.
        args: an array for every argument.
        grads: arrays for gradients.
        grad_req: "write", "add" or "null" for every argument.
        aux: an array for every auxiliary state.
        shapes: result of `infer_shapes`, if it is at hand.
        types: result of `infer_types`, if it is at hand.
        places: context of each node, if not all of them run on `ctx`.
        stypes: storage types by which the graph knows dense arguments: "row_sparse" ones count as storing all rows,
            so that their gradients may have some.
    """

    graph: Graph
    ctx: Context
    args: Mapping[str, NDArray]
    grads: Mapping[str, NDArray]
    grad_req: Mapping[str, str]
    aux: Mapping[str, NDArray]
    shapes: Mapping[Node, Any] | None = None
    types: Mapping[Node, Any] | None = None
    places: Placement | None = None
    stypes: Mapping[str, str] | None = None


class BoundArrays:
    """A graph, a context, and an array for each of the graph's variables and outputs.

    Args:
        binding: what is bound.
    """

    def __init__(self, binding: Binding) -> None:
        graph, ctx, grads, req = binding.graph, binding.ctx, binding.grads, binding.grad_req
        self.graph = graph
        self._places = binding.places or {}
        self.context = ctx
        self.grad_req = dict(req)
        names = graph.argument_names
        self._args = {name: binding.args[name] for name in names}
        self._aux = {name: binding.aux[name] for name in graph.auxiliary_names}
        self._grads = {name: grads.get(name) if req.get(name) != "null" else None for name in names}
        self._variables = [*self._args.values(), *self._aux.values()]
        self._slots = {name: i for i, name in enumerate((*self._args, *self._aux))}
        every = {**self._args, **self._aux}
        self._shapes = binding.shapes or infer_shapes(graph, {k: v.shape for k, v in every.items()})
        types = binding.types or infer_types(
            graph, {k: dtype_name(v.dtype) for k, v in every.items()}, default="float32"
        )
        self._stypes = {
            name: stype for name, stype in (binding.stypes or {}).items() if stype == "row_sparse"
        }
        self._stored = {i for i, name in enumerate(every) if name in self._stypes}
        self._storage = storage_of(graph, {**self._stypes, **kinds_of(every)})
        self._outputs = [
            self._allocate_head(node, i, tuple(self._shapes[node][i] or ()), types[node][i] or "float32")
            for node, i in graph.heads
        ]
        if ctx.torch_device.type == "cpu":
            settle(4 * self.size)
        self._given_up = False
        self._borrowed: dict[int, torch.Tensor] = {}

    def _allocate_head(self, node: Node, i: int, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Return an array for an output."""
        ctx = self.context_of(node)
        if self._storage is None:
            return allocate(shape, ctx, dtype)
        return allocate_as(self._storage.of((node, i)), shape, ctx, dtype)

    def context_of(self, node: Node) -> Context:
        """Return the context that a node of the graph runs on."""
        return self._places.get(node, self.context)

    @property
    def node_shapes(self) -> Mapping[Node, Any]:
        """Shapes of every node's outputs."""
        return self._shapes

    def held_bytes(self) -> dict[str, int]:
        """Return the memory of the arrays in bytes: "arguments", "gradients", "states" and "outputs"."""
        grads = [grad for grad in self._grads.values() if grad is not None]
        parts = ("arguments", self._args.values()), ("gradients", grads), ("states", self._aux.values())
        return {name: sum(map(stored_bytes, arrays)) for name, arrays in (*parts, ("outputs", self._outputs))}

    @cached_property
    def size(self) -> int:
        """Number of elements of what all operators make, outputs included."""
        made = (shapes for node, shapes in self._shapes.items() if node.op is not None)
        return sum(prod(shape) for shapes in made for shape in shapes if shape is not None)

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name."""
        self._own_inputs()
        return self._args

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Gradients by argument name; None where no gradient is kept."""
        return self._grads

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """Auxiliary states by name."""
        return self._aux

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs of the last forward by name.

        Raises:
            ArgumentError: two outputs have one name.
        """
        found = dict(zip(self.graph.output_names, self.outputs))
        if len(found) < len(self._outputs):
            raise ArgumentError(
                f"output_dict: two outputs have one name: {', '.join(self.graph.output_names)}"
            )
        return found

    @property
    def _ctx(self) -> Context:
        """The context, under the name that code written for MXNet reads."""
        return self.context

    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments in the order of `list_arguments`."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients in the order of `list_arguments`; None where no gradient is kept."""
        return list(self._grads.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states in the order of `list_auxiliary_states`."""
        return list(self._aux.values())

    @property
    def outputs(self) -> list[NDArray]:
        """Outputs of the last forward. The same objects every time: they show the newest values."""
        if self._given_up:
            self._outputs = [
                allocate_as(o.stype, o.shape, o.context, dtype_name(o.dtype)) for o in self._outputs
            ]
            self._given_up = False
        return self._outputs

    def _give_up_outputs(self) -> None:
        """Put new arrays in place of the outputs, which take no memory until somebody looks at them."""
        self._outputs = [
            allocate_as(o.stype, o.shape, o.context, dtype_name(o.dtype))
            if is_sparse(o)
            else NDArray(o.raw.new_zeros(()).expand(o.shape), o.context)
            for o in self._outputs
        ]
        self._given_up = True

    def input_array(self, name: str) -> NDArray:
        """Return an argument's own array without bringing it up to date; for loading the next batch."""
        return self._args[name]

    def _own_inputs(self) -> list[int]:
        """Copy inputs that the last forward read in place into the arrays; return which ones."""
        copied = list(self._borrowed)
        for slot, tensor in self._borrowed.items():
            if is_sparse(self._variables[slot]):
                self._variables[slot].take_over(tensor.clone())  # type: ignore[attr-defined]
            else:
                self._variables[slot].raw.copy_(tensor)
        self._borrowed = {}
        return copied

    def copy_params_from(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy parameters and states into this executor's arrays.

        Args:
            arg_params: arrays by argument name, of the argument's shape.
            aux_params: arrays by state name.
            allow_extra_params: pass over names that are not in the graph.

        Raises:
            ArgumentError: a name is not in the graph.
            ShapeError: a shape does not fit.
        """
        parts = ("argument", arg_params, self.arg_dict), ("auxiliary state", aux_params, self._aux)
        for kind, given, own in parts:
            for name, value in (given or {}).items():
                if name in own:
                    assign(name, own[name], value)
                elif not allow_extra_params:
                    raise ArgumentError(
                        f"copy_params_from: {name!r} is no {kind} of this graph: {', '.join(own)}"
                    )
