"""Drop steps whose results nobody reads, such as those that other passes have replaced.

What has an effect beside its result stays: operators that draw random numbers, which later ones would otherwise draw,
those with states, and users' own.

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
    """Say whether a step does something beside making its results."""
    if step.node < 0:
        return step.keeps or step.own_env
    node = low.graph.nodes[step.node]
    op = node.op
    return op is None or bool(
        op.random or op.mutates or op.stateful or op.owner or op.read_attrs or node.subgraphs or step.keeps
    )


def dead_steps(low: Lowered) -> int:
    """Drop the steps that no output, no loss, no state and no other step needs.

    Returns:
        How many steps are dropped.
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
