"""Run dense layers that follow each other, with the activations between them, as one call.

Recording a gradient function of our own costs as much as a small layer takes. One for the whole chain lets products
go to oneDNN, where that is the faster library, that would not be worth it one by one.

Needs:
    storage: dense; layers on sparse values stay as they are
    rank: data (N, ...), which is flattened, or (N,), which counts as (N, 1)
    type: float32 for all operands; others run one by one
    layout: any
    gradients: any
"""

from __future__ import annotations

from ...ops.nn.dense_chain import ACTIVATIONS, DenseChain
from ..lowering import Lowered, Step

__all__ = ["dense_chains"]


def _is_dense(low: Lowered, step: Step) -> bool:
    op, _ = low.operator(step)
    return op is not None and op.name == "FullyConnected" and step.fixed is None and not step.takes_env


def _activation(low: Lowered, step: Step) -> str | None:
    """Return which of the activations a step is, None for anything else."""
    op, a = low.operator(step)
    if op is None or step.fixed is not None or step.takes_env:
        return None
    kind = op.name
    if kind == "Activation":
        kind = "Activation relu" if a.act_type == "relu" else a.act_type
    return kind if kind in ACTIVATIONS else None


def _only_readers(low: Lowered) -> dict[int, Step]:
    """Return, for every value that one step reads and nothing else does, that step."""
    kept = low.kept()
    found: dict[int, Step] = {}
    seen: set[int] = set()
    for step in low.steps:
        for value in step.inputs:
            if value in seen or value in kept:
                found.pop(value, None)
            else:
                found[value] = step
            seen.add(value)
    return found


def _layer(low: Lowered, step: Step, reader: dict[int, Step]) -> list[Step]:
    """Return a dense step and the activation that alone reads it, if there is one."""
    after = reader.get(step.outputs[0])
    return [step] if after is None or _activation(low, after) is None else [step, after]


def _chain(low: Lowered, first: Step, reader: dict[int, Step]) -> list[list[Step]]:
    """Return the layers that follow each other from a dense step on."""
    layers = [_layer(low, first, reader)]
    while True:
        value = layers[-1][-1].outputs[0]
        step = reader.get(value)
        if step is None or not _is_dense(low, step) or step.inputs[0] != value:
            return layers
        layers.append(_layer(low, step, reader))


def _joined(low: Lowered, layers: list[list[Step]]) -> Step:
    """Return one step that does the work of all layers."""
    dense = [steps[0] for steps in layers]
    call = DenseChain(
        [_activation(low, steps[1]) if len(steps) > 1 else None for steps in layers],
        [len(step.inputs) == 3 for step in dense],
        [(steps[0].function, steps[1].function if len(steps) > 1 else None) for steps in layers],
        bool(low.operator(dense[0])[1].flatten),
    )
    inputs = [dense[0].inputs[0], *(value for step in dense for value in step.inputs[1:])]
    every = [step.node for steps in layers for step in steps]
    last = layers[-1][-1]
    return Step(
        call, "dense_chain", None, inputs, last.outputs, last.node, takes_env=False, covers=tuple(every[:-1])
    )


def dense_chains(low: Lowered) -> int:
    """Join every run of dense layers, two calls or more.

    Subgraphs are left alone: gradients of their gradients may be asked for.

    Returns:
        How many runs there are.
    """
    if low.is_body:
        return 0
    reader = _only_readers(low)
    taken: set[int] = set()
    last: dict[int, Step] = {}
    for step in low.steps:
        if id(step) in taken or not _is_dense(low, step):
            continue
        layers = _chain(low, step, reader)
        members = [each for steps in layers for each in steps]
        if len(members) > 1:
            taken.update(map(id, members))
            last[id(members[-1])] = _joined(low, layers)
    if last:
        low.steps = [
            last.get(id(step), step) for step in low.steps if id(step) not in taken or id(step) in last
        ]
    return len(last)
