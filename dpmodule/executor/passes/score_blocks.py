"""Run the last dense layer of a large vocabulary and its softmax in blocks of rows.

`ops.nn.chunked_softmax` describes the gain. The fused step may also write the probabilities to the memory of the last
run's, if nothing else refers to it.

Needs:
    storage: dense
    rank: data (N, ...), and one label for each row; else both layers run separately
    type: one for data and weight, float32 or float64, on the CPU; else both layers run separately
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ...ops.spec import LossOutput
from ..lowering import Lowered, Step
from . import MIN_CLASSES


def _is_scores(low: Lowered, step: Step) -> bool:
    """Return True if a step is a dense layer with many outputs, unchanged by other passes."""
    op, a = low.operator(step)
    is_dense = op is not None and op.name == "FullyConnected" and a.flatten and a.num_hidden >= MIN_CLASSES
    return is_dense and step.fixed is None and not (step.takes_env or step.covers)


def _is_simple(low: Lowered, step: Step) -> bool:
    """Return True if a step is a softmax whose gradient is a scaled probability minus label."""
    op, a = low.operator(step)
    return (
        op is not None
        and op.name == "SoftmaxOutput"
        and op.loss is not None
        and step.function is op.loss.forward
        and not (a.multi_output or a.smooth_alpha or a.out_grad)
    )


def _fused(low: Lowered, dense: Step, softmax: Step) -> Step:
    """Return the fused step."""
    from ...ops.nn.chunked_softmax import ChunkedSoftmax, predict_chunked, train_chunked

    _, a = low.operator(softmax)
    fixed = ChunkedSoftmax(a, dense.function, len(dense.inputs) == 3)
    return Step(
        train_chunked if low.recorded else predict_chunked,
        "score_blocks",
        fixed,
        [*dense.inputs, softmax.inputs[1]],
        [*dense.outputs, *softmax.outputs] if low.recorded else list(softmax.outputs),
        softmax.node,
        own_env=True,
        covers=(dense.node,),
        reuses=True,
    )


def _cut_below(low: Lowered, value: int) -> None:
    """Make backward start with the gradient rule of the fused step."""
    from ...ops.nn.chunked_softmax import chunked_head_gradient

    for i, loss in enumerate(low.losses):
        rule: Any = loss.op.loss
        if loss.root == value:
            own = LossOutput(rule.forward, chunked_head_gradient, rule.when, rule.probe)
            low.losses[i] = replace(loss, op=replace(loss.op, loss=own))


def score_blocks(low: Lowered) -> int:
    """Fuse dense layers of many outputs with the `SoftmaxOutput` that is their only reader.

    If backward may follow, the softmax must be a cut loss, whose gradient does not depend on other outputs.

    Returns:
        Number of fused pairs.
    """
    readers = Counter(value for step in low.steps for value in step.inputs)
    made_by = {value: step for step in low.steps for value in step.outputs}
    cut = {loss.root for loss in low.losses}
    others = {*low.heads, *(new for _, new, _ in low.mutated)}
    others.update(value for loss in low.losses for value in loss.rest)
    steps: dict[int, Step] = {}
    gone: set[int] = set()
    for step in low.steps:
        if not _is_simple(low, step):
            continue
        value = step.inputs[0]
        dense = made_by.get(value)
        if dense is None or not _is_scores(low, dense) or readers[value] > 1 or value in others:
            continue
        if low.recorded:
            if value not in cut:
                continue
            _cut_below(low, value)
        steps[id(step)] = _fused(low, dense, step)
        gone.add(id(dense))
    low.steps = [steps.get(id(step), step) for step in low.steps if id(step) not in gone]
    return len(gone)
