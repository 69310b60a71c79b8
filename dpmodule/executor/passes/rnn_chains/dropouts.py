"""Dropout in two steps: drawing what is kept, and dropping the rest.

Between the layers of an unrolled network, dropout is one operator for each time step and layer, and their random
numbers come from one generator in the order of the operators. Drawn by steps of their own, which read nothing that
a chain makes, they keep that order while whole layers run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ....ops.nn.activation import kept
from ....ops.spec import Env
from ...lowering import Lowered, Step

_FEWEST = 3


def draw(a: Any, env: Env, like: torch.Tensor) -> torch.Tensor:
    """Return ones for elements that are kept and zeros for others; nothing at all if no element is dropped.

    Shape:
        like, returns: of any one shape; (0,) if no element is dropped.
    """
    if not env.is_train:
        return like.new_empty(0)
    return kept(1.0 - a.p, list(env.out_shapes[0]), like.detach(), env.generator)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Set elements to zero and scale the others, as `Dropout` does, by what has been drawn.

    Shape:
        x, mask, result: of one shape; mask (0,) if no element is dropped.
    """

    p: float

    def __call__(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return what is left of a value or sequence."""
        if not mask.numel():
            return x
        return x * mask.to(x.dtype).div(1.0 - self.p)


def _is_dropped(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return op is not None and op.name == "Dropout" and a.mode == "training" and a.p > 0 and not a.axes


def draw_apart(low: Lowered, like: int) -> list[Step]:
    """Return the steps with every dropout in two, if there are several and backward may follow."""
    if not low.recorded or like >= low.num_variables:
        return low.steps
    if sum(step.takes_env and _is_dropped(low, step) for step in low.steps) < _FEWEST:
        return low.steps
    steps: list[Step] = []
    for step in low.steps:
        if not _is_dropped(low, step):
            steps.append(step)
            continue
        _, a = low.operator(step)
        (data,) = step.inputs
        mask = low.new_value(f"{low.names[step.outputs[0]]}_kept")
        steps.append(
            replace(step, function=draw, name="draw", inputs=[like], outputs=[mask], needs_shapes=True)
        )
        dropped = Step(Dropped(a.p), "dropped", None, [data, mask], step.outputs, -1, takes_env=False)
        dropped.covers = step.node, *step.covers
        steps.append(dropped)
    return steps
