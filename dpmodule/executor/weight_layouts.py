"""Weights of convolutions in channels_last, copied together for each training run.

Convolutions of channels_last data read their weights in this layout, and return such gradients. `Backward` copies the
gradients to their arrays, which have the usual layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ..ops.nn.relayout import can_relayout
from .arrays import BoundArrays
from .lowering import Step
from .program import Program


def restrided_weights(bound: BoundArrays, program: Program) -> list[int]:
    """Return the slots of the arguments that a program only reads as weights in channels_last."""
    low = program.low
    if "channels_last" not in low.fired or bound.storage is not None:
        return []
    readers = Counter(value for step in low.steps for value in step.inputs) + Counter(low.kept())
    sources = {step.outputs[0]: step.inputs[0] for step in low.steps if step.name == "channels_last"}
    found = set()
    for step in low.steps:
        op, _ = low.operator(step)
        if op is None or op.name != "Convolution" or step.takes_env:
            continue
        value = step.inputs[1]
        slot = sources.get(value, value)
        if (
            slot < low.num_variables
            and readers[slot] == 1
            and can_relayout(bound.variables[slot].raw)
            and (value in sources or _restrides(bound, step))
        ):
            found.add(slot)
    return sorted(found)


def _restrides(bound: BoundArrays, step: Step) -> bool:
    """Return True if a convolution's function copies the weight to channels_last, for the bound shapes."""
    restrides: Callable[[Sequence[int]], bool] | None = getattr(step.function, "restrides", None)
    node, output = bound.graph.nodes[step.node].inputs[0]
    return restrides is not None and restrides(bound.shapes[node][output])
