"""Compute parameters that are made of other parameters once, such as the weights of a recurrent network.

For prediction only.

Memory: a copy of such a parameter when it is used unchanged for the second time, until it changes.

Needs:
    storage: dense
    rank: any
    type: any
    layout: any
    gradients: none recorded; else it is computed in every run
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ...ops.spec import PARAM
from ..lowering import Lowered, Step
from ..packed_weights import packed

_numbers = itertools.count()


class FoldedParameter:
    """The last result of some steps that read variables and each other."""

    def __init__(self, steps: Sequence[Step], variables: Sequence[int]) -> None:
        self._steps, self._variables = steps, variables
        self._kind = "folded", next(_numbers)

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Return the parameter."""
        if torch.is_grad_enabled():
            return self._computed(tensors)
        found = packed(self._kind, tensors, lambda: [self._computed(tensors)])
        return found[0] if found else self._computed(tensors)

    def _computed(self, tensors: Sequence[torch.Tensor]) -> Any:
        values: dict[int, Any] = dict(zip(self._variables, tensors))
        for step in self._steps:
            values[step.outputs[0]] = result = step.function(*map(values.__getitem__, step.inputs))
        return result


def folded_parameters(low: Lowered) -> int:
    """Replace the last steps on the way from variables to parameters.

    Returns:
        Number of parameters.
    """
    kept, held = low.kept(), low.held_by_operators()
    sources: dict[
        int, list[Step]
    ] = {}  # of each value that depends on variables alone: the steps that make it
    folded: dict[int, Step] = {}
    for step in low.steps:
        op, a = low.operator(step)
        if op is None:
            continue
        for one, value in zip(op.active_inputs(a, len(step.inputs)), step.inputs):
            made = sources.get(value, [])
            # a view would keep its variable, and an output may be written
            if one.kind == PARAM and made and not _is_view(low, made[-1]) and value not in kept:
                folded[value] = made[-1]
        if step.takes_env or step.covers or len(step.outputs) > 1 or not held.isdisjoint(step.inputs):
            continue
        if step.inputs and all(value < low.num_variables or value in sources for value in step.inputs):
            before = [s for value in step.inputs for s in sources.get(value, [])]
            sources[step.outputs[0]] = list({id(s): s for s in (*before, step)}.values())
    for last in folded.values():
        steps = sources[last.outputs[0]]
        read = dict.fromkeys(value for s in steps for value in s.inputs if value < low.num_variables)
        copies = [Step(s.function, s.name, None, s.inputs, s.outputs, s.node) for s in steps]
        last.function, last.inputs = FoldedParameter(copies, list(read)), list(read)
        last.name, last.node, last.covers = "folded_parameter", -1, tuple(s.node for s in steps)
    return len(folded)


def _is_view(low: Lowered, step: Step) -> bool:
    op, _ = low.operator(step)
    return op is None or bool(op.view)
