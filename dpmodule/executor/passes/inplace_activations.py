"""Let activations and sums write over what they read, where nothing needs it any more.

Fresh memory for every result costs page faults and room in the cache. The operator that made the value must not need
its result for backward: BatchNorm and convolutions keep their inputs, as does a sum that keeps nothing; and this step
must be the only reader.

Needs:
    storage: dense
    rank: any; terms of a sum of one shape
    type: floating point, and one for the terms of a sum; others get memory of their own
    layout: any
    gradients: none of the very value that is written over
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch

from ...ops.math.relu import relu_over
from ..lowering import Lowered, Step
from . import FORGETFUL

__all__ = ["inplace_activations"]

_ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "relu": relu_over,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}
_SUM = "elemwise_add"


def _may_write(x: torch.Tensor) -> bool:
    """Say whether a tensor may be written over: not where its own gradient is recorded, as in runs step by step."""
    return x.is_floating_point() and not (x.is_leaf and x.requires_grad)


class _ActivateOver:
    """An activation that writes over its input, where it may."""

    def __init__(self, plain: Callable[..., torch.Tensor], over: Callable[..., torch.Tensor]) -> None:
        self._plain, self._over = plain, over

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._over(x) if _may_write(x) else self._plain(x)


class _AddOver:
    """A sum that writes over one of its terms, where it may and the sum fits."""

    def __init__(self, plain: Callable[..., torch.Tensor], position: int) -> None:
        self._plain, self._position = plain, position

    def __call__(self, *terms: torch.Tensor) -> torch.Tensor:
        target, other = terms[self._position], terms[1 - self._position]
        if _may_write(target) and target.shape == other.shape and target.dtype == other.dtype:
            return target.add_(other)
        return self._plain(*terms)


def _forgets_its_result(low: Lowered, step: Step) -> bool:
    """Say whether a step makes fresh memory that autograd does not keep."""
    op, a = low.operator(step)
    if op is None or step.covers:
        return False
    if op.name == "BatchNorm":
        return bool(a.axis == 1) and not a.output_mean_var
    if op.name == "Convolution":
        return len(a.kernel) == 2 and a.layout in (None, "NCHW")
    return op.name in FORGETFUL


def _over_input(low: Lowered, step: Step, free: set[int]) -> Step | None:
    """Return the step that does the same over one of its inputs, None if there is none."""
    op, a = low.operator(step)
    if op is None or step.takes_env or step.covers:
        return None
    if op.name == _SUM:
        for position in (1, 0):
            if step.inputs[position] in free and step.inputs[0] != step.inputs[1]:
                return replace(step, function=_AddOver(step.function, position), name="add_")
        return None
    kind = a.act_type if op.name == "Activation" else op.name
    if op.name not in ("Activation", *_ACTIVATIONS) or kind not in _ACTIVATIONS or step.inputs[0] not in free:
        return None
    over = torch.relu_ if op.name == "Activation" and kind == "relu" else _ACTIVATIONS[kind]
    return replace(step, function=_ActivateOver(step.function, over), name=f"{kind}_")


def inplace_activations(low: Lowered) -> int:
    """Replace activations and sums by those that write over their input.

    Returns:
        How many are replaced.
    """
    if low.mirrored:  # steps that are run again read what they have read before
        return 0
    readers = Counter(value for step in low.steps for value in step.inputs)
    kept = low.kept()
    free: set[int] = set()
    count = 0
    for i, step in enumerate(low.steps):
        found = _over_input(low, step, free)
        if found is not None:
            low.steps[i] = found
            count += 1
        if _forgets_its_result(low, step):
            free.update(value for value in step.outputs[:1] if readers[value] == 1 and value not in kept)
    return count
