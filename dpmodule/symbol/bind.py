"""Executors from symbols: `bind` takes arrays, `simple_bind` allocates them, `evaluate` runs once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core import mode
from ..base import ArgumentError, DeviceError, DTypeError, Shape, ShapeError, dtype_name
from ..context import Context, context_of, current_context
from ..executor import Binding, Executor, Placement, allocate, from_pool, grad_reqs, place_nodes
from ..executor.gradients import check_differentiable
from ..executor.sparse_arrays import allocate_as
from ..executor.storage_types import declared_storage_types, gradient_storage_types, infer_storage_types
from ..graph import Graph, Node, infer_from_arrays, infer_shapes, infer_types
from ..graph.infer import allocated
from ..ndarray import NDArray
from ..ops.shapes import known
from .inference import as_shape

if TYPE_CHECKING:
    from ..types import ContextLike, DTypeLike, GradReqLike

Arrays: TypeAlias = "Mapping[str, NDArray] | Sequence[NDArray | None] | None"
"""Arrays of arguments by name, or in the order of `list_arguments`."""


def _context(ctx: ContextLike) -> Context:
    return context_of(ctx).check()


def _named(what: str, names: Sequence[str], values: Arrays, *, partial: bool) -> dict[str, NDArray]:
    """Return arrays from a list in the order of `names`, or a dict, as a dict."""
    if values is None:
        values = {}
    if isinstance(values, Mapping):
        arrays = {k: v for k, v in values.items() if k in names and v is not None}
    elif isinstance(values, Iterable):
        listed = list(values)
        if len(listed) != len(names):
            raise ArgumentError(
                f"{what}: got {len(listed)} arrays, expected {len(names)}: {', '.join(names)}"
            )
        arrays = {k: v for k, v in zip(names, listed) if v is not None}
    else:
        raise ArgumentError(f"{what} is {type(values).__name__}, expected a list or dict of NDArrays")
    missing = [] if partial else [k for k in names if k not in arrays]
    if missing:
        raise ArgumentError(f"{what}: missing {', '.join(missing)}")
    for key, value in arrays.items():
        if not isinstance(value, NDArray):
            raise ArgumentError(f"{what}: {key} is {type(value).__name__}, expected an NDArray")
    return arrays


def _checked_shapes(
    graph: Graph, args: Mapping[str, NDArray], aux: Mapping[str, NDArray]
) -> dict[Node, list[Shape]]:
    """Return all shapes inferred from the arrays; raise if they are inconsistent."""
    arrays = {**args, **aux}
    shapes = infer_from_arrays(graph, {k: v.shape for k, v in arrays.items()})
    for node in (*graph.arguments, *graph.auxiliary):
        have = arrays[node.name].shape
        if have != shapes[node][0]:
            raise ShapeError(f"{node.name} has shape {have}, the graph needs {shapes[node][0]}")
    return shapes


def bind(
    symbol: Any,
    /,
    ctx: ContextLike,
    args: Arrays,
    args_grad: Arrays = None,
    grad_req: GradReqLike = "write",
    aux_states: Arrays = None,
    group2ctx: Mapping[str, ContextLike] | None = None,
    shared_exec: Executor | None = None,
) -> Executor:
    """Bind a symbol to arrays.

    Args:
        symbol: symbol to run.
        ctx: context of the executor.
        args: an NDArray for every argument, as a list in the order of `list_arguments` or a dict.
        args_grad: arrays for gradients; other arguments have none. Arrays of arguments whose `grad_req` is "null" are
            in the executor's `grad_dict` and are not written.
        grad_req: "write", "add" or "null" for all, or a list or dict of these per argument.
        aux_states: an NDArray for every auxiliary state.
        group2ctx: context of each group of ``AttrScope(ctx_group=...)``; see `executor.place_nodes`.
        shared_exec: accepted as in MXNet; executors need no shared buffers here.

    Raises:
        ArgumentError: arrays are missing, or names or types do not match.
        ShapeError: shapes contradict the graph.

    Source: MXNet 1.9.1 `Symbol.bind`.
    """
    graph: Graph = symbol.graph
    graph.check_names()
    context = _context(ctx)
    placement = place_nodes(graph, context, group2ctx)
    names, states = graph.argument_names, graph.auxiliary_names
    arg_arrays = _named("args", names, args, partial=False)
    aux_arrays = _named("aux_states", states, aux_states, partial=False)
    grads = _named("args_grad", names, args_grad, partial=True)
    reqs = grad_reqs(names, grad_req)
    shapes = _checked_shapes(graph, arg_arrays, aux_arrays)
    for key, grad in grads.items():
        if reqs[key] == "null":
            continue
        if (grad.stype == "ragged") is not (arg_arrays[key].stype == "ragged"):
            raise ArgumentError(
                f"args_grad: {key} is stored as {grad.stype}, its argument as {arg_arrays[key].stype}; the gradient of "
                "a ragged argument is ragged"
            )
        if grad.shape != arg_arrays[key].shape:
            raise ShapeError(f"args_grad: {key} has shape {grad.shape}, its argument {arg_arrays[key].shape}")
    reqs = {k: (r if k in grads else "null") for k, r in reqs.items()}
    check_differentiable(graph, (k for k, r in reqs.items() if r != "null"))
    _check_devices(graph, context, placement, {**arg_arrays, **aux_arrays})
    binding = Binding(graph, context, arg_arrays, grads, reqs, aux_arrays, shapes, placement=placement)
    executor = Executor(binding, symbol)
    for array in (*arg_arrays.values(), *aux_arrays.values(), *grads.values()):
        array.pinned = True
    return executor


_STYPES = ("default", "row_sparse", "csr", "ragged")


def _storage_types(graph: Graph, requested: Mapping[str, str]) -> dict[str, str]:
    """Return the storage types of variables that are not dense: requested, declared, or required by operators."""
    for name, stype in requested.items():
        if stype not in _STYPES:
            raise ArgumentError(f"stype_dict: {name} is {stype!r}, expected one of {', '.join(_STYPES)}")
    stypes = {
        name: stype
        for name, stype in {**declared_storage_types(graph), **requested}.items()
        if stype != "default"
    }
    variables = [node for node in graph.nodes if node.op is None and "__storage_type__" not in node.attrs]
    storage = infer_storage_types(graph, stypes, {node.name for node in variables} - {*requested})
    settled = {} if storage is None else storage.values
    return stypes | {node.name: stype for (node, _), stype in settled.items() if node.op is None}


def _check_devices(graph: Graph, ctx: Context, placement: Placement, arrays: Mapping[str, NDArray]) -> None:
    """Raise for arrays on another device than the node that reads them."""
    for node in (*graph.arguments, *graph.auxiliary):
        wanted, array = placement.get(node, ctx), arrays[node.name]
        if array.context.torch_device != wanted.torch_device:
            raise DeviceError(
                f"{node.name} is on {array.context}, but is bound to {wanted}; copy it there with as_in_context"
            )


@dataclass(frozen=True, slots=True)
class _MemorySource:
    """Source of the arrays of `simple_bind`: another executor, a pool, or new memory."""

    contexts: Mapping[str, Context]
    names: frozenset[str]
    executor: Executor | None
    pool: dict[str, NDArray] | None
    stypes: Mapping[str, str]
    grad_stypes: Mapping[str, str]

    def argument(self, name: str, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Return the array of an argument."""
        if self.executor is not None and name in self.names:
            return _fitting(name, self.executor.arg_dict, shape, dtype)
        stype = self.stypes.get(name)
        if stype is not None:
            return allocate_as(stype, shape, self.contexts[name], dtype)
        return self._own(name, name, shape, dtype)

    def gradient(self, name: str, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Return the array of an argument's gradient."""
        if self.executor is not None and name in self.names:
            shared = self.executor.grad_dict.get(name)
            return allocate(shape, self.contexts[name], dtype) if shared is None else shared
        stype = self.grad_stypes.get(name)
        if stype is not None:
            return allocate_as(stype, shape, self.contexts[name], dtype)
        return self._own(name, f"grad of {name}", shape, dtype)

    def state(self, name: str, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Return the array of an auxiliary state, shared with the other executor if it has one."""
        if self.executor is not None and self.names and name in self.executor.aux_dict:
            return _fitting(name, self.executor.aux_dict, shape, dtype)
        return allocate_as(self.stypes.get(name, "default"), shape, self.contexts[name], dtype, name)

    def _own(self, name: str, key: str, shape: tuple[int, ...], dtype: str) -> NDArray:
        if self.pool is not None:
            return from_pool(self.pool, key, shape, self.contexts[name], dtype)
        return allocate_as("default", shape, self.contexts[name], dtype, key)


def _fitting(name: str, arrays: Mapping[str, NDArray], shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return the array of a name from the shared executor."""
    array = arrays.get(name)
    if array is None:
        raise ArgumentError(f"shared_exec has no {name!r}; it has {', '.join(arrays)}")
    if array.shape != shape:
        raise ShapeError(f"shared_exec has {name} of shape {array.shape}, this graph needs {shape}")
    if dtype_name(array.dtype) != dtype:
        raise DTypeError(
            f"shared_exec has {name} of type {dtype_name(array.dtype)}, this graph needs {dtype}"
        )
    return array


def _known_names(graph: Graph, what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names that the graph has, and warn about others; MXNet drops them silently."""
    names = {*graph.argument_names, *graph.auxiliary_names}
    unknown = [k for k in values if k not in names]
    if unknown:
        warnings.warn(f"simple_bind: {what} of {', '.join(unknown)} ignored: no such argument", stacklevel=3)
    return {k: v for k, v in values.items() if k in names}


def simple_bind(
    symbol: Any,
    /,
    ctx: ContextLike,
    grad_req: GradReqLike = "write",
    type_dict: Mapping[str, DTypeLike] | None = None,
    stype_dict: Mapping[str, str] | None = None,
    group2ctx: Mapping[str, ContextLike] | None = None,
    shared_arg_names: Iterable[str] | None = None,
    shared_exec: Executor | None = None,
    shared_buffer: dict[str, NDArray] | None = None,
    **kwargs: Any,
) -> Executor:
    """Infer every shape and type, allocate the arrays and return an Executor.

    Args:
        symbol: symbol to run.
        ctx: context of the executor.
        grad_req: "write", "add" or "null" for all, or a list or dict of these per argument.
        type_dict: dtypes of arguments by name (default float32).
        stype_dict: storage types of variables by name, "default", "row_sparse", "csr" or "ragged"; others have that of
            their ``Variable(stype=...)``. Operators determine the storage types of gradients.
        group2ctx: context of each group of ``AttrScope(ctx_group=...)``; see `executor.place_nodes`.
        shared_arg_names: arguments that share arrays and gradients with `shared_exec`.
        shared_exec: executor that owns `shared_arg_names` and the auxiliary states.
        shared_buffer: pool of arrays by name for all other arguments.
        kwargs: shapes of arguments by name; names that the graph lacks are ignored with a warning.

    Raises:
        ArgumentError: an option is not available, or two variables have one name.
        ShapeError: a shape is unknown or contradicts another.
        DTypeError: types contradict each other.

    Source: MXNet 1.9.1 `Symbol.simple_bind`.
    """
    graph: Graph = symbol.graph
    graph.check_names()
    context = _context(ctx)
    placement = place_nodes(graph, context, group2ctx)
    given_types = _known_names(graph, "the type", type_dict or {})
    types = infer_types(graph, {k: dtype_name(v) for k, v in given_types.items()}, default="float32")
    given_shapes = _known_names(graph, "the shape", kwargs)
    with mode.np_shapes(graph.is_numpy):
        shapes = infer_shapes(graph, {k: as_shape(k, v) for k, v in given_shapes.items()})
    _check_known(graph, shapes)
    shapes = allocated(shapes)
    reqs = grad_reqs(graph.argument_names, grad_req)
    check_differentiable(graph, (k for k, r in reqs.items() if r != "null"))
    contexts = {n.name: placement.get(n, context) for n in graph.nodes if n.op is None}
    stypes = _storage_types(graph, _known_names(graph, "the storage type", stype_dict or {}))
    storage = infer_storage_types(graph, stypes)
    grad_stypes = {} if storage is None else gradient_storage_types(graph, storage)
    source = _MemorySource(
        contexts, frozenset(shared_arg_names or ()), shared_exec, shared_buffer, stypes, grad_stypes
    )
    every = {
        n.name: (tuple(shapes[n][0] or ()), types[n][0] or "float32") for n in graph.nodes if n.op is None
    }
    args = {key: source.argument(key, *every[key]) for key in graph.argument_names}
    grads = {key: source.gradient(key, *every[key]) for key in graph.argument_names if reqs[key] != "null"}
    aux = {key: source.state(key, *every[key]) for key in graph.auxiliary_names}
    return Executor(Binding(graph, context, args, grads, reqs, aux, shapes, types, placement), symbol)


def _check_known(graph: Graph, shapes: Mapping[Any, list[Any]]) -> None:
    """Raise if the shape of an argument is not fully known."""
    unknown = [
        f"{n.name} {shapes[n][0] or ''}".strip()
        for n in (*graph.arguments, *graph.auxiliary)
        if not known(shapes[n][0])
    ]
    if unknown:
        raise ShapeError(
            f"cannot infer the shape of {', '.join(unknown)}; pass their shapes, or those of more inputs"
        )


def evaluate(symbol: Any, /, ctx: ContextLike | None = None, **kwargs: Any) -> list[NDArray]:
    """Run the graph once, forward only.

    Args:
        symbol: symbol to run.
        ctx: context; None means the current one.
        **kwargs: arrays by name; others than those of arguments and auxiliary states are ignored.

    Raises:
        ArgumentError: an array is missing.
        ShapeError: shapes contradict the graph.

    Source: MXNet 1.9.1 `Symbol.eval`.
    """
    names, states = symbol.graph.argument_names, symbol.graph.auxiliary_names
    args = {k: v for k, v in kwargs.items() if k in names}
    aux = {k: v for k, v in kwargs.items() if k in states}
    executor = bind(symbol, ctx or current_context(), args, None, "null", aux)
    return list(executor.forward())
