"""Matrix products of dense layers, by the faster of the two libraries included in torch.

torch multiplies matrices on the CPU with MKL, which has half of oneDNN's speed on AMD processors with AVX-512, and the
same or a higher speed on AMD's other ones and on Intel's. The choice depends only on processor, types and sizes, never
on a measurement: results are bitwise reproducible on a machine. The environment variable DPMODULE_ONEDNN=0 or 1
overrides the table of processors.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ..tracing import is_tracing

# Products of moderate size by the native extension.
#
# Both libraries have a setup cost per product, and their code takes some ten megabytes of memory once it has run. The
# extension's kernel has no setup. Torch's threads share the larger of these products, and the rows of a chain of
# layers.

_MIN_WORK, _MAX_WORK = 2**14, 2**23
"""Range of the number of multiplications in which the kernel is the fastest, with one thread or several.

On processors that MKL favours, MKL takes 0.6 to 0.9 of the kernel's time.
"""
_MAX_PACKED = 2**28
"""Maximum number of multiplications with a packed weight by the extension's kernel."""
_MAX_PACKED_HALVES = 2**27
"""The same on AMD's processors with AVX-512 up to Zen 4, which compute a vector in two halves."""
_MIN_MKL, _WIDE_UNITS = 2**17, 192
"""Size of a weight, and units, from which MKL is the fastest with a packed weight, on processors that it favours."""
_MANY_ROWS = 1024
"""Rows above which oneDNN is faster still."""
_MAX_CACHED = 2**18
"""Size of a packed weight that stays in the cache while many rows are multiplied with it."""
_MANY_UNITS, _SHORT_DATA = 128, 2**16
"""Units from which, or else size of data up to which, a packed product is the fastest: its tiles are full enough."""
_MIN_UNITS = 16
"""Units below which most of a tile is padding."""
_MAX_DIVIDING = 2**16
"""Multiplications of a layer of few units up to which dividing a chain of layers takes longer."""
_FEW_COLUMNS = 4
"""Columns up to which torch is the fastest: the other kernels take up to five times as long for a single one."""
_MIN_FEATURES = 32
"""Features below which writing a large result takes longer than computing it."""
FEW_ROWS = 4
"""Maximum number of rows that are multiplied with a weight as it is; see `dense`.

Such products are limited by reading the weight from memory. MKL reads it at half of the memory bandwidth, with one
thread, and again for every one or two further rows.
"""
_MIN_WEIGHT, _MIN_DEPTH = 2**16, 128
"""Sizes of a weight and of its rows below which the overhead of calls dominates for these."""
_COLLIDING, _SHALLOW = 1024, 8
"""Columns whose multiples torch's libraries write slowly, except on Intel, and depth up to which this takes most of
their time."""
_MIN_WORK_OVER_MKL, _SHORT, _DEEP = 2**17, 24, 512
"""Minimum number of multiplications, and depths between which the kernel beats MKL, on processors on which
`kernel_beats_mkl`."""
_NARROW, _NARROW_ROWS, _WIDE_ROWS = 64, 64, 1024
"""Number of few columns, and rows from which it does so with few columns, and with more."""
_MIN_TILE_SAMPLES, _MAX_TILE_WEIGHT = 64, 64
"""Samples, and elements of a weight for each, within which the gradient of the weight is the fastest by the tiles of
1x1 convolutions, with the widest vectors on processors that MKL does not favour."""
_MIN_WIDTH = 8
"""Minimum vector width; the libraries are faster on narrower vectors."""

_native: Any = None


def kernels() -> Any:
    """Return the native extension, or None if there is none; it is loaded on first use."""
    global _native
    if _native is None:
        from ... import native

        _native = native.core
    return _native


def address(tensor: torch.Tensor | None) -> int:
    """Return the address of a tensor, 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def use_kernel(rows: int, columns: int, depth: int, turned: bool = False) -> bool:
    """Return True if the kernel exists and is the fastest for this size.

    Args:
        turned: True if the left matrix is transposed in memory.
    """
    is_wide = getattr(kernels(), "vector_width", 0) >= _MIN_WIDTH
    if 0 < rows <= FEW_ROWS:
        return is_wide and depth >= _MIN_DEPTH and columns * depth >= _MIN_WEIGHT
    work = rows * columns * depth
    if depth == 1 or columns <= _FEW_COLUMNS or not is_wide:  # libraries have a kernel for outer products
        return False
    is_shallow = columns % _COLLIDING == 0 and depth <= _SHALLOW
    if is_shallow and work >= _MIN_WORK_OVER_MKL and not mkl_is_fastest():
        return True
    if _by_mkl():
        is_fast = kernel_beats_mkl() and _beats_mkl(rows, columns, depth)
        return is_fast and work >= _MIN_WORK_OVER_MKL and not turned
    return _MIN_WORK <= work <= _MAX_WORK


def _beats_mkl(rows: int, columns: int, depth: int) -> bool:
    """Return True for sizes with which MKL is slow on processors on which `kernel_beats_mkl`."""
    if columns <= _NARROW:
        return rows >= _NARROW_ROWS and (rows < _WIDE_ROWS or depth >= _SHORT)
    return rows >= _WIDE_ROWS and _SHORT <= depth <= _DEEP


def packed_kernel(rows: int, units: int, features: int, in_chain: bool = False) -> str:
    """Return the fastest kernel for a layer whose weight may be packed.

    Args:
        in_chain: True among other layers of one call, which another kernel would divide.

    Returns:
        "native", "onednn", "mkl", or "" for `linear`.
    """
    weight = units * features
    work = rows * weight
    is_large = units >= _WIDE_UNITS and weight >= _MIN_MKL
    # asked first, so that the first prediction tries oneDNN, whose first call crashes if no memory is left
    if mkl_is_fastest() and is_large and rows > 2 * FEW_ROWS:
        return "onednn" if rows > _MANY_ROWS and work > _MAX_PACKED and _has_onednn() else "mkl"
    if packs_well(rows, units, features, in_chain):
        return "native"
    return "onednn" if units > _FEW_COLUMNS and work >= ONEDNN_MIN_WORK and onednn_is_faster() else ""


def packs_well(rows: int, units: int, features: int, in_chain: bool = False) -> bool:
    """Return True if `dense` exists, and is faster than `linear` with a packed weight.

    Args:
        in_chain: as for `packed_kernel`.
    """
    if getattr(kernels(), "vector_width", 0) < _MIN_WIDTH:
        return False
    if rows <= FEW_ROWS:
        return True
    weight, size = units * features, rows * features
    if units <= _FEW_COLUMNS:
        return in_chain and rows * weight <= _MAX_DIVIDING
    if kernel_beats_mkl():
        return True
    if _is_amd() and not beats_mkl_by_width():
        return rows * weight <= _MAX_PACKED_HALVES
    if features < _MIN_FEATURES and rows * units > _MIN_WORK:
        return False
    is_wide = size <= _MIN_WORK or (units >= _MIN_UNITS and (size <= _SHORT_DATA or units >= _MANY_UNITS))
    is_small = weight <= _MAX_CACHED or rows <= 2 * FEW_ROWS
    return is_wide and is_small and rows * weight <= _MAX_PACKED


def _by_mkl() -> bool:
    """Return True if torch multiplies by MKL, and this processor is one that MKL favours."""
    return not onednn_is_faster() and has_packed_mkl()


@cache
def kernel_beats_mkl() -> bool:
    """Return True if the extension's kernel beats MKL for most sizes: on AMD without AVX-512."""
    return _is_amd() and not _has_avx512()


@cache
def beats_mkl_by_width() -> bool:
    """Return True if this processor is twice as fast with AVX-512, which MKL does not use on it: AMD's from Zen 5."""
    uses_width = _has_avx512() and getattr(kernels(), "vector_width", 0) == 16
    return uses_width and _is_amd() and int(_from_system("cpu family") or 0) >= _ZEN5


def mkl_is_fastest() -> bool:
    """Return True if MKL multiplies large matrices the fastest: on Intel."""
    return _by_mkl() and not kernel_beats_mkl()


@cache
def has_packed_mkl() -> bool:
    """Return True if torch multiplies by MKL, with packed weights."""
    found: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return found and torch_private.mkl_linear is not torch_private.plain_mkl_linear


def is_float32_cpu(tensor: torch.Tensor) -> bool:
    """Return True for a plain, strided float32 tensor on the CPU; does not check for `torch.vmap`."""
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and not tensor.is_neg()  # its memory has other signs
    )


def are_float32_cpu(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if type, device and storage of both tensors fit the kernels."""
    return (
        is_float32_cpu(left)
        and is_float32_cpu(right)
        and not (torch_private.is_transformed(left, right) or is_tracing())
    )


def fits_kernel(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if ``left @ right.T`` without gradient should use `multiply`."""
    return (
        left.dim() == 2
        and right.dim() == 2
        and use_kernel(left.size(0), right.size(0), right.size(1), left.stride(1) != 1)
        and are_float32_cpu(left, right)
    )


def multiply(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``left @ right.T + bias`` without recording a gradient.

    Args:
        left: (rows, depth), any strides; all float32 on the CPU.
        right: (columns, depth), any strides.
        bias: (columns,), or None.
    """
    (rows, depth), columns = left.shape, right.shape[0]
    is_few = 0 < rows <= FEW_ROWS
    fits = bias is None or (bias.shape == right.shape[:1] and bias.dtype is left.dtype and bias.is_cpu)
    if not fits or depth != right.shape[1] or (is_few and not right.is_contiguous()):
        return F.linear(left, right, bias)  # raises errors, and supports transposed weights
    if is_few:
        bias = None if bias is None else bias.contiguous()
        return dense(left.contiguous(), [((columns, depth), right, bias, "")])
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
    """Return the weight of a dense layer in the layout of `dense`.

    Args:
        weight: (units, features), any strides; float32 on the CPU.
    """
    packed = weight.new_empty(kernels().packed_size(*weight.shape))
    kernels().pack(*weight.shape, weight.data_ptr(), *weight.stride()[::-1], packed.data_ptr())
    return packed


def pack_for(rows: int, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight in the layout in which `dense` reads it for a number of rows."""
    return pack(weight) if rows > FEW_ROWS else weight.contiguous()


FUNCTIONS = (
    "none",
    "relu",
    "clamp",
    "hardswish",
    "swish",
    "sigmoid",
    "tanh",
    "leaky_relu",
    "hard_sigmoid",
    "gelu",
)
"""Functions that the extension applies to results, by their numbers there."""
ACTIVATIONS = {
    "": FUNCTIONS.index("none"),
    "relu": FUNCTIONS.index("clamp"),  # keeps NaN
    **{name: FUNCTIONS.index(name) for name in ("sigmoid", "tanh", "gelu")},
}
"""Activations of dense layers, or none, with the numbers of their functions."""

DenseLayer = tuple[tuple[int, int], torch.Tensor, "torch.Tensor | None", str]
"""Numbers of output and input features, weight, bias, and activation.

The weight is packed, or for at most `FEW_ROWS` rows contiguous.
"""


def dense(data: torch.Tensor, layers: Iterable[DenseLayer]) -> torch.Tensor:
    """Run a chain of dense layers without recording a gradient.

    Args:
        data: (rows, features) or (samples, rows, features), whose features are contiguous; all float32 on the CPU.
    """
    return run_dense(data, numbers_of(layers))


def numbers_of(layers: Iterable[DenseLayer]) -> list[int]:
    """Return layers as `run_dense` takes them; they must stay alive."""
    numbers: list[int] = []
    for size, weight, bias, activation in layers:
        address = 0 if bias is None else bias.data_ptr()
        numbers += *size, weight.data_ptr(), address, ACTIVATIONS[activation]
    return numbers


def run_dense(data: torch.Tensor, numbers: list[int]) -> torch.Tensor:
    """Run layers; see `dense`."""
    shape, strides = data.shape, data.stride()
    samples, sample_gap = (shape[0], strides[0]) if len(shape) == 3 else (1, 0)
    result = data.new_empty(*shape[:-1], numbers[-5])
    where = samples, shape[-2], data.data_ptr(), sample_gap, strides[-2], result.data_ptr()
    kernels().dense(*where, torch.get_num_threads(), *numbers)
    return result


ONEDNN_MIN_WORK = 2**22
"""Multiplications below which oneDNN gains too little for loading its code of about 8 MB."""
CHOICE_MIN_WORK = 2**16
"""Multiplications below which choosing a kernel costs more than it gains, without gradient."""
_WORTH_RECORDING, _WORTH_RECORDING_OVER_MKL = 2**20, 2**26
"""Multiplications below which our own kernel does not make up for an autograd function in Python, where oneDNN is the
faster library and where MKL is."""
_AMD = ("AuthenticAMD", "HygonGenuine")
"""Vendors of AMD's processors, on which MKL does not use AVX-512."""
_ZEN5 = 26
"""Family of those that compute vectors of 16 numbers as fast as vectors of 8."""


def _from_system(name: str) -> str:
    """Return the system's text on a property of the processor; "" if there is none."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(name):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return ""


def _vendor() -> str:
    """Return the system's text with the processor's vendor."""
    return _from_system("vendor_id") or platform.processor()


@cache
def _is_amd() -> bool:
    return any(name in _vendor() for name in _AMD)


def _has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def _has_onednn() -> bool:
    return (
        os.environ.get("DPMODULE_ONEDNN") != "0"
        and torch_private.onednn_linear is not torch_private.plain_linear
    )


@cache
def onednn_is_faster() -> bool:
    """Return True if oneDNN multiplies large matrices faster than `F.linear` on this processor."""
    if not _has_onednn():
        return False
    if os.environ.get("DPMODULE_ONEDNN") == "1":
        return True
    by_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return by_mkl and _has_avx512() and _is_amd()


def use_onednn(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True if ``data @ weight.T`` should use oneDNN."""
    return (
        data.dim() == 2
        and weight.shape[0] > _FEW_COLUMNS
        and data.shape[1] > 1
        and data.shape[0] * weight.numel() >= ONEDNN_MIN_WORK
        and data.dtype is torch.float32
        and weight.dtype is torch.float32
        and data.device.type == "cpu"
        and onednn_is_faster()
        and not torch_private.is_transformed(data, weight)
        and not is_tracing()  # a compiler does not know the call, and chooses kernels itself
    )


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``left @ right.T + bias`` by oneDNN, for two matrices and a vector, float32 on the CPU."""
    if right.stride(0) == 1 and right.stride(1) != right.shape[0]:
        # strided columns, as of one step of a sequence, are a thousand times slower in oneDNN
        right = right.t().contiguous().t()
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return _apply(left, right, bias)
    return torch_private.onednn_linear(left, right, bias, "none", [], "")


def fastest_kernel(rows: int, columns: int, depth: int, turned: bool = False) -> Callable[..., torch.Tensor]:
    """Return the fastest function for ``left @ right.T + bias`` with `torch.no_grad`, float32 on the CPU.

    Args:
        turned: True if the left matrix is transposed in memory.
    """
    if use_kernel(rows, columns, depth, turned):
        return multiply
    return product if rows * columns * depth >= ONEDNN_MIN_WORK and onednn_is_faster() else F.linear


def choose_product(
    rows: int, columns: int, depth: int, turned: bool = False
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the fastest function for ``left @ right``; see `fastest_kernel`."""
    kernel = fastest_kernel(rows, columns, depth, turned)
    return torch.mm if kernel is F.linear else lambda left, right: kernel(left, right.t())


def fastest_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left @ right.T`` of two matrices by the fastest kernel, without recording a gradient."""
    if fits_kernel(left, right):
        return multiply(left, right)
    return (product if use_onednn(left, right) else F.linear)(left, right)


def gradient_product(samples: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the fastest function for ``left @ right.T`` in the backward of a dense layer, float32 on the CPU.

    It is torch's own while autograd records the backward, for gradients of the gradients.
    """
    return fastest_product if samples > 1 and not torch.is_grad_enabled() else F.linear


def weight_gradients(
    grad: torch.Tensor, data: torch.Tensor, with_bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the gradients of the weight and bias of a dense layer, float32 on the CPU.

    Shape:
        grad: (N, M), the gradient of the result.
        data: (N, K).
        returns: (M, K), and (M,) if the bias's is wanted.
    """
    (samples, units), features = grad.shape, data.shape[1]
    fits = not torch.is_grad_enabled() and grad.is_contiguous() and data.is_contiguous()
    fits = fits and samples >= _MIN_TILE_SAMPLES and 0 < units * features <= _MAX_TILE_WEIGHT * samples
    # tiles are the fastest with the widest vectors
    is_wide = fits and getattr(kernels(), "vector_width", 0) > _MIN_WIDTH and not _by_mkl()
    if is_wide and are_float32_cpu(grad, data):
        found, bias = grad.new_empty(units, features), grad.new_empty(units) if with_bias else None
        # samples are the rows of an image of one column
        axes = samples, samples, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0
        addresses = data.data_ptr(), grad.data_ptr(), 0 if bias is None else bias.data_ptr()
        sizes = 1, features, units, *axes, torch.get_num_threads()
        kernels().convolution_gradients(*sizes, found.data_ptr(), features, 1, 1, 1, *addresses)
        return found, bias
    return gradient_product(samples)(grad.t(), data.t()), grad.sum(0) if with_bias else None


class _Linear(torch.autograd.Function):
    """``data @ weight.T + bias`` and its gradients by oneDNN or our own kernel."""

    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(data, weight)
        ctx.has_bias = bias is not None
        return fastest_linear(data, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        data, weight = ctx.saved_tensors
        (grad,) = grads
        for_data = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_data = gradient_product(len(data))(grad, weight.t())
        if any(ctx.needs_input_grad[1:]):
            with_bias = ctx.has_bias and ctx.needs_input_grad[2]
            for_weight, for_bias = weight_gradients(grad, data, with_bias)
        return for_data, for_weight, for_bias


_apply: Callable[..., torch.Tensor] = _Linear.apply


def linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``data @ weight.T + bias`` like `F.linear`, by the fastest kernel for the sizes.

    Args:
        data: (N, K), or (..., K) with at least one axis.
        weight: (M, K), any strides.
        bias: (M,), or None.
    """
    if not torch.is_grad_enabled():
        return fastest_linear(data, weight, bias)
    if data.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad):
        if use_onednn(data, weight):
            return _apply(data, weight, bias)
        least = _WORTH_RECORDING if onednn_is_faster() else _WORTH_RECORDING_OVER_MKL
        is_worth = data.shape[0] * weight.numel() >= least and fits_kernel(data, weight)
        return (_apply if is_worth else F.linear)(data, weight, bias)
    if use_onednn(data, weight):
        return torch_private.onednn_linear(data, weight, bias, "none", [], "")
    return F.linear(data, weight, bias)


def fastest_linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``data @ weight.T + bias`` by the fastest kernel, without recording a gradient."""
    if fits_kernel(data, weight):
        return multiply(data, weight, bias)
    if use_onednn(data, weight):
        return torch_private.onednn_linear(data, weight, bias, "none", [], "")
    return F.linear(data, weight, bias)
