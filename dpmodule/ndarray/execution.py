"""Execution and recording of operators on arrays: inputs, results, and states that backward writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from .._core import mode
from .._devices.generators import generator
from ..base import MXNetError
from ..context import Context
from ..ops import shapes
from ..ops.sparse import SparseCall, leaf_of, log_fallback, rule_of
from ..ops.spec import Env, Op
from ..ops.user_code import is_user_error
from . import tape
from .handle import Handle, Out, array_of
from .op_dispatch import PreparedOp, check_fitting, check_inputs, failure, no_array, targets_of

Tensors = Sequence[torch.Tensor | None]
_ERRORS = (
    RuntimeError, ValueError, IndexError, TypeError, AttributeError, KeyError, ArithmeticError, AssertionError
)  # fmt: skip
"""What torch, and operators in Python, raise for inputs or attributes that they do not take."""


def is_wanted(arrays: Sequence[Handle], out: Out) -> bool:
    """Return True if an input is in a graph, after checking that `out` may be written."""
    if out is not None:
        for target in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(target, Handle):
                tape.check_writable(target, arrays)
    found = False
    for array in arrays:
        trace = array.trace
        found = found or (trace is not None and trace[1].live)
    return found


def has_copies(arrays: Sequence[Handle], tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if a gradient flows through float64 copies of integers (see `tape.Variable`)."""
    return tape.TapeVariable.any_copies and any(
        array.stype == "default" and tensor.dtype is not array.raw.dtype
        for array, tensor in zip(arrays, tensors, strict=True)
    )


def states_of(
    plan: PreparedOp, arrays: Sequence[Handle], values: Tensors, again: Callable[[], Tensors]
) -> tape.States | None:
    """Return the auxiliary states that backward has to write; None if a call does not change them.

    Args:
        values: new values that the call returned after its outputs, None for unchanged states.
    """
    chosen = {i: position for i, position in plan.states if values[i] is not None}
    if not chosen:
        return None

    def taken(news: Tensors) -> list[torch.Tensor]:
        return [news[i].detach() for i in chosen]  # type: ignore[union-attr]  # None is left out

    states = tuple(arrays[position] for position in chosen.values())
    versions = tuple(state.raw._version for state in states)
    return tape.States(states, taken(values), versions, lambda: taken(again()))


def arrays_of(
    plan: PreparedOp, results: list[torch.Tensor], node: tape.TapeNode, ctx: Context, out: Out
) -> Any:
    """Return traced results as arrays, or write them to `out`.

    Args:
        out: arrays to write to, or None.
    """
    if out is not None:
        targets = targets_of(plan, results, out)
        tape.attach(targets, [tape.copy_into(r, t) for r, t in zip(results, targets, strict=True)], node)
        return out
    make = Handle.result_type
    if plan.visible == 1:
        made = make(results[0].data, ctx)
        made.trace = results[0], node
        return made
    arrays = [make(r.data, ctx) for r in results]
    tape.attach(arrays, results, node)
    return arrays


def record_by_rule(plan: PreparedOp, env: Env, arrays: Sequence[Handle]) -> Any:
    """Run an operator on stored values of sparse arrays, and record it.

    Returns:
        The resulting array, or a list of several; None if the operator has no rule for these inputs, or none of them is
        sparse.
    """
    kinds = tuple(array.stype for array in arrays)
    if not plan.alone and set(kinds) <= {"default"}:
        return None
    rule = rule_of(plan.op, kinds)
    if rule is None:
        return None
    stypes = rule.storage(plan.a, kinds)
    if stypes is None:
        return None
    values, nodes = tape.values_of(arrays)
    takes_rows = [
        kind != "default" or (isinstance(n, tape.TapeVariable) and n.grad.stype == "row_sparse")
        for kind, n in zip(kinds, nodes, strict=True)
    ]
    with torch.enable_grad():
        found = SparseCall(plan.op, rule, stypes, takes_rows)(plan.a, env, *values)
    results = found if isinstance(found, tuple) else (found,)
    made = [array_of(result.data, arrays[0].context) for result in results]
    traced = [leaf_of(result) for result in results]
    tape.attach(made, traced, tape.TapeNode(plan, nodes))
    return made[0] if len(made) == 1 else made


LazyRule = Callable[[Any, Sequence[Any], Callable[..., torch.Tensor], Any], Any]
"""Updates a weight by a sparse gradient from the attributes, inputs, the update as a function of tensors, and `out`.

It writes the states and `out`. If it returns None, the operator runs on dense copies.
"""

lazy_rules: dict[str, LazyRule] = {}
"""Sparse updates by operator name."""

_envs: dict[Context, tuple[Env, Env]] = {}


def environment(ctx: Context) -> Env:
    """Return the environment of operators in a context and this thread's mode.

    It is cached, since creating one costs as much as a small operator.
    """
    found = _envs.get(ctx)
    if found is None:
        device, gen = ctx.torch_device, generator(ctx)
        found = _envs[ctx] = (Env(device, gen, False, (), ctx), Env(device, gen, True, (), ctx))
    return found[mode.is_training()]


def execute(plan: PreparedOp, arrays: Sequence[Handle], ctx: Context | None = None, out: Out = None) -> Any:
    """Run a prepared operator; record it if this thread records and an input is in a graph.

    Args:
        ctx: context of the result; None means the first input's context.
        out: array, or list of arrays, to write the results into; None creates new ones.

    Returns:
        One array, or a list if the operator has several outputs; `out` if it is passed.
    """
    try:
        recorded = mode.is_recording() and is_wanted(arrays, out)
        found = _run_sparse(plan, arrays, out, recorded)
        if found is not None:
            return found
        tensors, nodes = tape.inputs_of(arrays) if recorded else ([x.raw for x in arrays], ())
    except AttributeError:
        if all(isinstance(x, Handle) for x in arrays):
            raise
        raise no_array(plan.op, arrays) from None
    ctx = ctx or arrays[0].context
    if recorded and has_copies(arrays, tensors):
        return _run_integers(plan, arrays, (tensors, nodes), ctx, out)
    if plan.same_type or plan.same_shape or plan.fitting is not None:
        check_inputs(plan, arrays, tensors)
    env = None if plan.function is not None else _env_with_shapes(plan, tensors, ctx)
    results, values = _attempt(plan, arrays, _run, plan, env, tensors, recorded)
    if values:
        _write_back(plan, arrays, values)
    if recorded:
        node = tape.TapeNode(plan, nodes)
        node.loss = results[0] if plan.is_loss else None
        if plan.states and values and results[0].requires_grad:
            node.states = states_of(plan, arrays, values, lambda: _run_plain(plan, env, tensors))
        return arrays_of(plan, results, node, ctx, out)
    if out is not None:
        return _write_out(plan, results, out)
    make = Handle.result_type
    return make(results[0], ctx) if plan.visible == 1 else [make(r, ctx) for r in results]


Results = tuple[list[torch.Tensor], Sequence[torch.Tensor | None]]
Traced = tuple[list[torch.Tensor], Sequence[tape.TapeNode | None]]


def _run_integers(plan: PreparedOp, arrays: Sequence[Handle], traced: Traced, ctx: Context, out: Out) -> Any:
    """Run an operator on integers, and again on the float64 copies through which their gradient flows.

    Operators that run users' code or do not accept float64, and results written to `out`, have no gradient.
    """
    with mode.scope(recording=False):
        result = execute(plan, arrays, ctx, out)
    if out is not None or plan.guarded:
        return result
    tensors, nodes = traced
    env = None if plan.function is not None else _env_with_shapes(plan, tensors, ctx)
    try:
        results, _ = _run(plan, env, tensors, True)
    except (MXNetError, RuntimeError, ValueError, TypeError):
        return result
    tape.attach([result] if plan.visible == 1 else result, results, tape.TapeNode(plan, nodes))
    return result


def _attempt(plan: PreparedOp, arrays: Sequence[Handle], run: Callable[..., Any], *given: Any) -> Any:
    """Return `run(*given)`, which runs an operator on arrays; errors describe them."""
    try:
        return run(*given)
    except MXNetError:
        raise
    except _ERRORS as error:
        if is_user_error(error):
            raise
        raise failure(plan, arrays, error) from error


def _run(plan: PreparedOp, env: Env | None, tensors: list[torch.Tensor], traced: bool = False) -> Results:
    """Return the visible outputs in their own memory, and the new values of the inputs that the operator mutates."""
    if traced is not torch.is_grad_enabled() and (traced or plan.guarded):
        with torch.set_grad_enabled(traced):
            return _run(plan, env, tensors, traced)
    results = plan.function(*tensors) if plan.function is not None else plan.op.run(plan.a, env, *tensors)
    if isinstance(results, (tuple, list)):
        outputs = [_own(plan.op, r, tensors) for r in results[: plan.visible]]
        values = results[plan.visible :]
    else:
        outputs, values = [_own(plan.op, results, tensors)], ()
    if not traced and outputs and outputs[0].requires_grad:  # a user has made an input's tensor require grad
        outputs = [r.detach() for r in outputs]
    return outputs, values


def _run_plain(
    plan: PreparedOp, env: Env | None, tensors: list[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """Return the current new values of the inputs that an operator mutates."""
    with torch.no_grad():
        return _run(plan, env, tensors)[1]


def _write_back(plan: PreparedOp, arrays: Sequence[Handle], values: Sequence[torch.Tensor | None]) -> None:
    for position, value in zip(plan.mutated, values, strict=True):
        if value is not None and position is not None:
            arrays[position].overwrite(value)


def _run_sparse(plan: PreparedOp, arrays: Sequence[Any], out: Out, recorded: bool) -> Any:
    """Run an operator on stored values of sparse arrays; None if all are dense or its rule does not cover them."""
    dense = Handle.result_type
    for array in arrays:
        if type(array) is not dense and isinstance(array, Handle) and array.stype != "default":
            break
    else:
        if not plan.alone:
            return None
    check = check_fitting if any(array.stype == "ragged" for array in arrays) else check_inputs
    check(plan, arrays, [array.stored for array in arrays])
    env = environment(arrays[0].context)
    if recorded:
        return _attempt(plan, arrays, record_by_rule, plan, env, arrays) if out is None else None
    with torch.no_grad():
        if plan.op.name in lazy_rules:
            target = out if out is None or out is arrays[0] else targets_of(plan, [arrays[0].stored], out)[0]
            return lazy_rules[plan.op.name](plan.a, arrays, partial(_run_on, plan, arrays[0].context), target)
        found = _attempt(plan, arrays, _by_rule, plan, env, arrays)
    if found is None:
        return None
    kinds, results = found
    ctx = arrays[0].context
    created = [array_of(result, ctx) for result in results]
    if out is None:
        return created[0] if len(created) == 1 else created
    if (
        len(created) == 1
        and isinstance(out, Handle)
        and created[0].shape == out.shape
        and created[0].stype == out.stype
    ):
        return created[0].copyto(out)
    return _write_out(plan, [array.raw for array in created], out)


def _by_rule(
    plan: PreparedOp, env: Env, arrays: Sequence[Any]
) -> tuple[tuple[str, ...], Sequence[Any]] | None:
    """Return the storage types and values from an operator's sparse rule; None if it has none for these inputs."""
    kinds = tuple(array.stype for array in arrays)
    rule = rule_of(plan.op, kinds)
    stypes = None if rule is None else rule.storage(plan.a, kinds)
    if rule is None or stypes is None:
        log_fallback(plan.op.name, kinds)
        return None
    found = rule.run(plan.a, env, *(array.stored for array in arrays))
    return stypes, found if isinstance(found, tuple) else (found,)


def _run_on(plan: PreparedOp, ctx: Context, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the first output of an operator; write the inputs that it mutates."""
    inputs = list(tensors)
    results, values = _run(
        plan, None if plan.function is not None else _env_with_shapes(plan, inputs, ctx), inputs
    )
    for position, value in zip(plan.mutated, values, strict=True):
        if value is not None and position is not None:
            inputs[position].copy_(value)
    return results[0]


def _env_with_shapes(plan: PreparedOp, tensors: list[torch.Tensor], ctx: Context) -> Env:
    """Return the context's environment, with the output shapes if the operator needs them."""
    env = environment(ctx)
    if not plan.op.needs_shapes:
        return env
    out_shapes = plan.out_shapes
    if not out_shapes:
        known = [tuple(t.shape) for t in tensors]
        _, outs = shapes.infer_shape(plan.op, plan.a, list(known), [None] * plan.visible)
        out_shapes = tuple(s or () for s in outs)
        if not tensors:
            plan.out_shapes = out_shapes
    return Env(env.device, env.generator, env.is_train, out_shapes, env.context)


def _own(op: Op, result: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return a result in C-contiguous memory that it shares with no input."""
    if op.view and tensors:
        shared = result.untyped_storage().data_ptr() == tensors[0].untyped_storage().data_ptr()
        if shared:
            return result.clone(memory_format=torch.contiguous_format)
    for tensor in tensors:
        if result is tensor:
            return result.clone(memory_format=torch.contiguous_format)
    return result if result.is_contiguous() else result.contiguous()


def _write_out(plan: PreparedOp, results: list[torch.Tensor], out: Out) -> Any:
    """Copy results into the arrays of `out`."""
    for target, result in zip(targets_of(plan, results, out), results, strict=True):
        target.overwrite(result)
    return out
