"""Fuse convolutions with the normalisation, sum and activation that follow, as one kernel call on packed weights.

For prediction only. BatchNorm is folded into weight and bias, a residual sum and an activation are computed while the
results are still in registers, and weights are packed in the kernel's order (see `packed_weights`). torch's own
convolutions reorder the weights in every call and use a slower library for small batches of 1x1 convolutions: with a
batch of 1, ResNet-50 takes half the time. Transposed convolutions are computed as several convolutions of the data,
without the zeros between its pixels.

The native extension runs consecutive layers in one call (see `run`): these convolutions, depthwise ones, poolings,
sums, gates, concatenations, which are written in place, parts of channels, which are read in place, channel shuffles,
and dense layers. torch runs a convolution for which its kernel
is not the fastest (see `ops/nn/kernel_choice.py`), by oneDNN.

Results differ by rounding. As in MXNet's predictions, `Activation` with relu turns NaN into 0; `relu` and `clip` keep
NaN, which oneDNN cannot.

Memory: a copy of the weights of every convolution that predicts twice or more, and of dense layers in the same call,
until they change; with oneDNN one copy per image size, at most four. The environment variable
DPMODULE_ONEDNN=0 disables the pass.

Needs:
    storage: dense
    rank: data (N, C, H, W), or (N, C, W) for convolutions, not empty; a summand of the result's shape
    type: float32 on the CPU for all operands; others run one by one
    layout: any; data is brought to channels_last
    gradients: none recorded, and BatchNorm in inference mode; else operators run one by one
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...lowering import Lowered, Step
from .. import converts_layout
from ..pooling_first import may_follow
from .call import Activation, BatchNorm, FusedConvolution
from .channels import join_moves
from .deconvolution import PackedDeconvolution
from .layers import activation as activation_of
from .run import ImageRun, runs

__all__ = ["ImageRun", "FusedConvolution", "fused_convolutions", "runs"]

_SUMS = frozenset({"elemwise_add", "broadcast_add"})
_NORMS = frozenset({"BatchNorm", "BatchNorm_v1"})
_FRESH = frozenset({"BatchNorm", "Concat", "Convolution", "Pooling", *_SUMS})
"""Operators whose result owns its memory, and which no pass moves."""


def _is_convolution(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return (
        op is not None
        and (op.name == "Convolution" or (op.name == "Deconvolution" and a.num_group == 1 < len(a.kernel)))
        and len(a.kernel) in (1, 2)
        and a.layout in (None, "NCHW", "NCW")
        and not (step.takes_env or step.covers)
    )


def _is_norm(low: Lowered, step: Step, axes: int) -> bool:
    """Return True for a normalisation that can be folded into the weight before it."""
    op, a = low.operator(step)
    return (
        op is not None
        and op.name in _NORMS
        and getattr(a, "axis", 1) in (1, 1 - axes)
        and not a.output_mean_var
        and len(step.outputs) == 4
        and not step.own_env
    )


def _is_sum(low: Lowered, step: Step) -> bool:
    op, _ = low.operator(step)
    return op is not None and op.name in _SUMS and not step.takes_env


class _Chain:
    """A convolution and the steps that are fused with it.

    Args:
        only_reader: returns the only reader of a value if it is not part of another chain, else None.
        alone: True if the network has no other layer for images.
    """

    def __init__(
        self, low: Lowered, first: Step, only_reader: Callable[[int], Step | None], alone: bool
    ) -> None:
        self.steps = [first]
        self._low, self._reader, self._alone = low, only_reader, alone
        self._norm: BatchNorm | None = None
        self._adds: Callable[..., Any] | None = None
        self._activation: Activation | None = None
        self._inputs, self._outputs = list(first.inputs), first.outputs[:1]
        op, a = low.operator(first)
        step = self._next()
        if step is not None and _is_norm(low, step, 2 + len(a.kernel)) and step.inputs[0] == self._outputs[0]:
            self._norm = BatchNorm(step.function, step.fixed)
            self._inputs += step.inputs[1:]
            self._take(step, step.outputs)
        step = self._next()
        self._is_transposed = op is not None and op.name == "Deconvolution"
        summed = step is not None and _is_sum(low, step) and not self._is_transposed
        if step is not None and summed:
            self._sum(step)
            step = self._next()
        activation = activation_of(low, step) if step is not None else None
        may_sum = not summed or (activation is not None and activation.name in ("none", "relu"))
        if (
            step is not None
            and activation is not None
            and may_sum
            and not (self._is_transposed and activation.native is None)
            and not self._is_for_pooling(step, activation)
        ):
            self._activation = activation
            self._take(step, step.outputs)

    def _is_for_pooling(self, step: Step, activation: Activation) -> bool:
        """Return True if `pooling_first` moves an activation that is cheaper after a max pooling."""
        pooling = self._reader(step.outputs[0])
        costs = activation.name not in ("none", "relu", "leaky_relu")
        return costs and pooling is not None and may_follow(self._low, step, pooling)

    def _next(self) -> Step | None:
        return self._reader(self._outputs[0])

    def _take(self, step: Step, outputs: list[int]) -> None:
        self.steps.append(step)
        self._outputs = [*outputs, *self._outputs[len(outputs) :]]

    def _sum(self, step: Step) -> None:
        is_left, function = step.inputs[0] == self._outputs[0], step.function
        self._adds = function if is_left else lambda own, other: function(other, own)
        self._inputs.append(step.inputs[is_left])
        self._take(step, step.outputs)

    def fused(self) -> Step:
        """Return the fused step."""
        first = self.steps[0]
        _, a = self._low.operator(first)
        call: FusedConvolution | PackedDeconvolution
        if self._is_transposed:
            call = PackedDeconvolution(a, first.function, self._norm, self._activation)
        else:
            call = FusedConvolution(a, first.function, self._norm, self._adds, self._activation, self._alone)
        covers = tuple(step.node for step in self.steps[1:])
        name = "_".join([call.kind[0], *(step.name for step in self.steps[1:])])
        return Step(call, name, None, self._inputs, self._outputs, first.node, covers=covers)


def fused_convolutions(low: Lowered) -> int:
    """Replace convolutions over images and sequences, each with the following steps that have no other reader.

    Returns:
        Number of replaced convolutions.
    """
    if os.environ.get("DPMODULE_ONEDNN") == "0":
        return 0
    held = low.held_by_operators()
    taken: set[int] = set()
    fused: dict[int, Step] = {}
    only_reader = low.only_readers(taken)
    join_moves(low, only_reader)
    convolutions = [step for step in low.steps if _is_convolution(low, step) and held.isdisjoint(step.inputs)]
    # if a sum reads two convolutions, fuse it with the later one with the smaller strides: strided 1x1 convolutions use
    # a slower kernel if there is a summand
    convolutions.reverse()
    alone = not converts_layout(low.graph)
    for step in sorted(convolutions, key=lambda step: max(low.operator(step)[1].stride, default=1)):
        chain = _Chain(low, step, only_reader, alone)
        taken.update(map(id, chain.steps))
        fused[id(chain.steps[-1])] = chain.fused()
    low.steps = [fused.get(id(s), s) for s in low.steps if id(s) in fused or id(s) not in taken]
    _overwrite_summands(low)
    return len(fused)


def _overwrite_summands(low: Lowered) -> None:
    """Make sums overwrite the other summand if its memory is no longer needed.

    Every other reader must have made its own memory: a slice, or a dropout in prediction, shares it, and other passes
    may still move activations and dense layers after the sum.
    """
    kept, readers = low.kept(), low.readers()
    fresh: set[int] = set()
    for step in low.steps:
        call, other = step.function, step.inputs[-1] if step.inputs else -1
        if isinstance(call, FusedConvolution) and call.sums and other in fresh and other not in kept:
            *before, last = readers[other]
            call.overwrites = last is step and all(
                each is not step and _makes_memory(low, each) for each in before
            )
        if _makes_memory(low, step):
            fresh.add(step.outputs[0])


def _makes_memory(low: Lowered, step: Step) -> bool:
    """Return True if the first result of a step always owns its memory."""
    op, _ = low.operator(step)
    return isinstance(step.function, FusedConvolution) or (op is not None and op.name in _FRESH)
