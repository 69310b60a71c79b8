"""What is known of an operator's call before its tensors are: `PreparedOp`, made once and kept for calls alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..base import OpError
from ..ops import shapes
from ..ops.sparse import counts_alone
from ..ops.spec import AUX, Op

_CACHED_PLANS = 4096
_KEYS = (int, str, bool, type, type(None), np.dtype, torch.dtype)


class PreparedOp:
    """An operator whose attributes have been read, ready to run on tensors.

    Args:
        count: number of inputs given.

    Attributes:
        alone: its rule for sparse arrays counts even where all inputs are dense.
        count: number of inputs the operator takes under them.
        function: what the operator is once its attributes are known, if that is one function of tensors.
        guarded: it runs users' code, which may have tensors of its own that require grad.
        mutated: positions of the inputs it gives new values to; None for auxiliary states, which MXNet writes
            in the backward pass only.
        out_shapes: shapes of the outputs, once they are known, of an operator that asks for them and has no
            inputs.
        states: auxiliary states with new values: number among these, and position among the inputs.
        visible: number of outputs.
    """

    __slots__ = (
        "a",
        "alone",
        "count",
        "function",
        "guarded",
        "mutated",
        "op",
        "out_shapes",
        "same_shape",
        "same_type",
        "states",
        "visible",
    )

    def __init__(self, op: Op, attributes: Mapping[str, Any], count: int) -> None:
        given = dict(attributes)
        variadic = op.variadic
        if variadic is not None and variadic.count in op.attrs and variadic.count is not None:
            given.setdefault(variadic.count, variadic.units(count))
            a = op.parse(given)
            stated = getattr(a, variadic.count)
            if variadic.total(stated) != count and not variadic.is_fixed(a):
                raise OpError(f"{op.name}: {variadic.count} is {stated}, but {count} inputs are given")
        self.op = op
        self.a = a = op.parse(given)
        inputs = op.wanted(a, count)
        self.count = len(inputs)
        self.function = op.bind(a) if op.bind is not None else None
        self.mutated = tuple(
            None if inputs[position].kind == AUX and not now else position
            for position, now in op.written(inputs)
        )
        self.states = tuple(
            (i, position)
            for i, (position, now) in enumerate(op.written(inputs))
            if inputs[position].kind == AUX and not now
        )
        self.guarded = op.owner is not None or op.read_attrs is not None
        self.visible = len(op.output_names(a))
        self.out_shapes: tuple[tuple[int, ...], ...] = ()
        self.alone = counts_alone(op, a)
        # what MXNet checks before it runs; torch would broadcast or promote instead
        self.same_shape = op.infer is shapes.same and count > 1
        self.same_type = op.infer_type in (None, shapes.same_types) and count > 1


_plans: dict[tuple[Any, ...], PreparedOp] = {}


def can_be_key(value: object) -> bool:
    """Say whether equal values of a type mean equal attributes (0.0 and -0.0 do not)."""
    if isinstance(value, tuple):
        return all(type(v) is int or (type(v) is float and v != 0.0) for v in value)
    return isinstance(value, _KEYS) or (type(value) is float and value != 0.0)


def plan_for(op: Op, attributes: Mapping[str, Any], count: int) -> PreparedOp:
    """Return the plan of a call, kept for the next one with equal attributes."""
    if op.read_attrs is not None:  # what they mean may change with the next call
        return PreparedOp(op, attributes, count)
    for value in attributes.values():
        if not can_be_key(value):
            return PreparedOp(op, attributes, count)
    # types too, as 1 == True == 1.0
    key = (op, count, *attributes.items(), *map(type, attributes.values()))
    found = _plans.get(key)
    if found is None:
        found = PreparedOp(op, attributes, count)
        if len(_plans) >= _CACHED_PLANS:  # a sweep over scalars must not fill the memory
            _plans.clear()
        _plans[key] = found
    return found
