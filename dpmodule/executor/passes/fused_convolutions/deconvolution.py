"""A transposed convolution fused with the steps that follow it, on packed weights."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from ....base import ShapeError
from ....ops.nn.conv import deconvolved, pads_and_adds
from ....ops.nn.image_layers import NO_FUNCTION, ConvolutionSizes, TiledConvolution
from ....ops.nn.layer_shapes import per_axis
from ....ops.nn.linear import is_float32_cpu, kernels
from ....ops.spec import Env
from .call import Activation, BatchNorm, WindowPart

Tensor = torch.Tensor


class _Phase(NamedTuple):
    """The results along an axis that have the same remainder of division by the stride.

    Attributes:
        first: the first result, which is the remainder.
        tap: the first number of the kernel that they read; the next ones are a stride apart.
        axis: size, result, kernel, stride, dilate and pad of the convolution that computes them.
    """

    first: int
    tap: int
    axis: tuple[int, int, int, int, int, int]


def _phases(size: int, result: int, kernel: int, stride: int, pad: int) -> list[_Phase]:
    """Return the phases of an axis; `pad` is the number of results cropped at both ends."""
    found = []
    for first in range(stride):
        tap = (first + pad) % stride
        count, taps = -(-(result - first) // stride), -(-(kernel - tap) // stride)
        found.append(_Phase(first, tap, (size, count, taps, 1, 1, taps - 1 - (first + pad) // stride)))
    return found


def _joined(phases: list[_Phase]) -> tuple[int, int, int, int, int, int]:
    """Return the axis of a convolution that computes the results of some phases side by side."""
    size, count, *_ = phases[0].axis
    pad = max(phase.axis[-1] for phase in phases)
    return size, count, max(pad - phase.axis[-1] + phase.axis[2] for phase in phases), 1, 1, pad


class PackedDeconvolution:
    """A transposed convolution in two dimensions without groups, with an optional normalisation and activation.

    Called with the data, the weight, the optional bias and the four vectors of the normalisation. Returns the result,
    then the states that the normalisation writes back.

    The extension divides the results into cells of the stride's size, and computes each row and column of the cells by
    a convolution of the data.
    """

    sums = False

    def __init__(
        self,
        a: Any,
        function: Callable[..., Tensor],
        norm: BatchNorm | None = None,
        activation: Activation | None = None,
    ) -> None:
        self._a, self._function, self.norm, self._activation = a, function, norm, activation
        self._stride, dilate = per_axis(a.stride, 2, 1, "stride"), per_axis(a.dilate, 2, 1, "dilate")
        # every phase reads a number of the kernel
        self._has_phases = max(dilate) == 1 and all(map(operator.ge, a.kernel, self._stride))
        self.native = NO_FUNCTION if activation is None else activation.native
        kept = () if norm is None else (norm.a.eps, norm.a.fix_gamma)
        self.kind = ("deconvolution", tuple(a.kernel), self._stride, a.no_bias, kept)

    def __call__(self, a: Any, env: Env, data: Tensor, *sources: Tensor) -> Any:
        """Run the operators one by one; `a` is ignored."""
        norm, activation = self.norm, self._activation
        result, states = self._function(data, *(sources if norm is None else sources[:-4])), ()
        if norm is not None:
            result, *states = norm.run(norm.a, env, result, *sources[-4:])
        if activation is not None:
            result = activation.function(result)
        return result if norm is None else (result, *states)

    def _folded(self, sources: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias with the normalisation folded in."""
        bias = None if self._a.no_bias else sources[1]
        if self.norm is None:
            return sources[0], bias
        scale, shift = self.norm.factors(sources[-4:], bias)
        return sources[0] * scale.view(1, -1, 1, 1), shift

    def sizes(self, data: tuple[int, ...], other: tuple[int, ...] | None) -> ConvolutionSizes | None:
        """Return the sizes for data of a shape; None where the kernels cannot do it."""
        if len(data) != 4 or not self._has_phases or not min(data):
            return None
        try:
            return ConvolutionSizes(data, deconvolved(self._a, data), ())
        except ShapeError:
            return None

    def is_faster(self, sizes: ConvolutionSizes, in_run: bool) -> bool:
        """Return True if the extension is the fastest for these sizes."""
        return True

    def detail(self, shape: tuple[int, ...]) -> Any:
        """Return what the packed weight depends on, apart from the operator."""
        return shape[1], pads_and_adds(self._a, shape[2:])[0], self._cell(shape), len(self._grid(shape)[0][1])

    def _cell(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the rows and columns of results from which each convolution computes one."""
        # a single pixel has one window, in which each result reads one number of the kernel
        rows, columns = (
            k if size == 1 else step
            for size, k, step in zip(shape[2:], self._a.kernel, self._stride, strict=True)
        )
        return rows, columns

    def _grid(self, shape: tuple[int, ...]) -> list[tuple[_Phase, list[_Phase]]]:
        """Return the row and the columns of each convolution."""
        a, spatial = self._a, shape[2:]
        pads, result = pads_and_adds(a, spatial)[0], deconvolved(a, shape)[2:]
        axes = zip(spatial, result, a.kernel, self._cell(shape), pads, strict=True)
        down, right = (_phases(*axis) for axis in axes)
        # few filters would leave most of a vector empty
        joins = len(right) * a.num_filter <= kernels().vector_width and result[1] % len(right) == 0
        return [(y, xs) for y in down for xs in ([right] if joins else [[x] for x in right])]

    def parts(self, shape: tuple[int, ...]) -> list[WindowPart]:
        """Return the convolutions for data of a shape."""
        cell = self._cell(shape)
        return [
            WindowPart("convolution", [y.axis, _joined(xs)], (y.first, xs[0].first), cell, len(xs))
            for y, xs in self._grid(shape)
        ]

    def pack(self, sources: Sequence[Tensor], shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Return weight and bias of each convolution, for data of a shape; () if they are unsuitable."""
        filters, kernel = self._a.num_filter, tuple(self._a.kernel)
        if not all(map(is_float32_cpu, sources)) or sources[0].shape != (shape[1], filters, *kernel):
            return ()
        weight, bias = self._folded(sources)
        rows, columns = self._cell(shape)
        found: tuple[Tensor, ...] = ()
        for y, xs in self._grid(shape):
            _, _, count, _, _, pad = _joined(xs)
            taps = [weight[:, :, y.tap :: rows, x.tap :: columns].flip(2, 3).transpose(0, 1) for x in xs]
            before = [pad - x.axis[-1] for x in xs]
            taps = [F.pad(each, (n, count - n - each.shape[3])) for n, each in zip(before, taps, strict=True)]
            tiled = TiledConvolution(len(xs) * filters, taps[0].shape[2:], (1, 1), (1, 1), (0, 0))
            found += tiled.pack(torch.cat(taps), bias if bias is None else bias.repeat(len(xs)), shape[1])
        return found
