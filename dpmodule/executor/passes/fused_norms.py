"""Train BatchNorm with the following sum and relu, a clip to [0, limit], or SiLU in one call of the extension.

Between two convolutions, torch reads the data a dozen times in forward and backward, and memory limits its speed. The
extension's kernels read the data five times, or seven times with a sum, on as many threads as torch uses. The
graph determines which steps can be fused; whether the kernels support the data is checked when the step runs.

The result of a fused BatchNorm is not computed separately. It must have no other reader than the sum, relu, clip
or SiLU.

Needs:
    storage: dense
    rank: data (N, C, ...) with more than one number for each channel; at least 4 channels for data (N, C) or in
        channels_last, at least 16 positions for other data
    type: float32 on the CPU for all operands; with others operators run one by one
    layout: channels_last, as convolutions leave it, or contiguous with at least 2^14 numbers; others one by one
    gradients: any except of the moving statistics, and first order only
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch

from ...ops.nn.batchnorm import NormEnd, is_native, native_norm
from ...ops.spec import Env
from ..lowering import Lowered, Step
from .gated_activations import GatedActivation


class FusedNorm:
    """A BatchNorm with an optional sum with another tensor and an optional activation.

    Called with data, gamma, beta, both moving statistics and the other summand; returns the result, then the states
    that the normalisation writes back.

    Shape:
        data, other summand, result: (N, C, ...).
        vectors: (C,).

    Args:
        norm: the normalisation's step in the graph.
        adds: the sum's function; None without a sum.
        activation: the activation's function, or None.
    """

    def __init__(
        self,
        norm: Step,
        adds: Callable[..., torch.Tensor] | None,
        position: int,
        activation: Callable[..., torch.Tensor] | None,
        end: NormEnd,
    ) -> None:
        self._norm, self._a = norm.function, norm.fixed
        self._adds, self._position = adds, position
        self._activation, self._end = activation, end

    def __call__(self, a: Any, env: Env, data: torch.Tensor, *rest: torch.Tensor) -> tuple[Any, ...]:
        """Run the fused operators; `a` is ignored."""
        vectors, other = rest[:4], rest[4] if self._adds is not None else None
        if not (env.is_train and is_native(data, other, vectors)):
            return self._one_by_one(env, data, vectors, other)
        fixed = self._a.fix_gamma
        parameters = (None, *vectors[1:]) if fixed else vectors
        out, *states = native_norm(data, other, parameters, self._a.eps, self._a.momentum, self._end)
        return out, torch.ones_like(vectors[0], requires_grad=False) if fixed else None, *states

    def _one_by_one(
        self, env: Env, data: torch.Tensor, vectors: Sequence[torch.Tensor], other: torch.Tensor | None
    ) -> tuple[Any, ...]:
        """Run the graph's operators one by one."""
        out, *states = self._norm(self._a, env, data, *vectors)
        if other is not None and self._adds is not None:
            out = self._adds(other, out) if self._position else self._adds(out, other)
        if self._activation is not None:
            out = self._activation(out)
        return out, *states


def _end(low: Lowered, step: Step) -> NormEnd | None:
    """Return the kernel's final step for one that is relu, a clip from 0, or SiLU; else None."""
    if isinstance(step.function, GatedActivation):
        return NormEnd("silu") if step.name == "silu" else None
    op, a = low.operator(step)
    if op is None or step.covers or step.takes_env:
        return None
    if op.name == "relu":
        return NormEnd("relu", nan_stays=True)
    if op.name == "clip" and a.a_min == 0 < a.a_max < inf:
        return NormEnd("relu", limit=a.a_max)
    return NormEnd("relu") if op.name == "Activation" and a.act_type == "relu" else None


def _is_norm(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return (
        op is not None
        and op.name == "BatchNorm"
        and a.axis == 1
        and not (a.output_mean_var or a.use_global_stats or step.covers or step.own_env)
    )


def _is_sum(low: Lowered, step: Step) -> bool:
    op, _ = low.operator(step)
    return op is not None and op.name == "elemwise_add" and not (step.covers or step.takes_env)


def _fused(low: Lowered, norm: Step, only_reader: Callable[[int], Step | None]) -> tuple[list[Step], Step]:
    """Return a normalisation with the steps to fuse, and the fused step."""
    steps, inputs, adds, position, end = [norm], list(norm.inputs), None, 0, None
    step = only_reader(norm.outputs[0])
    if step is not None and _is_sum(low, step):
        position = step.inputs.index(norm.outputs[0])
        adds = step.function
        inputs.append(step.inputs[1 - position])
        steps.append(step)
        step = only_reader(step.outputs[0])
    if step is not None:
        end = _end(low, step)
        if end is not None and adds is not None and (end.limit < inf or end.kind == "silu"):
            end = None
        if end is not None:
            steps.append(step)
    activation = steps[-1].function if end is not None else None
    call = FusedNorm(norm, adds, position, activation, end or NormEnd())
    outputs = [steps[-1].outputs[0], *norm.outputs[1:]]
    covers = tuple(node for step in steps[1:] for node in (*step.covers, step.node))
    name = "_".join(["norm", *(step.name.rstrip("_") for step in steps[1:])])
    return steps, Step(call, name, None, inputs, outputs, norm.node, covers=covers)


def fused_norms(low: Lowered) -> int:
    """Replace training normalisations, each with the following steps that have no other reader.

    Returns:
        Number of replaced normalisations.
    """
    # a subgraph may be differentiated twice, and mirrored steps run again
    if low.is_subgraph or low.mirrored:
        return 0
    held = low.held_by_operators()
    taken: set[int] = set()
    fused: dict[int, Step] = {}
    only_reader = low.only_readers(taken)
    for step in low.steps:
        if _is_norm(low, step) and held.isdisjoint(step.inputs):
            steps, one = _fused(low, step, only_reader)
            taken.update(map(id, steps))
            fused[id(steps[-1])] = one
    low.steps = [fused.get(id(s), s) for s in low.steps if id(s) in fused or id(s) not in taken]
    return len(fused)
