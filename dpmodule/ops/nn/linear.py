"""The product of dense layers, by the faster of the two libraries that torch comes with.

torch multiplies matrices on the CPU with MKL, which runs at half of oneDNN's speed on AMD's processors and at the same
or better on Intel's. What computes a product follows from the processor, types and sizes alone, never from a
measurement: one program has the same bits in every run on a machine. The environment variable DPMODULE_ONEDNN=0 or 1
decides instead of the table of processors.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ..tracing import is_tracing

# Products of moderate size by the native extension.
#
# A library prepares for every product as if it were a large one, and the code of the two that torch has takes some
# ten megabytes of memory once it has run. The extension's own kernel has nothing to prepare. Torch's threads share
# large ones of these products, and the rows of a chain of layers.

_LEAST_WORK, _MOST_WORK = 2**14, 2**23
"""Multiplications between which it is the fastest, with one thread or several."""
_MOST_PACKED = 2**25
"""The most of all layers together whose weights are laid out for the kernel already."""
_MOST_LAYERS = 16
_LEAST_ROWS = 8
"""Rows of the left matrix that are computed at once; with fewer, the copy of the right one is not made up for."""
_LEAST_WIDTH = 8
"""Numbers that the processor must compute with at once; libraries know better what to do with less."""

_native: Any = None


def kernels() -> Any:
    """Return the native extension, None where there is none; it is loaded when it is first asked for."""
    global _native
    if _native is None:
        from ... import native

        _native = native.core
    return _native


def use_kernel(rows: int, columns: int, depth: int) -> bool:
    """Return True if the kernel is the fastest for a product of some size, and there is one."""
    work = rows * columns * depth
    return (
        _LEAST_WORK <= work <= _MOST_WORK
        and rows >= _LEAST_ROWS
        and getattr(kernels(), "vector_width", 0) >= _LEAST_WIDTH
    )


def use_packed_kernel(rows: int, layers: Sequence[tuple[int, int]]) -> bool:
    """Return True if `dense` is the fastest for some layers, and there is one.

    Args:
        layers: how many features each makes, and how many it reads.
    """
    return (
        rows >= _LEAST_ROWS
        and len(layers) <= _MOST_LAYERS
        and rows * sum(units * features for units, features in layers) <= _MOST_PACKED
        and getattr(kernels(), "vector_width", 0) >= _LEAST_WIDTH
    )


def is_float32_cpu(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is float32 numbers in memory of the CPU; `torch.vmap` is not looked for."""
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
    )


def are_float32_cpu(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if the kernels take two tensors, as far as type, device and storage tell."""
    return (
        is_float32_cpu(left)
        and is_float32_cpu(right)
        and not (torch_private.is_batched(left) or torch_private.is_batched(right) or is_tracing())
    )


def fits_kernel(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if ``left @ right.T`` is a product for `multiply`, if no gradient is recorded."""
    return (
        left.dim() == 2
        and right.dim() == 2
        and use_kernel(left.size(0), right.size(0), right.size(1))
        and are_float32_cpu(left, right)
    )


def shapes_match(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Return True if there is a ``left @ right.T + bias``; left and right as `are_float32_cpu` and of two axes."""
    fits = bias is None or (bias.shape == right.shape[:1] and bias.dtype is left.dtype and bias.is_cpu)
    return fits and left.shape[1] == right.shape[1]


def multiply(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``left @ right.T + bias``; records no gradient.

    Args:
        left: (rows, depth), of any strides; like the others, float32 on the CPU.
        right: (columns, depth), of any strides.
        bias: (columns,), or None.
    """
    (rows, depth), columns = left.shape, right.shape[0]
    if not shapes_match(left, right, bias):
        return F.linear(left, right, bias)  # which says what is wrong
    result = left.new_empty(rows, columns)
    bias = None if bias is None else bias.contiguous()
    kernels().multiply(
        *(rows, columns, depth),
        *(left.data_ptr(), *left.stride()),
        *(right.data_ptr(), *right.stride()[::-1]),
        0 if bias is None else bias.data_ptr(),
        *(result.data_ptr(), torch.get_num_threads()),
    )
    return result


def pack(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight of a dense layer as `dense` reads it.

    Args:
        weight: (units, features), of any strides; float32 on the CPU.
    """
    found = weight.new_empty(kernels().packed_size(*weight.shape))
    kernels().pack(*weight.shape, weight.data_ptr(), *weight.stride()[::-1], found.data_ptr())
    return found


DenseLayer = tuple[int, int, torch.Tensor, "torch.Tensor | None", bool]
"""Features that are made and read, the packed weight, the bias, and whether negative results become 0."""


def dense(data: torch.Tensor, layers: Sequence[DenseLayer]) -> torch.Tensor:
    """Run dense layers one after the other; records no gradient.

    Args:
        data: (rows, features), contiguous; like the others, float32 on the CPU.
    """
    result = data.new_empty(len(data), layers[-1][0])
    given = [len(data), data.data_ptr(), result.data_ptr(), torch.get_num_threads()]
    for units, features, packed, bias, rectified in layers:
        given += units, features, packed.data_ptr(), 0 if bias is None else bias.data_ptr(), rectified
    kernels().dense(*given)
    return result


# Products of a few samples with a dense layer's weight by the native extension.
#
# They take as long as the weight takes to come from memory. MKL reads it at half of the speed that memory has, with
# one thread, and once more for every further sample or two.

_MOST_ROWS = 4
"""Rows that the kernel computes at once."""
_LEAST_WEIGHT = 2**16
"""Numbers of a weight below which calls count more than what they read."""
_LEAST_DEPTH = 128
"""Numbers of a weight's row below which it takes too long to add up what a vector holds."""


def use_few_rows_kernel(rows: int, columns: int, depth: int) -> bool:
    """Return True if the kernel is the fastest for a product of some size, and there is one."""
    return (
        0 < rows <= _MOST_ROWS
        and depth >= _LEAST_DEPTH
        and columns * depth >= _LEAST_WEIGHT
        and hasattr(kernels(), "multiply_few_rows")
    )


def has_few_rows(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if ``left @ right.T`` is a product for `multiply_few_rows`, if no gradient is recorded."""
    return (
        left.dim() == 2
        and right.dim() == 2
        and use_few_rows_kernel(left.shape[0], right.shape[0], right.shape[1])
        and are_float32_cpu(left, right)
    )


def multiply_few_rows(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``left @ right.T + bias``; records no gradient.

    Args:
        left: (rows, depth), of `pays`' sizes; like the others, float32 on the CPU.
        right: (columns, depth).
        bias: (columns,), or None.
    """
    (rows, depth), columns = left.shape, right.shape[0]
    # `F.linear` says what is wrong, and knows how to read across a weight
    if not shapes_match(left, right, bias) or right.stride(1) != 1:
        return F.linear(left, right, bias)
    left = left if left.stride(1) == 1 else left.contiguous()
    bias = None if bias is None else bias.contiguous()
    result = left.new_empty(rows, columns)
    kernels().multiply_few_rows(
        *(rows, columns, depth, left.data_ptr(), left.stride(0), right.data_ptr(), right.stride(0)),
        *(0 if bias is None else bias.data_ptr(), result.data_ptr(), torch.get_num_threads()),
    )
    return result


LARGE = 2**22
"""Multiplications in a product below which oneDNN gains too little to begin with it: its code takes about 8 MB."""
SMALL = 2**16
"""Multiplications below which all that chooses counts more than what is chosen, where no gradient is recorded."""
_WORTH_RECORDING = 2**20
"""Multiplications below which our own kernel does not make up for gradients that are recorded in Python."""
_LEAST_SAMPLES = 8
"""Samples below which oneDNN's gradients are the slower ones."""
_SLOW_WITH_MKL = ("AuthenticAMD", "HygonGenuine")
"""Vendors whose processors MKL does not run its fastest kernels on."""


def _vendor() -> str:
    """Return the text in which the system names the processor's vendor."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("vendor_id"):
                    return line
    except OSError:
        pass  # not Linux
    return platform.processor()


@cache
def onednn_is_faster() -> bool:
    """Return True if oneDNN multiplies large matrices faster than `F.linear` on this processor."""
    asked = os.environ.get("DPMODULE_ONEDNN")
    if asked == "0" or torch_private.onednn_linear is torch_private.plain_linear:
        return False
    by_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return asked == "1" or (by_mkl and any(name in _vendor() for name in _SLOW_WITH_MKL))


def use_onednn(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True if ``data @ weight.T`` is a product for oneDNN."""
    return (
        data.dim() == 2
        and data.shape[0] * weight.numel() >= LARGE
        and data.dtype is torch.float32
        and weight.dtype is torch.float32
        and data.device.type == "cpu"
        and onednn_is_faster()
        and not (torch_private.is_batched(data) or torch_private.is_batched(weight))
        and not is_tracing()  # it knows no such call, and chooses for itself
    )


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``left @ right.T + bias``, by oneDNN; all float32 on the CPU, matrices of two axes and a bias of one."""
    if right.stride(0) == 1 and right.stride(1) != right.shape[0]:
        # columns that lie apart, as of one step cut out of a sequence: oneDNN takes a thousand times as long for them
        right = right.t().contiguous().t()
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return _apply(left, right, bias)
    return torch_private.onednn_linear(left, right, bias, "none", [], "")


def fastest_kernel(rows: int, columns: int, depth: int) -> Callable[..., torch.Tensor]:
    """Return what is the fastest for ``left @ right.T + bias``; under `torch.no_grad`, all float32 on the CPU."""
    if use_kernel(rows, columns, depth):
        return multiply
    if use_few_rows_kernel(rows, columns, depth):
        return multiply_few_rows
    return product if rows * columns * depth >= LARGE and onednn_is_faster() else F.linear


def fastest_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left @ right.T``, of two axes each, by what is the fastest for their size; records no gradient."""
    if fits_kernel(left, right):
        return multiply(left, right)
    return (product if use_onednn(left, right) else F.linear)(left, right)


class _Linear(torch.autograd.Function):
    """``data @ weight.T + bias`` by oneDNN or our own kernel, with gradients that go the same way."""

    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(data, weight)
        ctx.has_bias = bias is not None
        return _fastest_linear(data, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        data, weight = ctx.saved_tensors
        (grad,) = grads
        by = F.linear if data.shape[0] < _LEAST_SAMPLES else fastest_product
        for_data = by(grad, weight.t()) if ctx.needs_input_grad[0] else None
        for_weight = by(grad.t(), data.t()) if ctx.needs_input_grad[1] else None
        for_bias = grad.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return for_data, for_weight, for_bias


_apply: Callable[..., torch.Tensor] = _Linear.apply


def linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``data @ weight.T + bias`` as `F.linear` does, by what is the fastest for their size.

    Args:
        data: (N, K), or (..., K) of one axis or more.
        weight: (M, K), of any strides.
        bias: (M,), or None.
    """
    if not torch.is_grad_enabled():
        return _fastest_linear(data, weight, bias)
    if data.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad):
        by = _apply if use_onednn(data, weight) or _kernel_beats_autograd(data, weight) else F.linear
        return by(data, weight, bias)
    if use_onednn(data, weight):
        return torch_private.onednn_linear(data, weight, bias, "none", [], "")
    return F.linear(data, weight, bias)


def _kernel_beats_autograd(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True if our own kernel, which takes half of the time of a slow MKL, is for a product that is learned."""
    return (
        data.shape[0] * weight.numel() >= _WORTH_RECORDING
        and onednn_is_faster()
        and fits_kernel(data, weight)
    )


def _fastest_linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``data @ weight.T + bias``; records no gradient."""
    if fits_kernel(data, weight):
        return multiply(data, weight, bias)
    if has_few_rows(data, weight):
        return multiply_few_rows(data, weight, bias)
    if use_onednn(data, weight):
        return torch_private.onednn_linear(data, weight, bias, "none", [], "")
    return F.linear(data, weight, bias)
