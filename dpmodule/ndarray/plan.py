"""Running an operator on arrays: preparing it once, then handing it tensors.

A call such as ``nd.elemwise_add(a, b)`` costs a look-up of its `Plan` and the torch call; the plan holds what
can be known before the tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import mode
from ..base import DTypeError, MXNetError, OpError, ShapeError
from ..context import Context
from ..generators import generator
from ..ops import infer, shapes
from ..ops.dtypes import name_of
from ..ops.spec import AUX, Env, Input, Op
from .handle import Handle

__all__ = ["Plan", "SparseRule", "execute", "plan_for", "sparse_rules"]

SparseRule = Callable[[Sequence[Any], Callable[..., torch.Tensor]], Any]
"""Runs an operator on arrays of which some are sparse, given its inputs and itself as a function of tensors.

It returns None where it has no answer; then the operator works on dense copies.
"""

sparse_rules: dict[str, SparseRule] = {}
"""What operators do with sparse arrays, by operator name; filled by the module that defines those arrays."""

_CACHED_PLANS = 4096
_KEYS = (int, str, bool, type, type(None), np.dtype, torch.dtype)


class Plan:
    """An operator whose attributes have been read, ready to run on tensors.

    Args:
        op: the operator.
        attributes: as given by the caller, values or text.
        count: number of inputs given.

    Attributes:
        a: the attributes, read.
        count: number of inputs the operator takes under them.
        function: what the operator is once its attributes are known, if that is one function of tensors.
        mutated: positions of the inputs it gives new values to; None for auxiliary states, which MXNet writes
            in the backward pass only.
        out_shapes: shapes of the outputs, once they are known, of an operator that asks for them and has no
            inputs.
        sparse: whether it has a rule for sparse arrays; if not, it works on dense copies.
        visible: number of outputs.
    """

    __slots__ = (
        "a",
        "count",
        "function",
        "mutated",
        "op",
        "out_shapes",
        "same_shape",
        "same_type",
        "sparse",
        "visible",
    )

    def __init__(self, op: Op, attributes: Mapping[str, Any], count: int) -> None:
        given = dict(attributes)
        variadic = op.variadic
        if variadic is not None and variadic.count in op.attrs and variadic.count is not None:
            stated = given.setdefault(variadic.count, count)
            if int(stated) != count:
                raise OpError(f"{op.name}: {variadic.count} is {stated}, but {count} inputs are given")
        self.op = op
        self.a = a = op.parse(given)
        inputs = op.wanted(a, count)
        names = [i.name for i in inputs]
        self.count = len(names)
        self.function = op.bind(a) if op.bind is not None else None
        self.mutated = tuple(_written(inputs, names.index(m)) for m in op.mutates if m in names)
        self.visible = len(op.output_names(a))
        self.out_shapes: tuple[tuple[int, ...], ...] = ()
        self.sparse = op.name in sparse_rules
        # what MXNet checks before it runs; torch would broadcast or promote instead
        self.same_shape = op.infer is shapes.same and count > 1
        self.same_type = op.infer_type in (None, shapes.same_types) and count > 1


def _written(inputs: Sequence[Input], position: int) -> int | None:
    return None if inputs[position].kind == AUX else position


_plans: dict[tuple[Any, ...], Plan] = {}
_envs: dict[Context, tuple[Env, Env]] = {}


def _env(ctx: Context) -> Env:
    """Return what operators may know on a context; kept, as making one costs as much as a small operator."""
    found = _envs.get(ctx)
    if found is None:
        device, gen = ctx.torch_device, generator(ctx)
        found = _envs[ctx] = (Env(device, gen, False), Env(device, gen, True))
    return found[mode.is_training()]


def _can_be_key(value: Any) -> bool:
    """Say whether equal values of a type mean equal attributes (0.0 and -0.0 do not)."""
    if isinstance(value, tuple):
        return all(type(v) is int for v in value)
    return isinstance(value, _KEYS) or (type(value) is float and value != 0.0)


def plan_for(op: Op, attributes: Mapping[str, Any], count: int) -> Plan:
    """Return the plan of a call, kept for the next one with equal attributes."""
    for value in attributes.values():
        if not _can_be_key(value):
            return Plan(op, attributes, count)
    # types too, as 1 == True == 1.0
    key = (op, count, *attributes.items(), *map(type, attributes.values()))
    found = _plans.get(key)
    if found is None:
        found = Plan(op, attributes, count)
        if len(_plans) >= _CACHED_PLANS:  # a sweep over scalars must not fill the memory
            _plans.clear()
        _plans[key] = found
    return found


def execute(plan: Plan, arrays: Sequence[Handle], ctx: Context | None = None, out: Any = None) -> Any:
    """Run a prepared operator.

    Args:
        plan: the operator with its attributes.
        arrays: its inputs.
        ctx: where the result goes; None = the first input's context.
        out: array, or list of arrays, to write the results into; None makes new ones.

    Returns:
        One array, or a list if the operator has several outputs; `out` itself where that is given.

    Raises:
        OpError: an input is not an array, or the operator failed on these inputs.
        ShapeError: the shapes do not fit each other, the operator or `out`.
        DTypeError: the types do not.
    """
    found = _run_sparse(plan, arrays, out) if plan.sparse else None
    if found is not None:
        return found
    try:
        tensors = [x.tensor for x in arrays]
    except AttributeError:
        raise _no_array(plan.op, arrays) from None
    if plan.same_type or plan.same_shape:
        _check_alike(plan, arrays, tensors)
    if ctx is None:
        ctx = arrays[0].context
    try:
        results = _run(plan, tensors, ctx)
    except MXNetError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError, KeyError) as error:
        raise _failure(plan, arrays, error) from error
    if plan.mutated:
        _write_back(plan, arrays, tensors)
    if out is not None:
        return _write_out(plan, results, out)
    make = Handle.result_type
    if plan.visible == 1:
        return make(results[0], ctx)
    return [make(r, ctx) for r in results[: plan.visible]]


def _run(plan: Plan, tensors: list[torch.Tensor], ctx: Context) -> list[torch.Tensor]:
    """Return the visible outputs in memory of their own, after writing back what the operator mutates."""
    if torch.is_grad_enabled():
        with torch.no_grad():
            return _run(plan, tensors, ctx)
    if plan.function is not None:
        results = plan.function(*tensors)
    else:
        results = plan.op.run(plan.a, _env_with_shapes(plan, tensors, ctx), *tensors)
    if not isinstance(results, (tuple, list)):
        return [_own(plan.op, results, tensors)]
    visible = [_own(plan.op, r, tensors) for r in results[: plan.visible]]
    for position, value in zip(plan.mutated, results[plan.visible :], strict=True):
        if value is not None and position is not None:
            tensors[position].copy_(value)
    return visible


def _run_sparse(plan: Plan, arrays: Sequence[Any], out: Any) -> Any:
    """Run an operator on what sparse arrays store; None if all are dense or its rule does not cover them."""
    dense = Handle.result_type
    for array in arrays:
        if type(array) is not dense and isinstance(array, Handle) and array.stype != "default":
            break
    else:
        return None
    rule, ctx = sparse_rules[plan.op.name], arrays[0].context
    with torch.no_grad():
        found = rule(arrays, lambda *tensors: _run(plan, list(tensors), ctx)[0])
    if found is None or out is None:
        return found
    return found.copyto(out) if found.stype == out.stype else _write_out(plan, [found.tensor], out)


def _write_back(plan: Plan, arrays: Sequence[Handle], tensors: list[torch.Tensor]) -> None:
    """Give sparse arrays the new values that went into their dense copies."""
    for position in plan.mutated:
        if position is not None and arrays[position].stype != "default":
            arrays[position].overwrite(tensors[position])


def _env_with_shapes(plan: Plan, tensors: list[torch.Tensor], ctx: Context) -> Env:
    """Return the context's environment, with the output shapes where the operator asks for them."""
    env = _env(ctx)
    if not plan.op.needs_shapes:
        return env
    found = plan.out_shapes
    if not found:
        known = [tuple(t.shape) for t in tensors]
        _, outs = infer.infer_shape(plan.op, plan.a, list(known), [None] * plan.visible)
        found = tuple(s or () for s in outs)
        if not tensors:
            plan.out_shapes = found
    return Env(env.device, env.generator, env.is_train, found)


def _own(op: Op, result: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return a result as C-contiguous memory that no input shares."""
    if op.view and tensors:
        shared = result.untyped_storage().data_ptr() == tensors[0].untyped_storage().data_ptr()
        if shared:
            return result.clone(memory_format=torch.contiguous_format)
    for tensor in tensors:
        if result is tensor:
            return result.clone(memory_format=torch.contiguous_format)
    return result if result.is_contiguous() else result.contiguous()


def _write_out(plan: Plan, results: list[torch.Tensor], out: Any) -> Any:
    """Copy results into the arrays given as `out`."""
    targets = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) != len(results):
        raise OpError(f"{plan.op.name}: out has {len(targets)} arrays, expected {len(results)}")
    for target, result in zip(targets, results, strict=True):
        if not isinstance(target, Handle):
            raise OpError(f"{plan.op.name}: out is {type(target).__name__}, expected NDArray")
        if target.shape != result.shape:
            raise ShapeError(f"{plan.op.name}: out has shape {target.shape}, expected {tuple(result.shape)}")
        kind = target.tensor.dtype
        if kind != result.dtype:
            have, want = name_of(kind), name_of(result.dtype)
            raise DTypeError(f"{plan.op.name}: out has type {have}, expected {want}")
    for target, result in zip(targets, results, strict=True):
        target.overwrite(result)
    return out


def _check_alike(plan: Plan, arrays: Sequence[Handle], tensors: list[torch.Tensor]) -> None:
    """Refuse inputs of different types, and of different shapes where the operator does not broadcast."""
    first = tensors[0]
    for tensor in tensors[1:]:
        if plan.same_type and tensor.dtype != first.dtype:
            raise DTypeError(
                f"{plan.op.name} takes inputs of one type, got {_listed(arrays)}; convert with astype"
            )
        if plan.same_shape and tensor.shape != first.shape:
            raise ShapeError(
                f"{plan.op.name} takes inputs of one shape, got {_listed(arrays)}; "
                "the broadcast_* operators stretch lengths of 1"
            )


def _listed(arrays: Sequence[Any]) -> str:
    return (
        ", ".join(x.describe() if isinstance(x, Handle) else type(x).__name__ for x in arrays) or "no inputs"
    )


def _no_array(op: Op, arrays: Sequence[Any]) -> OpError:
    """Name the input that is no array."""
    position, value = next((i, x) for i, x in enumerate(arrays) if not isinstance(x, Handle))
    names = [i.name for i in op.inputs] if isinstance(op.inputs, tuple) else []
    name = names[position] if position < len(names) else f"input {position}"
    hint = "nd.from_torch(x)" if isinstance(value, torch.Tensor) else "nd.array(x)"
    shown = f" {value!r}" if isinstance(value, (int, float, str)) else ""
    return OpError(
        f"{op.name}: {name} is {type(value).__name__}{shown}, expected NDArray; convert it with {hint}"
    )


def _failure(plan: Plan, arrays: Sequence[Handle], error: Exception) -> MXNetError:
    """Turn torch's complaint into an error that names the operator and its inputs."""
    text = f"{plan.op.name} failed on {_listed(arrays)}"
    try:
        infer.infer_shape(plan.op, plan.a, [x.shape for x in arrays], [None] * plan.visible)
    except ShapeError as reason:
        return ShapeError(f"{text}: {reason}")
    except MXNetError:  # the rule is asked for a better message only
        pass
    words = str(error).splitlines() or [type(error).__name__]
    return OpError(f"{text}: {words[0]}")
