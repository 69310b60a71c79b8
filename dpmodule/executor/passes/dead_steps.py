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


def _has_effect(low: Lowered, step: Step) -> bool:
    """Return True if a step has side effects."""
    if step.node < 0:
        return step.keeps or step.own_env
    node = low.graph.nodes[step.node]
    op = node.op
    return op is None or bool(
        op.draws(node.a, low.recorded)
        or (op.mutates or op.stateful or op.owner or op.read_attrs or node.subgraphs or step.keeps)
    )


def dead_steps(low: Lowered) -> int:
    """Drop the steps that no output, loss, state or other step needs.

    Returns:
        Number of dropped steps.
    """
    read = low.kept()
    steps: list[Step] = []
    for step in reversed(low.steps):
        if read.isdisjoint(step.outputs) and not _has_effect(low, step):
            continue
        read.update(step.inputs)
        steps.append(step)
    count = len(low.steps) - len(steps)
    low.steps = steps[::-1]
    return count
