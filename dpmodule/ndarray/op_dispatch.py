"""`PreparedOp`: an operator with parsed attributes, cached for similar calls; checks of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..base import DTypeError, MXNetError, OpError, ShapeError
from ..ops import shapes
from ..ops.dtypes import name_of
from ..ops.sparse import has_dense_rule
from ..ops.spec import AUX, Op
from .handle import Handle, Out

_CACHED_PLANS, _KNOWN_SHAPES = 4096, 64
_KEYS = (int, str, bool, type, type(None), np.dtype, torch.dtype)


class PreparedOp:
    """An operator with parsed attributes, ready to run on tensors.

    Args:
        count: number of inputs of the call.

    Attributes:
        alone: True if its rule for sparse arrays also applies to dense inputs.
        count: number of inputs with these attributes.
        fitting: known shapes of inputs that fit each other; None for an operator that checks its inputs itself.
        function: the operator as one function of tensors for these attributes, if there is one.
        guarded: True if it runs users' code, which may have tensors that require grad.
        is_loss: True if its output ignores its head gradient.
        mutated: positions of the inputs that it writes; None for auxiliary states, which MXNet writes only in the
            backward pass.
        out_shapes: known output shapes of an operator that needs them and has no inputs.
        states: auxiliary states with new values: index among these, and position among the inputs.
        visible: number of outputs.
    """

    __slots__ = (
        "a",
        "alone",
        "count",
        "fitting",
        "function",
        "guarded",
        "is_loss",
        "mutated",
        "op",
        "out_shapes",
        "same_shape",
        "same_type",
        "states",
        "visible",
    )

    def __init__(self, op: Op, attributes: Mapping[str, Any], count: int) -> None:
        passed = dict(attributes)
        variadic = op.variadic
        if variadic is not None and variadic.count in op.attrs and variadic.count is not None:
            passed.setdefault(variadic.count, variadic.units(count))
            a = op.parse(passed)
            stated = getattr(a, variadic.count)
            if variadic.total(stated) != count and not variadic.is_fixed(a):
                raise OpError(f"{op.name}: {variadic.count} is {stated}, but {count} inputs are given")
        self.op = op
        self.a = a = op.parse(passed)
        inputs = op.active_inputs(a, count)
        self.count = len(inputs)
        self.function = op.bind(a) if op.bind is not None else None
        self.mutated = tuple(
            None if inputs[position].kind == AUX and not now else position
            for position, now in op.mutated_inputs(inputs)
        )
        self.states = tuple(
            (i, position)
            for i, (position, now) in enumerate(op.mutated_inputs(inputs))
            if inputs[position].kind == AUX and not now
        )
        self.is_loss = op.is_loss(a)
        self.guarded = op.owner is not None or op.read_attrs is not None
        self.visible = len(op.output_names(a))
        self.out_shapes: tuple[tuple[int, ...], ...] = ()
        self.alone = has_dense_rule(op, a)
        # for inputs of other sizes, torch may read foreign memory or broadcast, and losses fail only in backward
        self.fitting: set[tuple[torch.Size, ...]] | None = None
        if op.infer not in (None, shapes.same, shapes.broadcasting) and count > 1:
            self.fitting = set()
        # MXNet checks this first; torch would broadcast or promote instead
        self.same_shape = op.infer is shapes.same and count > 1
        self.same_type = op.infer_type in (None, shapes.same_types) and count > 1


_plans: dict[tuple[Any, ...], PreparedOp] = {}


def can_be_key(value: object) -> bool:
    """Return True if equal values of a type mean equal attributes (0.0 and -0.0 do not)."""
    if isinstance(value, tuple):
        return all(type(v) is int or (type(v) is float and v != 0.0) for v in value)
    return isinstance(value, _KEYS) or (type(value) is float and value != 0.0)


def plan_for(op: Op, attributes: Mapping[str, Any], count: int) -> PreparedOp:
    """Return the plan of a call, cached for calls with equal attributes."""
    if op.read_attrs is not None:  # their meaning may change with the next call
        return PreparedOp(op, attributes, count)
    for value in attributes.values():
        if not can_be_key(value):
            return PreparedOp(op, attributes, count)
    # types too, as 1 == True == 1.0
    key = (op, count, *attributes.items(), *map(type, attributes.values()))
    plan = _plans.get(key)
    if plan is None:
        plan = PreparedOp(op, attributes, count)
        if len(_plans) >= _CACHED_PLANS:  # a sweep over scalars must not fill the memory
            _plans.clear()
        _plans[key] = plan
    return plan


def check_inputs(plan: PreparedOp, arrays: Sequence[Handle], tensors: Sequence[torch.Tensor]) -> None:
    """Raise for inputs of different types, or of shapes that the operator does not take."""
    first = tensors[0]
    for tensor in tensors[1:]:
        if plan.same_type and tensor.dtype != first.dtype:
            raise DTypeError(
                f"{plan.op.name} takes inputs of one type, got {_listed(arrays)}; convert with astype"
            )
        if plan.same_shape and tensor.shape != first.shape:
            raise ShapeError(
                f"{plan.op.name} takes inputs of one shape, got {_listed(arrays)}; "
                "use a broadcast_* operator to repeat axes of length 1"
            )
    check_fitting(plan, arrays, tensors)


def check_fitting(plan: PreparedOp, arrays: Sequence[Handle], tensors: Sequence[torch.Tensor]) -> None:
    """Raise for shapes that the operator's rule refuses, among them a length of 0 that the rule reads as unknown."""
    if plan.fitting is None or (found := tuple([tensor.shape for tensor in tensors])) in plan.fitting:
        return
    given = list(map(tuple, found))
    try:
        wanted, _ = shapes.infer_shape(plan.op, plan.a, [*given], [None] * plan.visible)
    except ShapeError as reason:
        raise ShapeError(f"{plan.op.name} failed on {_listed(arrays)}: {reason}") from reason
    if wanted != given:
        raise ShapeError(f"{plan.op.name} takes inputs of shapes {wanted}, got {_listed(arrays)}")
    if len(plan.fitting) >= _KNOWN_SHAPES:
        plan.fitting.clear()
    plan.fitting.add(found)


def _listed(arrays: Sequence[Any]) -> str:
    return (
        ", ".join(x.describe() if isinstance(x, Handle) else type(x).__name__ for x in arrays) or "no inputs"
    )


def no_array(op: Op, arrays: Sequence[Any]) -> OpError:
    """Return the error for an input that is not an array."""
    position, value = next((i, x) for i, x in enumerate(arrays) if not isinstance(x, Handle))
    names = [i.name for i in op.inputs] if isinstance(op.inputs, tuple) else []
    name = names[position] if position < len(names) else f"input {position}"
    hint = "nd.from_torch(x)" if isinstance(value, torch.Tensor) else "nd.array(x)"
    shown = f" {value!r}" if isinstance(value, (int, float, str)) else ""
    return OpError(
        f"{op.name}: {name} is {type(value).__name__}{shown}, expected NDArray; convert it with {hint}"
    )


def failure(plan: PreparedOp, arrays: Sequence[Handle], error: Exception) -> MXNetError:
    """Return an error for torch's exception that names the operator and its inputs."""
    text = f"{plan.op.name} failed on {_listed(arrays)}"
    try:
        shapes.infer_shape(plan.op, plan.a, [x.shape for x in arrays], [None] * plan.visible)
    except ShapeError as reason:
        return ShapeError(f"{text}: {reason}")
    except MXNetError:  # the rule only provides a better message
        pass
    words = str(error).splitlines() or [type(error).__name__]
    return OpError(f"{text}: {words[0]}")


def targets_of(plan: PreparedOp, results: Sequence[torch.Tensor], out: Out) -> list[Handle]:
    """Return the arrays of `out`, checked against the results."""
    targets: list[Any] = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) != len(results):
        raise OpError(f"{plan.op.name}: out has {len(targets)} arrays, expected {len(results)}")
    for target, result in zip(targets, results, strict=True):
        if not isinstance(target, Handle):
            raise OpError(f"{plan.op.name}: out is {type(target).__name__}, expected NDArray")
        if target.shape != result.shape:
            raise ShapeError(f"{plan.op.name}: out has shape {target.shape}, expected {tuple(result.shape)}")
        kind = target.raw.dtype
        if kind != result.dtype:
            have, want = name_of(kind), name_of(result.dtype)
            raise DTypeError(f"{plan.op.name}: out has type {have}, expected {want}")
    return targets
