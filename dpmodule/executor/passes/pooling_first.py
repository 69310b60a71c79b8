"""Apply activations after max pooling instead of before it, which takes a fraction of the work.

Both orders give the same numbers if the activation is monotonic. The gradient goes to the same element of a window if
the activation is strictly increasing, or if its gradient is zero where it is constant, as relu's is. Other activations
may round two neighbouring numbers to one value; the gradient then goes to the greater of them instead of the first,
while both are within rounding of the maximum. In half precision, where this is frequent, their order stays. `clip`,
whose gradient is not zero at its limits, and activations that decrease somewhere or turn infinite numbers into NaN are
never moved.

Windows entirely in the padding would give the activation of the least number, so poolings that allow such windows are
skipped.

Needs:
    storage: dense
    rank: any
    type: any for relu; the others in half precision stay before the pooling
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch

from ...ops.dtypes import HALF
from ..lowering import Lowered, Step

_NAMED = frozenset({"relu", "sigmoid", "tanh"})
_MONOTONIC = frozenset({"elu", "leaky", "softrelu", *_NAMED})


def _kind(low: Lowered, step: Step) -> str:
    """Return the kind of activation; "" for an activation that must not move and for any other step."""
    op, a = low.operator(step)
    if op is None or step.takes_env:
        return ""
    if op.name == "Activation":
        kind = str(a.act_type)
    elif op.name == "LeakyReLU":
        kind = str(a.act_type) if a.slope > 0 else ""
    else:
        kind = op.name if op.name in _NAMED else ""
    return kind if kind in _MONOTONIC else ""


def _takes_maximum(low: Lowered, step: Step) -> bool:
    """Return True if a step is a max pooling with a stride above 1 whose windows all contain data."""
    op, a = low.operator(step)
    if op is None or op.name != "Pooling" or a.pool_type != "max":
        return False
    if a.global_pool:
        return True
    rank = len(a.kernel)
    strides, pads = a.stride[:rank] or (1,) * rank, a.pad[:rank] or (0,) * rank
    if a.pooling_convention == "same" or not len(strides) == len(pads) == rank or max(strides) == 1:
        return False
    sides = zip(a.kernel, strides, pads, strict=True)
    over = a.pooling_convention == "full"  # the last window may exceed the data by almost a stride
    return all(2 * p <= k and (p + s <= k or not over) for k, s, p in sides)


def may_follow(low: Lowered, activation: Step, pooling: Step) -> bool:
    """Return True if an activation may move after the max pooling that reads it."""
    return bool(_kind(low, activation)) and _takes_maximum(low, pooling)


class PoolingFirst:
    """Max pooling followed by an activation, in the opposite order for half precision."""

    def __init__(self, activation: Step, pooling: Step) -> None:
        self.activation, self._pooling = activation, pooling

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        steps = (self.activation, self._pooling) if x.dtype in HALF else (self._pooling, self.activation)
        for step in steps:
            x = step.function(x)
        return x


def pooling_first(low: Lowered) -> int:
    """Move activations whose only reader is a max pooling after it.

    Returns:
        Number of moved activations.
    """
    kept = low.kept()
    readers = Counter(value for step in low.steps for value in step.inputs)
    active: dict[int, Step] = {}
    steps: list[Step] = []
    count = 0
    for step in low.steps:
        first = active.get(step.inputs[0]) if _takes_maximum(low, step) else None
        steps.append(step)
        if first is not None:
            steps.remove(first)
            steps[-1:] = _swapped(low, first, step)
            count += 1
        elif _kind(low, step) and readers[step.outputs[0]] == 1 and step.outputs[0] not in kept:
            active[step.outputs[0]] = step
    low.steps = steps
    return count


def _swapped(low: Lowered, first: Step, pool: Step) -> list[Step]:
    """Return the steps that replace an activation and the following pooling."""
    if _kind(low, first) != "relu":
        both = PoolingFirst(first, pool)
        name = f"{pool.name}_{first.name}"
        step = Step(both, name, None, first.inputs, pool.outputs, pool.node, takes_env=False)
        step.covers = (first.node,)
        return [step]
    largest = low.new_value(f"{low.names[pool.outputs[0]]}_first")
    return [
        replace(pool, inputs=first.inputs, outputs=[largest]),
        replace(first, inputs=[largest], outputs=pool.outputs),
    ]
