"""Prepared programs, the records that forward leaves for backward, and repeating a run without side effects."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from .._core import mode
from .._devices.generators import generator
from ..context import Context
from ..graph import Node
from ..ndarray import NDArray
from ..ops.spec import Env
from .arrays import BoundArrays
from .interpreter import StepFailed, interpret
from .program import Forward, Program

HeadGradients = list[tuple[int, torch.Tensor, torch.Tensor]]
"""Roots of backward: index of the head, root tensor, and its gradient."""


class PreparedProgram(NamedTuple):
    """A program with the environments of its steps and the function that runs it.

    Attributes:
        restrided: slots of the arguments that are passed in channels_last.
    """

    program: Program
    env: Env
    shaped: list[Env]
    forward: Forward
    restrided: Sequence[int] = ()


class RecordedRun(NamedTuple):
    """Record that a training forward leaves for backward.

    Shape:
        values, aliases, mutated: each as its variable.
        roots: each as its head, or as the first input of the loss that was cut there.

    Attributes:
        rests: the other inputs of cut losses that the graph computes.
    """

    prepared: PreparedProgram
    values: list[Any]
    aliases: list[Any]
    roots: Sequence[torch.Tensor]
    rests: Sequence[Sequence[torch.Tensor | None]]
    mutated: Sequence[torch.Tensor | None]


def prepare(
    bound: BoundArrays,
    program: Program,
    forward: Forward,
    is_train: bool,
    memos: MutableMapping[Node, dict[Any, Any]],
) -> PreparedProgram:
    """Return a program with environments for its steps.

    Args:
        memos: state that steps keep between runs, by node; gets an entry for every node that has none yet.
    """
    shaped = []
    for step in program.shaped:
        node = bound.graph.nodes[step.node]
        ctx, shapes = bound.context_of(node), tuple(tuple(s or ()) for s in bound.shapes[node])
        memo = memos.setdefault(node, {}) if step.keeps else None
        shaped.append(Env(ctx.torch_device, generator(ctx), is_train, shapes, ctx, memo))
    ctx = bound.context
    return PreparedProgram(program, Env(ctx.torch_device, generator(ctx), is_train, (), ctx), shaped, forward)


def value_gradients(program: Program, head_grads: HeadGradients) -> dict[int, torch.Tensor]:
    """Return the gradient of each value from which backward starts: the sum if several losses read it.

    Shape:
        returns: each as the value that it is the gradient of.
    """
    roots = {loss.output: loss.root for loss in program.low.losses}
    grads: dict[int, torch.Tensor] = {}
    for i, _, seed in head_grads:
        value = roots.get(i, program.low.heads[i])
        grads[value] = grads[value] + seed if value in grads else seed
    return grads


def loss_gradients(program: Program, head_grads: HeadGradients) -> dict[int, torch.Tensor]:
    """Return the gradient of each cut loss with respect to its first input, by the index of the loss's node.

    Shape:
        returns: each as the loss's first input.
    """
    graph = program.low.graph
    cut = {loss.output for loss in program.low.losses}
    return {graph.index[graph.heads[i][0]]: seed for i, _, seed in head_grads if i in cut}


@contextmanager
def repeating(
    program: Program,
    contexts: Sequence[Context],
    states: Sequence[torch.Tensor],
    variables: Sequence[NDArray],
) -> Iterator[None]:
    """Restore all side effects of repeating the last run inside the block.

    The generators draw the last run's random numbers inside the block and continue from their current states after it.
    States that operators write themselves are restored.

    Shape:
        states: (bytes,) each.
        variables: as bound.

    Args:
        states: generator state of each context before the last run.
    """
    saved = [generator(ctx).get_state() for ctx in contexts] if program.random else []
    written = [variables[slot].raw for slot in program.written]
    kept = [state.clone() for state in written]
    if saved:
        for ctx, state in zip(contexts, states):
            generator(ctx).set_state(state)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(written, kept):
                tensor.copy_(before)
        for ctx, state in zip(contexts, saved):
            generator(ctx).set_state(state)


def with_float_integers(run: RecordedRun, slots: Sequence[int]) -> RecordedRun:
    """Repeat a run with integers stored as float64, since MXNet passes gradients through `Cast` to integers.

    Returns:
        The new run, or the given one if an operator rejects such numbers.
    """
    program, env, shaped = run.prepared[:3]
    values = list(run.values)
    for slot in slots:
        values[slot] = values[slot].detach()
        if not values[slot].is_floating_point():
            values[slot] = values[slot].double()
        values[slot].requires_grad_()
    try:
        with mode.float_integers(), torch.enable_grad():
            result = interpret(program, values, env, shaped, lambda name, value: None)
    except StepFailed:
        return run
    return RecordedRun(
        run.prepared, values, [values[slot] for slot in slots], result[1], result[2], run.mutated
    )
