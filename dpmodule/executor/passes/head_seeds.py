"""Compute the gradient with which backward starts at a loss in the memory of the loss's input.

The input, such as the scores of a last dense layer, is not needed any more once forward is done. With a large
vocabulary it is the largest tensor of all, and the pages of fresh memory cost more than the arithmetic.

It must be read by the loss alone, and be made by an operator of which autograd does not need the result; it may be
a view, such as a reshape, of what such an operator makes. What users see of the loss is its output, which lies
elsewhere.

Needs:
    storage: dense
    rank: that of the loss's output
    type: that of the loss's output
    layout: contiguous
    gradients: of a loss that was cut
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..lowering import LossHead, Lowered, Step

__all__ = ["head_seeds"]

_SUMS = {"broadcast_add", "broadcast_sub", "elemwise_add", "elemwise_sub"}
_FORGETS_ITS_RESULT = _SUMS | {"BatchNorm", "Convolution", "FullyConnected", "batch_dot", "dot"}


def _is_free(low: Lowered, loss: LossHead, made_by: dict[int, Step], readers: Counter[int]) -> bool:
    """Say whether nothing needs the memory of a loss's input after forward."""
    if loss.op.loss is None or not loss.op.loss.takes_memory or loss.op.view:
        return False
    value = loss.root
    while value in made_by and readers[value] == 1:
        step = made_by[value]
        op, _ = low.operator(step)
        if op is None or step.covers:
            return False
        if not op.view:
            return op.name in _FORGETS_ITS_RESULT
        value = step.inputs[0]
    return False


def head_seeds(low: Lowered) -> int:
    """Mark the losses that may write their gradient over their input.

    Returns:
        How many losses may.
    """
    made_by = {value: step for step in low.steps for value in step.outputs}
    readers = Counter(value for step in low.steps for value in step.inputs)
    readers.update(low.heads)
    readers.update(new for _, new, _ in low.mutated)
    readers.update(value for loss in low.losses for value in loss.rest if value >= low.num_variables)
    low.losses = [
        replace(loss, in_place=True) if _is_free(low, loss, made_by, readers) else loss for loss in low.losses
    ]
    return sum(loss.in_place for loss in low.losses)
