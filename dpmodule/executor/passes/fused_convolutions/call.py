"""A convolution fused with the steps that follow it, as one call of a kernel that reads packed weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeVar

import torch

from ...._core import torch_private
from ....ops.nn.image_layers import NO_FUNCTION, Axes, ConvolutionSizes, Function, TiledConvolution, as_image
from ....ops.nn.kernel_choice import keeps_usual_layout, prefers_tiles
from ....ops.nn.layer_shapes import per_axis
from ....ops.spec import Env
from ....ops.write_tracking import writes_are_counted
from ...packed_weights import packed
from ..channels_last import restride
from ..native_convolutions import NativeConvolution
from .sequence import SequenceConvolution

Tensor = torch.Tensor
Tensors = Sequence[Tensor]
Source = TypeVar("Source")
_Parameters = tuple[Tensor, Tensor | None] | tuple[()]

_MAX_SHAPES = 64
_FEW_FILTERS, _MIN_SUMMED = 8, 2**22
"""Filters below which the result may be a sum of windows, and multiplications from which that is worth its own call."""
_RELUS: tuple[Function, ...] = (("relu", 0.0, 0.0), ("clamp", 0.0, torch.inf))


def is_plain(tensor: Tensor) -> bool:
    """Return True if the kernels support a tensor's type, device and storage."""
    return tensor.dtype is torch.float32 and tensor.is_cpu and tensor.layout is torch.strided


class WindowPart(NamedTuple):
    """A convolution that computes a result, or a part of its pixels.

    Attributes:
        kind: kind of the extension's layer.
        first: row and column of its first pixel.
        steps: rows and columns from one of its pixels to the next.
        together: consecutive pixels of a row that count as one with more filters.
    """

    kind: str
    axes: Axes
    first: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (1, 1)
    together: int = 1


@dataclass(frozen=True, slots=True)
class Activation:
    """A function applied to every element of a result.

    Attributes:
        name: oneDNN's name; "none" for a function that oneDNN lacks.
        over: in-place version of a function that oneDNN lacks.
        native: the extension's function; None if it lacks it.
    """

    function: Callable[[Tensor], Tensor]
    name: str
    numbers: tuple[float, ...] = ()
    algorithm: str = ""
    over: Callable[[Tensor], Tensor] | None = None
    native: Function | None = None


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """A normalisation after a convolution."""

    run: Callable[..., Any]
    a: Any

    def factors(self, vectors: Tensors, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the factor and the summand of each channel.

        Args:
            vectors: gamma (ignored if it is fixed), beta, mean and variance.
            bias: summand before the normalisation.
        """
        beta, mean, variance = vectors[-3:]
        scale = (variance + self.a.eps).rsqrt_()
        if not self.a.fix_gamma:
            scale.mul_(vectors[0])
        return scale, beta - (mean if bias is None else mean - bias) * scale

    def trains(self, env: Env) -> bool:
        """Return True if it uses the batch's statistics."""
        return env.is_train and not self.a.use_global_stats

    def read(self, sources: Sequence[Source]) -> Sequence[Source]:
        """Return the sources that folded parameters depend on, of which the last four are the vectors."""
        return (*sources[:-4], *sources[-3:]) if self.a.fix_gamma else sources


class FusedConvolution:
    """A convolution with an optional normalisation, sum with another tensor, and activation.

    Called with the data, the weight, the optional bias, the four vectors of the normalisation and the other summand.
    Returns the result, then the states that the normalisation writes back. If the kernels do not support the operands
    (types other than float32, devices other than the CPU, a summand of another shape), the operators run one by one.

    Shape:
        data: (N, C, H, W), or (N, C, W) for sequences, which have one row.
        weight: (F, C / groups, kernel height, kernel width), or (F, C / groups, kernel width).
        bias, vectors of the normalisation: (F,).
        other summand, result: (N, F, H', W'), or (N, F, W').

    Args:
        adds: sums the result and the other summand; None without a sum.
        alone: True if the network has no other layer for images: then data that comes in the usual layout keeps it
            where torch's kernels for that layout win.
    """

    def __init__(
        self,
        a: Any,
        function: Callable[..., Tensor],
        norm: BatchNorm | None = None,
        adds: Callable[[Tensor, Tensor], Tensor] | None = None,
        activation: Activation | None = None,
        alone: bool = False,
    ) -> None:
        self._axes, self._groups, self._filters = len(a.kernel), a.num_group, a.num_filter
        self.norm, self._adds, self._activation = norm, adds, activation
        self._kernel = self._per_axis(a.kernel, 1, "kernel")
        self._stride = self._per_axis(a.stride, 1, "stride")
        self._dilate = self._per_axis(a.dilate, 1, "dilate")
        self._pad = self._per_axis(a.pad, 0, "pad")
        self._function, self._then = function, activation
        if self._axes == self._groups == self._dilate[1] == 1:
            relu = None
            if activation is not None and activation.native in _RELUS and norm is None and adds is None:
                self._then, relu = None, activation.function
            self._function = SequenceConvolution(a, function, relu)
        self._summed: NativeConvolution | None = None
        if self._axes == 2 and self._groups == 1 and self._filters < _FEW_FILTERS:
            self._summed = NativeConvolution(function, a, converts=True)
        self._geometry = self._pad, self._stride, self._dilate, self._groups
        self._alone = alone
        is_fused = not all(part is None for part in (norm, adds, activation))
        self._choice = self._groups, is_fused
        self._has_bias = not a.no_bias
        self._last_vector = 1 + self._has_bias + (4 if norm is not None else 0)
        kept = (norm.a.eps, norm.a.fix_gamma) if norm is not None else ()
        self.kind = ("convolution", *map(tuple, self._geometry[:3]), self._groups, self._has_bias, kept)
        self._unary: tuple[Any, ...] = ("none", [], "")
        if activation is not None:
            self._unary = activation.name, list(activation.numbers), activation.algorithm
        with_sum = None if activation is None or activation.over is not None else activation.name
        self._binary: tuple[Any, ...] = "add", None, with_sum, [], None
        self._tiled = TiledConvolution(
            a.num_filter, self._kernel, self._stride, self._dilate, self._pad, self._groups
        )
        self.native = NO_FUNCTION if activation is None else activation.native
        self._known: dict[Any, ConvolutionSizes] = {}
        self.sums = adds is not None
        self.overwrites = False  # True if the sum may overwrite the other summand

    def _per_axis(self, given: tuple[int, ...], default: int, name: str) -> list[int]:
        """Return the values for height and width."""
        return [default] * (2 - self._axes) + list(per_axis(given, self._axes, default, name))

    def __call__(self, a: Any, env: Env, data: Tensor, *rest: Tensor) -> Any:
        """Run the fused operators; `a` is ignored."""
        sources = rest[: self._last_vector]
        other = rest[self._last_vector] if self._adds is not None else None
        sizes = self._sizes(env, data, sources[0], other)
        if sizes is not None and self._sums_windows(sizes):
            data = restride(data)
            return self._one_by_one(env, data, sources, other, keeps_layout=True, function=self._summed)
        if sizes is not None and (
            self._axes == 1 or self.keeps_layout(data) or self.packs_in_vain(data, sources[0])
        ):
            return self._one_by_one(env, data, sources, other, keeps_layout=True)
        parameters = self._weights(sources, data.shape) if sizes is not None else ()
        if not parameters:
            return self._one_by_one(env, data, sources, other)
        result = self._by_onednn(restride(data), *parameters, other)
        if self._activation is not None and self._activation.over is not None:
            result = self._activation.over(result)
        return result if self.norm is None else (result, None, None, None)  # no state changes

    def keeps_layout(self, data: Tensor) -> bool:
        """Return True if the operators run one by one because converting the data takes longer than it gains."""
        sizes = self.sizes(data.shape, None) if self._may_keep_layout(data) else None
        return sizes is not None and keeps_usual_layout(torch.get_num_threads() > 1, sizes, *self._choice)

    def packs_in_vain(self, data: Tensor, weight: Tensor) -> bool:
        """Return True if the operators run one by one because the weight would be packed in every run."""
        return self._may_keep_layout(data) and not writes_are_counted(weight)

    def _may_keep_layout(self, data: Tensor) -> bool:
        return self._alone and data.dim() == 4 and data.is_contiguous()

    def _sizes(self, env: Env, data: Tensor, weight: Tensor, other: Tensor | None) -> ConvolutionSizes | None:
        """Return the sizes of data and result; None if the kernels do not support the data."""
        if torch.is_grad_enabled() or torch_private.is_transformed(data, weight):
            return None
        if self.norm is not None and self.norm.trains(env):
            return None
        if not (is_plain(data) and (other is None or is_plain(other))):
            return None
        return self.sizes(data.shape, None if other is None else other.shape)

    def sizes(self, data: tuple[int, ...], other: tuple[int, ...] | None) -> ConvolutionSizes | None:
        """Return the sizes for data and other summand of some shapes; None where the kernels cannot do it."""
        known = self._known.get((data, other))
        # oneDNN of torch 2.6 "could not create a memory" for a sum over one filter
        if known is None and len(data) == 2 + self._axes and not (other is not None and self._filters == 1):
            sizes = self._tiled.sizes(as_image(data))
            fits = other is None or (len(other) == len(data) and as_image(other) == sizes.result)
            if min(*data, *sizes.result) > 0 and fits:
                if len(self._known) >= _MAX_SHAPES:  # bounds the memory when every batch has a new size
                    self._known.clear()
                known = self._known[data, other] = sizes
        return known

    def _sums_windows(self, sizes: ConvolutionSizes) -> bool:
        """Return True if the result is the fastest as a sum of overlapping windows, without other layers."""
        if self._summed is None:
            return False
        products = prod(sizes.result) * sizes.data[1] * prod(self._kernel)
        return products >= _MIN_SUMMED and self._summed.sums_windows(sizes.data)

    def is_faster(self, sizes: ConvolutionSizes, in_run: bool) -> bool:
        """Return True if the extension is the fastest for these sizes."""
        return prefers_tiles(sizes, *self._choice, in_run)

    def detail(self, shape: tuple[int, ...]) -> Any:
        """Return what the packed weight depends on, apart from the operator."""
        return shape[1]

    def parts(self, shape: tuple[int, ...]) -> list[WindowPart]:
        """Return the convolution for data of a shape."""
        return [WindowPart(self._tiled.kind(shape[1]), self._tiled.sizes(shape).axes)]

    def pack(self, sources: Tensors, shape: tuple[int, ...]) -> tuple[Tensor, Tensor] | tuple[()]:
        """Return weight and bias for the extension's kernels, for data of a shape; () if they are unsuitable."""
        if not all(map(is_plain, sources)):
            return ()
        weight, bias, scale = self._parameters(sources)
        return self._tiled.pack(weight.unsqueeze(2) if self._axes == 1 else weight, bias, shape[1], scale)

    def _by_onednn(self, data: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None) -> Tensor:
        if other is None:
            return torch_private.onednn_convolution(data, weight, bias, *self._geometry, *self._unary)
        fused = data, weight, bias, *self._geometry, *self._binary
        if self.overwrites and other.is_contiguous(memory_format=torch.channels_last):
            return torch_private.onednn_convolution_add(other, *fused)
        return torch_private.onednn_convolution_sum(data, other, *fused[1:])

    def _weights(self, sources: Tensors, shape: torch.Size) -> _Parameters:
        """Return weight and bias with the normalisation folded in, packed if they can be kept; () if unsuitable."""
        # oneDNN's order depends on the image size, and a weight in another order is slow
        read = sources if self.norm is None else self.norm.read(sources)
        parameters: _Parameters | None = packed(
            self.kind, read, lambda: self._packed(sources, shape), shape[2:]
        )
        # a weight that cannot stay packed is packed, too: in other layouts oneDNN may round differently
        return self._packed(sources, shape) if parameters is None else parameters

    def _packed(self, sources: Tensors, shape: torch.Size) -> _Parameters:
        """Return weight and bias packed for data of a shape; () if unsuitable."""
        if not all(map(is_plain, sources)):
            return ()
        weight, bias, scale = self._parameters(sources)
        if scale is not None:
            weight = weight * scale.view(-1, 1, 1, 1)
        return torch_private.onednn_packed(weight.contiguous(), *self._geometry, shape), bias

    def _parameters(self, sources: Tensors) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the weight, the bias with all shifts, and the normalisation's factors, if there is one."""
        weight, bias = sources[0], sources[1] if self._has_bias else None
        if self.norm is None:
            return weight, bias, None
        scale, shift = self.norm.factors(sources[-4:], bias)
        return weight, shift, scale

    def _one_by_one(
        self,
        env: Env,
        data: Tensor,
        sources: Tensors,
        other: Tensor | None,
        keeps_layout: bool = False,
        function: Callable[..., Tensor] | None = None,
    ) -> Any:
        """Run the graph's operators one by one, the convolution by a function other than its own if there is one."""
        weight = sources[0]
        if (
            not self._alone
            and data.dim() == weight.dim() == 4
            and not torch_private.is_transformed(data, weight)
        ):
            data, weight = restride(data), restride(weight)
        result = (function or self._function)(data, weight, *sources[1 : 1 + self._has_bias])
        states: tuple[Any, ...] = ()
        if self.norm is not None:
            result, *states = self.norm.run(self.norm.a, env, result, *sources[-4:])
        if other is not None and self._adds is not None:
            result = self._adds(result, other)
        if self._then is not None and keeps_layout and self._then.name == "relu":
            # a NaN becomes zero, as with oneDNN; `fmax` would take seven times as long
            result = result.nan_to_num_(0.0, torch.inf, -torch.inf).relu_()
        elif self._then is not None:
            result = self._then.function(result)
        return (result, *states) if self.norm is not None else result
