"""Pass the weights of a fused recurrent network as they are, instead of joining them for the operator to split.

Gluon's layers, and those imported from PyTorch, have a variable for each weight.

Needs:
    storage: dense
    rank: the weights of `rnn_weights.matrices`, one by one and in order; others are joined
    type: any
    layout: any
    gradients: any
"""

from __future__ import annotations

from typing import Any

import torch

from ...ops.spec import Env
from ..lowering import Lowered, Step

_NOTHING: tuple[None, Any] = None, None


class SeparateWeights:
    """The operator RNN with several tensors in place of its vector of parameters."""

    def __init__(self, step: Step, count: int) -> None:
        self._run, self._count = step.function, count

    def __call__(self, a: Any, env: Env, data: torch.Tensor, *given: torch.Tensor) -> Any:
        """Run the operator."""
        return self._run(a, env, data, given[: self._count], *given[self._count :])


def rnn_weights(low: Lowered) -> int:
    """Replace the joined parameters of recurrent networks.

    Returns:
        Number of networks.
    """
    made_by = {value: step for step in low.steps for value in step.outputs}
    held = low.held_by_operators()
    count = 0
    for step in low.steps:
        op, _ = low.operator(step)
        join = made_by.get(step.inputs[1]) if op is not None and op.name == "RNN" else None
        joined, a = low.operator(join) if join is not None else _NOTHING
        if join is None or joined is None or joined.name != "_rnn_param_concat" or a.dim != 0:
            continue
        weights = [_before_reshape(low, made_by.get(value), value) for value in join.inputs]
        if held.isdisjoint(weights):
            step.function = SeparateWeights(step, len(weights))
            step.inputs = [step.inputs[0], *weights, *step.inputs[2:]]
            count += 1
    return count


def _before_reshape(low: Lowered, step: Step | None, value: int) -> int:
    """Return the input of the step that flattens a weight; for another step, its value."""
    op, a = low.operator(step) if step is not None else _NOTHING
    # 0 and -2 copy axes, of which there may be several
    flattens = op is not None and op.name == "Reshape" and len(a.shape) == 1 and a.shape[0] not in (0, -2)
    return step.inputs[0] if step is not None and flattens else value
