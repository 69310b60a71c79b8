"""Drop steps whose results are never read, such as those that other passes replaced.

Operators with side effects stay: those that draw random numbers, since dropping one would change later draws, those
with states, and custom operators.

Needs:
    storage: any
    rank: any
    type: any
    layout: any
    gradients: any
"""

from __future__ import annotations

from ..lowering import Lowered, Step


def dead_steps(low: Lowered) -> int:
    """Drop the steps that no output, loss, state or other step needs.

    Returns:
        Number of dropped steps.
    """
    read = low.kept()
    steps: list[Step] = []
    for step in reversed(low.steps):
        if read.isdisjoint(step.outputs) and not low.has_effect(step):
            continue
        read.update(step.inputs)
        steps.append(step)
    count = len(low.steps) - len(steps)
    low.steps = steps[::-1]
    return count
