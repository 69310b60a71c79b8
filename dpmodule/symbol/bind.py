"""From a symbol to an executor: `bind` takes arrays, `simple_bind` allocates them, `evaluate` runs once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, ShapeError, dtype_name
from ..context import Context, current_context
from ..executor import Executor, allocate, from_pool, requirements
from ..graph import Graph, infer_shapes, infer_types
from ..ndarray import NDArray

if TYPE_CHECKING:
    from .symbol import Symbol

__all__ = ["bind", "evaluate", "simple_bind"]


def _context(ctx: Any) -> Context:
    if not isinstance(ctx, Context):
        raise ArgumentError(f"ctx is {ctx!r}, expected a Context such as mx.cpu()")
    return ctx.check()


def _named(what: str, names: Sequence[str], given: Any, *, partial: bool) -> dict[str, NDArray]:
    """Turn a list in the order of `names`, or a dict, into a dict of arrays.

    Raises:
        ArgumentError: wrong length, missing names, or something that is no NDArray.
    """
    if given is None:
        given = {}
    if isinstance(given, Mapping):
        found = {k: v for k, v in given.items() if k in names and v is not None}
    elif isinstance(given, Iterable):
        values = list(given)
        if len(values) != len(names):
            raise ArgumentError(f"{what}: got {len(values)} arrays, expected {len(names)}: {', '.join(names)}")
        found = {k: v for k, v in zip(names, values) if v is not None}
    else:
        raise ArgumentError(f"{what} is {type(given).__name__}, expected a list or dict of NDArrays")
    missing = [] if partial else [k for k in names if k not in found]
    if missing:
        raise ArgumentError(f"{what}: missing {', '.join(missing)}")
    for key, value in found.items():
        if not isinstance(value, NDArray):
            raise ArgumentError(f"{what}: {key} is {type(value).__name__}, expected an NDArray")
    return found


def _check_shapes(graph: Graph, args: Mapping[str, NDArray], aux: Mapping[str, NDArray]) -> None:
    """Refuse arrays that do not fit together.

    Raises:
        ShapeError: names the node or array.
    """
    arrays = {**args, **aux}
    shapes = infer_shapes(graph, {k: v.shape for k, v in arrays.items()})
    for node in (*graph.arguments, *graph.auxiliary):
        have = arrays[node.name].shape
        if have != shapes[node][0]:
            raise ShapeError(f"{node.name} has shape {have}, the graph needs {shapes[node][0]}")


def bind(
    symbol: Symbol,
    ctx: Context,
    args: Any,
    args_grad: Any = None,
    grad_req: Any = "write",
    aux_states: Any = None,
    group2ctx: Any = None,
    shared_exec: Executor | None = None,
) -> Executor:
    """Bind given arrays.

    Args:
        symbol: what to run.
        ctx: where.
        args: an NDArray for every argument, as a list in the order of `list_arguments` or a dict.
        args_grad: arrays that receive gradients; those left out get none.
        grad_req: "write", "add" or "null" for all, or a list or dict of these per argument.
        aux_states: an NDArray for every auxiliary state.
        group2ctx: refused unless empty.
        shared_exec: accepted as in MXNet; executors need no shared buffers here.

    Raises:
        ArgumentError: arrays are missing, or names or types do not fit.
        ShapeError: shapes contradict the graph.
    """
    graph = symbol.graph
    graph.check_names()
    _refuse_groups(group2ctx)
    names, states = graph.argument_names, graph.auxiliary_names
    arg_arrays = _named("args", names, args, partial=False)
    aux_arrays = _named("aux_states", states, aux_states, partial=False)
    grads = _named("args_grad", names, args_grad, partial=True)
    reqs = requirements(names, grad_req)
    for array in (*arg_arrays.values(), *aux_arrays.values(), *grads.values()):
        array.pinned = True
    _check_shapes(graph, arg_arrays, aux_arrays)
    for key, grad in grads.items():
        if grad.shape != arg_arrays[key].shape:
            raise ShapeError(f"args_grad: {key} has shape {grad.shape}, its argument {arg_arrays[key].shape}")
    reqs = {k: (r if k in grads else "null") for k, r in reqs.items()}
    return Executor(graph, _context(ctx), arg_arrays, grads, reqs, aux_arrays)


def _refuse_groups(group2ctx: Any) -> None:
    if group2ctx:
        raise ArgumentError("group2ctx: model parallelism by context groups is not available yet")


def simple_bind(
    symbol: Symbol,
    ctx: Context,
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    stype_dict: Mapping[str, str] | None = None,
    group2ctx: Any = None,
    shared_arg_names: Sequence[str] | None = None,
    shared_exec: Executor | None = None,
    shared_buffer: dict[str, NDArray] | None = None,
    **kwargs: Any,
) -> Executor:
    """Infer every shape and type, allocate the arrays and return an Executor.

    Args:
        symbol: what to run.
        ctx: where.
        grad_req: "write", "add" or "null" for all, or a list or dict of these per argument.
        type_dict: dtypes of arguments by name (default float32).
        stype_dict: storage types; only "default" exists so far.
        group2ctx: refused unless empty.
        shared_arg_names: arguments whose arrays, and gradients, are those of `shared_exec`.
        shared_exec: executor that `shared_arg_names` and auxiliary states are borrowed from.
        shared_buffer: pool of arrays by name for all other arguments.
        kwargs: shapes of arguments by name.

    Raises:
        ShapeError: a shape stays unknown or contradicts another.
    """
    graph = symbol.graph
    graph.check_names()
    _refuse_groups(group2ctx)
    context = _context(ctx)
    types = infer_types(graph, {k: dtype_name(v) for k, v in (type_dict or {}).items()}, default="float32")
    shapes = infer_shapes(graph, symbol._given_shapes((), kwargs))
    _check_known(graph, shapes)
    reqs = requirements(graph.argument_names, grad_req)
    shared = set(shared_arg_names or ()) if shared_exec is not None else set()
    args: dict[str, NDArray] = {}
    grads: dict[str, NDArray] = {}
    for node in graph.arguments:
        key, shape, dtype = node.name, tuple(shapes[node][0] or ()), types[node][0] or "float32"
        needs_grad = reqs[key] != "null"
        if shared_exec is not None and key in shared:
            args[key] = shared_exec.arg_dict[key]
            if needs_grad and shared_exec.grad_dict.get(key) is not None:
                grads[key] = shared_exec.grad_dict[key]
                continue
        elif shared_buffer is not None:
            args[key] = from_pool(shared_buffer, key, shape, context, dtype)
            if needs_grad:
                grads[key] = from_pool(shared_buffer, f"grad of {key}", shape, context, dtype)
            continue
        else:
            args[key] = allocate(shape, context, dtype)
        if needs_grad:
            grads[key] = allocate(shape, context, dtype)
    if shared_exec is not None and shared:
        aux = {k: shared_exec.aux_dict[k] for k in graph.auxiliary_names}
    else:
        aux = {
            n.name: allocate(tuple(shapes[n][0] or ()), context, types[n][0] or "float32") for n in graph.auxiliary
        }
    return Executor(graph, context, args, grads, reqs, aux)


def _check_known(graph: Graph, shapes: Mapping[Any, list[Any]]) -> None:
    """Refuse to allocate what is not fully known.

    Raises:
        ShapeError: names the arguments that need a shape.
    """
    unknown = [
        f"{n.name} {shapes[n][0] or ''}".strip()
        for n in (*graph.arguments, *graph.auxiliary)
        if shapes[n][0] is None or 0 in (shapes[n][0] or ())
    ]
    if unknown:
        raise ShapeError(f"cannot infer the shape of {', '.join(unknown)}; give their shapes, or those of more inputs")


def evaluate(symbol: Symbol, ctx: Context | None = None, **kwargs: NDArray) -> list[NDArray]:
    """Run the graph once, forward only.

    Args:
        symbol: what to run.
        ctx: where; None for the current context.
        kwargs: an NDArray for every argument.
    """
    names, states = symbol.graph.argument_names, symbol.graph.auxiliary_names
    unknown = [k for k in kwargs if k not in names and k not in states]
    if unknown:
        raise ArgumentError(f"eval: {', '.join(unknown)} is no argument; arguments: {', '.join(names)}")
    args = {k: v for k, v in kwargs.items() if k in names}
    aux = {k: v for k, v in kwargs.items() if k in states}
    executor = bind(symbol, ctx or current_context(), args, None, "null", aux)
    return list(executor.forward())
