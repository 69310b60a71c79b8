"""Compute equal operators on equal inputs once.

The gradients of all readers add up at the remaining operator. The result is the same, since the backward of every
operator that may merge is linear. Operators that draw random numbers, have states, run user code, are losses, or need
their output shapes are not merged.

Source: MXNet 1.9.1, which does this at binding; MXNET_ELIMINATE_COMMON_EXPR=0 disables it here, too.

Needs:
    storage: dense; steps on sparse values are not merged
    rank: any
    type: any
    layout: any
    gradients: any; those of all readers of a value add up
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...graph.node import may_merge
from ..lowering import Lowered, Step


def _key(low: Lowered, step: Step) -> Any:
    """Return the key that equal steps share; None for a step that must stay.

    Attributes are compared as text, in which 0.0 and -0.0 differ; other attributes of the node do not affect values.
    """
    if step.node < 0 or step.own_env or step.needs_shapes or low.is_sparse(step):
        return None
    node = low.graph.nodes[step.node]
    if not may_merge(node):
        return None
    return node.op, tuple(sorted(node.params.items())), tuple(step.inputs)


def common_subexpressions(low: Lowered) -> int:
    """Drop steps that repeat an earlier step.

    Returns:
        Number of dropped steps.
    """
    known: dict[Any, Step] = {}
    same: dict[int, int] = {}
    steps: list[Step] = []
    for step in low.steps:
        step.inputs = [same.get(value, value) for value in step.inputs]
        key = _key(low, step)
        first = None if key is None else known.setdefault(key, step)
        if first is None or first is step:
            steps.append(step)
        else:
            same.update(zip(step.outputs, first.outputs, strict=True))
            first.covers = (*first.covers, step.node)
    count = len(low.steps) - len(steps)
    if count:
        low.steps = steps
        low.heads = [same.get(value, value) for value in low.heads]
        low.losses = [
            replace(
                loss,
                root=same.get(loss.root, loss.root),
                rest=tuple(same.get(value, value) for value in loss.rest),
            )
            for loss in low.losses
        ]
    return count
