"""Run transposed convolutions, with the normalisation and activation that follow, on packed weights.

For prediction only. torch reorders the weights in every call, and data of the usual layout as well; here channels are
innermost in memory. BatchNorm is folded into weight and bias. With few filters, for one pixel, or where a stride above
1 does not divide the kernel, a product gives all windows, which are then added up. Results differ by rounding. As in
MXNet's predictions, `Activation` with relu turns NaN into 0. The environment variable DPMODULE_ONEDNN=0 disables the
pass.

Memory: a copy of the weights for each image size, at most four, until they change.

Needs:
    storage: dense
    rank: data (N, C, H, W), not empty
    type: float32 on the CPU for all operands; others run as before
    layout: any; data is brought to channels_last
    gradients: none recorded, and BatchNorm in inference mode; else operators run one by one
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._core import torch_private
from ...ops.nn.conv import deconvolved, pads_and_adds
from ...ops.nn.layer_shapes import per_axis
from ...ops.nn.linear import FEW_ROWS, dense, is_float32_cpu, kernels, pack_for, packs_well
from ...ops.nn.unfold import WindowGrid, fold
from ...ops.shapes import prod
from ...ops.spec import Env
from ..lowering import Lowered, Step
from ..packed_weights import packed
from .channels_last import restride
from .fused_convolutions import is_norm, readers_of
from .fused_convolutions.call import Activation, BatchNorm
from .fused_convolutions.layers import activation as activation_of

Tensor = torch.Tensor

_MIN_CHANNELS = 8
"""Channels below which only a product gains."""
_MAX_PLAIN = 20480
"""Size of a single sample up to which torch runs small kernels without oneDNN, and therefore faster."""


class PackedDeconvolution:
    """A transposed convolution in two dimensions without groups, with an optional normalisation and activation.

    Called with the data, the weight, the optional bias and the four vectors of the normalisation. Returns the result,
    then the states that the normalisation writes back.
    """

    def __init__(
        self,
        a: Any,
        function: Callable[..., Tensor],
        norm: BatchNorm | None = None,
        activation: Activation | None = None,
    ) -> None:
        self._a, self._function, self._norm, self._activation = a, function, norm, activation
        self._steps = list(per_axis(a.stride, 2, 1, "stride")), list(per_axis(a.dilate, 2, 1, "dilate")), 1

    def __call__(self, a: Any, env: Env, data: Tensor, *sources: Tensor) -> Any:
        """Run the operators; `a` is ignored."""
        norm, activation = self._norm, self._activation
        run = self._fastest(env, data, sources)
        result = None if run is None else run(data, sources)
        if result is not None:
            return result if norm is None else norm.results(result, sources[-4])
        result, states = self._function(data, *(sources if norm is None else sources[:-4])), ()
        if norm is not None:
            result, *states = norm.run(norm.a, env, result, *sources[-4:])
        if activation is not None:
            result = activation.function(result)
        return result if norm is None else (result, *states)

    def _fastest(
        self, env: Env, data: Tensor, sources: Sequence[Tensor]
    ) -> Callable[[Tensor, Sequence[Tensor]], Tensor] | None:
        """Return the kernel for some data; None if the operators run one by one."""
        given, weight = (data, *sources), sources[0]
        fits = all(map(is_float32_cpu, given)) and not any(map(torch_private.is_batched, given))
        if torch.is_grad_enabled() or not fits or not data.numel() or data.shape[1] != weight.shape[0]:
            return None
        if self._norm is not None and env.is_train and not self._norm.a.use_global_stats:
            return None
        area, (channels, filters) = prod(data.shape[2:]), weight.shape[:2]
        kernel, steps = self._a.kernel, self._steps[0]
        rows, columns = len(data) * area, filters * prod(kernel)
        if len(data) == 1 and min(kernel) <= 3 and data.numel() <= _MAX_PLAIN:
            return None
        is_uneven = any(step > 1 and size % step for size, step in zip(kernel, steps))
        is_product = area == 1 or is_uneven or 2 * filters <= getattr(kernels(), "vector_width", 0)
        if is_product and packs_well(rows, columns, channels) and hasattr(kernels(), "fold"):
            return self._by_product
        return self._by_onednn if channels >= _MIN_CHANNELS else None

    def _folded(self, sources: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias with the normalisation folded in."""
        if self._norm is None:
            return sources[0], sources[1] if len(sources) > 1 else None
        bias = sources[1] if len(sources) > 5 else None
        scale, shift = self._norm.factors(sources[-4:], bias)
        return sources[0] * scale.view(1, -1, 1, 1), shift

    def _pack(
        self, kind: str, sources: Sequence[Tensor], pack: Callable[[Tensor], Tensor], detail: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the packed weight, kept until a source changes, and the bias."""

        def make() -> tuple[Tensor, Tensor | None]:
            weight, bias = self._folded(sources)
            return pack(weight), bias

        norm = self._norm
        whole = (kind, len(sources), *(() if norm is None else (norm.a.eps, norm.a.fix_gamma)))
        read = sources if norm is None else norm.read(sources)
        return packed(whole, read, make, detail) or make()

    def _by_product(self, data: Tensor, sources: Sequence[Tensor]) -> Tensor:
        rows, channels = len(data) * prod(data.shape[2:]), len(sources[0])
        columns = sources[0].numel() // channels
        weight, bias = self._pack(
            "turned", sources, lambda weight: pack_for(rows, weight.flatten(1).t()), rows > FEW_ROWS
        )
        windows = dense(
            data.permute(0, 2, 3, 1).reshape(rows, channels).contiguous(),
            [((columns, channels), weight, None, False)],
        )
        grid: Any = (
            self._a.kernel,
            self._steps[0],
            pads_and_adds(self._a, tuple(data.shape[2:]))[0],
            self._steps[1],
        )
        result = torch.empty(deconvolved(self._a, tuple(data.shape)), memory_format=torch.channels_last)
        result.zero_() if bias is None else result.copy_(bias.view(-1, 1, 1))
        fold(windows, result, WindowGrid(*grid))
        return result if self._activation is None else self._activation.function(result)

    def _by_onednn(self, data: Tensor, sources: Sequence[Tensor]) -> Tensor:
        pads, adds = map(list, pads_and_adds(self._a, tuple(data.shape[2:])))
        geometry, activation = (pads, adds, *self._steps), self._activation
        weight, bias = self._pack(
            f"deconvolution {geometry}",
            sources,
            lambda weight: torch_private.onednn_packed_deconvolution(
                weight.contiguous(), *geometry, data.shape
            ),
            data.shape[2:],
        )
        unary: tuple[Any, ...] = ("none", [], "")
        if activation is not None:
            unary = activation.name, list(activation.numbers), activation.algorithm
        result = torch_private.onednn_deconvolution(restride(data), weight, bias, *geometry, *unary)
        return result if activation is None or activation.over is None else activation.over(result)


def _fused(low: Lowered, step: Step, only_reader: Callable[[int], Step | None]) -> tuple[Step, list[Step]]:
    """Return a transposed convolution with the steps that it replaces."""
    steps, inputs, outputs = [step], list(step.inputs), step.outputs[:1]
    norm = activation = None
    after = only_reader(outputs[0])
    if after is not None and is_norm(low, after) and after.inputs[0] == outputs[0]:
        norm, inputs, outputs = (
            BatchNorm(after.function, after.fixed),
            [*inputs, *after.inputs[1:]],
            after.outputs,
        )
        steps.append(after)
        after = only_reader(outputs[0])
    if after is not None and (activation := activation_of(low, after)) is not None:
        outputs = [*after.outputs, *outputs[1:]]
        steps.append(after)
    call = PackedDeconvolution(low.operator(step)[1], step.function, norm, activation)
    name = "_".join(["deconvolution", *(each.name for each in steps[1:])])
    covers = tuple(each.node for each in steps[1:])
    return Step(call, name, None, inputs, list(outputs), step.node, covers=covers), steps


def packed_deconvolutions(low: Lowered) -> int:
    """Replace transposed convolutions, each with the following steps that have no other reader.

    Returns:
        Their number.
    """
    if os.environ.get("DPMODULE_ONEDNN") == "0":
        return 0
    kept, readers, held = low.kept(), readers_of(low), low.held_by_operators()
    taken: set[int] = set()
    fused: dict[int, Step] = {}

    def only_reader(value: int) -> Step | None:
        steps = readers.get(value, [])
        return steps[0] if len(steps) == 1 and value not in kept else None

    for step in low.steps:
        op, a = low.operator(step)
        if op is None or op.name != "Deconvolution" or step.takes_env or not held.isdisjoint(step.inputs):
            continue
        if len(a.kernel) == 2 and a.num_group == 1 and a.layout in (None, "NCHW"):
            whole, steps = _fused(low, step, only_reader)
            taken.update(map(id, steps))
            fused[id(steps[-1])] = whole
    low.steps = [fused.get(id(s), s) for s in low.steps if id(s) in fused or id(s) not in taken]
    return len(fused)
