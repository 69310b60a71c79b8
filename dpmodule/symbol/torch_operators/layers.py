"""Layers: convolution, pooling, normalisation, embedding, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import TABLE, translates
from .value import Dims, NoCounterpart, Size, TorchValue, as_size, dims_of, is_number, same

if TYPE_CHECKING:
    from ...types import Ints


def _each(value: Ints, rank: int) -> tuple[int, ...]:
    """Return one number for each spatial axis."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


# convolution


def _filter(
    b: SymbolBuilder, value: TorchValue, weight: TorchValue, bias: TorchValue | None, options: dict[str, Any]
) -> Any:
    """Apply a convolution or its transpose, to a batch or to a single image."""
    rank = weight.rank - 2
    single = value.rank == rank + 1
    if single:
        value = b.reshape(value, (1, *value.dims))
    name = "Deconvolution" if "adj" in options else "Convolution"
    inputs = [v for v in (value, weight, bias) if v is not None]
    output = b.op(name, *inputs, kernel=weight.dims[2:], no_bias=bias is None, **options)
    return b.squeeze(output, [0], rank + 2) if single else output


@translates("conv1d", "conv2d", "conv3d")
def _convolution(
    b: SymbolBuilder,
    value: TorchValue,
    weight: TorchValue,
    bias: TorchValue | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    rank = weight.rank - 2
    options: dict[str, Any] = {"stride": _each(stride, rank), "dilate": _each(dilation, rank)}
    options |= {"num_filter": weight.dims[0], "num_group": groups}
    if isinstance(padding, str):
        value, pad = _named_padding(b, value, weight, padding, options["dilate"])
    else:
        pad = _each(padding, rank)
    return _filter(b, value, weight, bias, {**options, "pad": pad})


def _named_padding(
    b: SymbolBuilder, value: TorchValue, weight: TorchValue, name: str, dilate: tuple[int, ...]
) -> tuple[TorchValue, tuple[int, ...]]:
    """Return the data, padded at one side if necessary, and the padding of both sides."""
    totals = [0 if name == "valid" else d * (k - 1) for d, k in zip(dilate, weight.dims[2:])]
    widths = [0, 0, 0, 0]
    for total in totals:
        widths += [0, total % 2]
    if any(widths):
        dims = (*value.dims[:2], *(d + t % 2 for d, t in zip(value.dims[2:], totals)))
        padded = b.op("Pad", value, mode="constant", pad_width=tuple(widths), constant_value=0.0)
        value = b.value(padded, dims, value.dtype)
    return value, tuple(t // 2 for t in totals)


@translates("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed(
    b: SymbolBuilder,
    value: TorchValue,
    weight: TorchValue,
    bias: TorchValue | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    rank = weight.rank - 2
    options: dict[str, Any] = {"stride": _each(stride, rank), "dilate": _each(dilation, rank)}
    options |= {"pad": _each(padding, rank), "adj": _each(output_padding, rank)}
    options |= {"num_filter": weight.dims[1] * groups, "num_group": groups}
    return _filter(b, value, weight, bias, options)


@translates("convolution")
def _any_convolution(b: SymbolBuilder, *arguments: Any) -> Any:
    *given, dilation, transposed, output_padding, groups = arguments
    if transposed:
        given += [output_padding, groups, dilation]
        return _transposed(b, *given)
    given += [dilation, groups]
    return _convolution(b, *given)


# pooling


def _pooled(b: SymbolBuilder, value: TorchValue, rank: int, ceil: bool, options: dict[str, Any]) -> Any:
    single = value.rank == rank + 1
    if single:
        value = b.reshape(value, (1, *value.dims))
    pooled = b.op("Pooling", value, pooling_convention="full" if ceil else "valid", **options)
    wanted = dims_of(_first(b.result))[-rank:]
    if ceil and not all(is_number(d) for d in (*wanted, *value.dims[2:])):
        raise NoCounterpart("rounds up the number of windows along an axis whose size is not fixed")
    if ceil:  # MXNet counts a window within the padding, torch does not
        pooled = b.op("slice", pooled, begin=(None,) * (rank + 2), end=(None, None, *wanted))
    return b.squeeze(pooled, [0], rank + 2) if single else pooled


def _first(result: Any) -> Any:
    return result if isinstance(result, torch.Tensor) else result[0]


def _windows(rank: int, kernel_size: Ints, stride: Ints, padding: Ints) -> dict[str, Any]:
    """Return the attributes of windows; the default stride is their size."""
    kernel = _each(kernel_size, rank)
    return {"kernel": kernel, "stride": _each(stride, rank) or kernel, "pad": _each(padding, rank)}


def _max_pool(rank: int) -> Any:
    def translate(
        b: SymbolBuilder,
        value: TorchValue,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Any:
        if any(n != 1 for n in _each(dilation, rank)):
            raise NoCounterpart("pools over windows with dilation, which MXNet does not support")
        options = _windows(rank, kernel_size, stride, padding)
        output = _pooled(b, value, rank, ceil_mode, {**options, "pool_type": "max"})
        return output if isinstance(b.result, torch.Tensor) else [output, None]

    return translate


def _avg_pool(rank: int) -> Any:
    def translate(
        b: SymbolBuilder,
        value: TorchValue,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        options = _windows(rank, kernel_size, stride, padding)
        if divisor_override is None:
            options |= {"pool_type": "avg", "count_include_pad": count_include_pad}
            return _pooled(b, value, rank, ceil_mode, options)
        total = _pooled(b, value, rank, ceil_mode, {**options, "pool_type": "sum"})
        return b.op("_div_scalar", total, scalar=float(divisor_override))

    return translate


for _rank in (1, 2, 3):
    TABLE[f"max_pool{_rank}d"] = TABLE[f"max_pool{_rank}d_with_indices"] = _max_pool(_rank)
    TABLE[f"avg_pool{_rank}d"] = _avg_pool(_rank)


def _adaptive(kind: str, rank: int) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue, output_size: Ints) -> Any:
        output = _adaptive_pooled(b, value, kind, rank)
        return output if isinstance(b.result, torch.Tensor) else [output, None]

    return translate


def _adaptive_pooled(b: SymbolBuilder, value: TorchValue, kind: str, rank: int) -> Any:
    wanted = dims_of(_first(b.result))[-rank:]
    if all(same(n, 1) for n in wanted):
        options = {"global_pool": True, "pool_type": kind, "kernel": (1,) * rank}
        return _pooled(b, value, rank, False, options)
    sizes = value.dims[-rank:]
    if all(map(same, wanted, sizes)):
        return value
    if all(is_number(n) and is_number(d) and d % n == 0 for n, d in zip(wanted, sizes)):
        kernel = tuple(d // n for n, d in zip(wanted, sizes))
        return _pooled(b, value, rank, False, {"kernel": kernel, "stride": kernel, "pool_type": kind})
    if not all(map(is_number, (*wanted, *sizes))):
        raise NoCounterpart("pools to a size that is not fixed, or data whose size is not")
    if kind != "avg" or rank > 2 or value.rank != rank + 2:
        return _pooled_by_axis(b, value, kind, wanted)
    if rank == 2:
        return b.op("_contrib_AdaptiveAvgPooling2D", value, output_size=tuple(wanted))
    flat = b.op("_contrib_AdaptiveAvgPooling2D", b.op("expand_dims", value, axis=2), output_size=(1, *wanted))
    return b.op("squeeze", flat, axis=2)


def _pooled_by_axis(b: SymbolBuilder, value: TorchValue, kind: str, wanted: Dims) -> Symbol:
    """Pool each axis in turn over windows of different lengths."""
    single = value.rank == len(wanted) + 1
    symbol = b.op("expand_dims", value, axis=0) if single else b.sym(value)
    for i, (count, size) in enumerate(zip(wanted, value.dims[-len(wanted) :])):
        axis, windows = i + 2, []
        for k in range(count):
            begin, end = k * size // count, -((k + 1) * size // -count)
            window_input = b.op("slice_axis", symbol, axis=axis, begin=begin, end=end)
            window = tuple(end - begin if j == i else 1 for j in range(len(wanted)))
            windows.append(b.op("Pooling", window_input, kernel=window, pool_type=kind))
        symbol = windows[0] if count == 1 else b.op("Concat", *windows, dim=axis)
    return b.squeeze(symbol, [0], len(wanted) + 2) if single else symbol


for _rank in (1, 2, 3):
    TABLE[f"adaptive_avg_pool{_rank}d"] = TABLE[f"_adaptive_avg_pool{_rank}d"] = _adaptive("avg", _rank)
    TABLE[f"adaptive_max_pool{_rank}d"] = _adaptive("max", _rank)


# normalisation


def _vector(
    b: SymbolBuilder, value: TorchValue | None, size: Size, number: float, like: TorchValue
) -> TorchValue:
    """Return a parameter of a normalisation, or a constant if the module lacks it."""
    return value if value is not None else b.full((size,), number, like.dtype)


@translates("batch_norm")
def _batch_norm(
    b: SymbolBuilder,
    value: TorchValue,
    weight: TorchValue | None,
    bias: TorchValue | None,
    mean: TorchValue | None,
    var: TorchValue | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Any:
    size = value.dims[1]
    gamma, beta = _vector(b, weight, size, 1.0, value), _vector(b, bias, size, 0.0, value)
    if mean is None or var is None:
        return _by_statistics_of_batch(b, value, gamma, beta, eps)
    frozen = b.training and not training
    options = {"eps": eps, "momentum": 1.0 - momentum, "fix_gamma": False, "use_global_stats": frozen}
    return b.op("BatchNorm", value, gamma, beta, mean, var, **options)


def _by_statistics_of_batch(
    b: SymbolBuilder, value: TorchValue, gamma: TorchValue, beta: TorchValue, eps: float
) -> Symbol:
    """Normalise by the batch's mean and variance, even in prediction."""
    axes = tuple(i for i in range(value.rank) if i != 1)
    mean = b.op("mean", value, axis=axes, keepdims=True)
    centred = b.op("broadcast_sub", value, mean)
    spread = b.op("mean", b.op("square", centred), axis=axes, keepdims=True)
    scale = b.op("rsqrt", b.op("_plus_scalar", spread, scalar=float(eps)))
    plain = b.value(b.op("broadcast_mul", centred, scale), value.dims, value.dtype)
    return _scale_channels(b, plain, gamma, beta)


def _scale_channels(
    b: SymbolBuilder, value: TorchValue, gamma: TorchValue | None, beta: TorchValue | None
) -> Symbol:
    symbol = b.sym(value)
    for name, vector in (("broadcast_mul", gamma), ("broadcast_add", beta)):
        if vector is not None:
            symbol = b.op(name, symbol, b.reshape(vector, (1, vector.dims[0], *[1] * (value.rank - 2))))
    return symbol


@translates("_native_batch_norm_legit_functional")
def _functional_batch_norm(b: SymbolBuilder, *arguments: Any) -> list[Any]:
    return [_batch_norm(b, *arguments), None, None, arguments[3], arguments[4]]


translates("native_batch_norm")(lambda b, *arguments: [_batch_norm(b, *arguments), None, None])


@translates("_native_batch_norm_legit")
def _stateless_batch_norm(b: SymbolBuilder, *arguments: Any) -> list[Any]:
    first, rest = arguments[:3], arguments[-3:]
    states = arguments[3:-3] or (None, None)  # the overload "no_stats" has none
    return [_batch_norm(b, *first, *states, *rest), None, None]


@translates("_native_batch_norm_legit_no_training")
def _predicting_batch_norm(b: SymbolBuilder, *arguments: Any) -> list[Any]:
    given = (*arguments[:5], False, *arguments[5:])  # not training
    return [_batch_norm(b, *given), None, None]


@translates("layer_norm")
def _layer_norm(
    b: SymbolBuilder,
    value: TorchValue,
    shape: Sequence[int],
    weight: TorchValue | None = None,
    bias: TorchValue | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    size = int(np.prod(shape))
    flat = b.reshape(value, (*value.dims[: value.rank - len(shape)], size))
    gamma, beta = (b.reshape(_vector(b, v, size, n, value), (size,)) for v, n in ((weight, 1.0), (bias, 0.0)))
    normalized = b.op("LayerNorm", flat, gamma, beta, axis=-1, eps=eps)
    return b.reshape(b.value(normalized, flat.dims, value.dtype), value.dims)


translates("native_layer_norm")(lambda b, value, *args: [_layer_norm(b, value, *args), None, None])


@translates("rms_norm")
def _rms_norm(
    b: SymbolBuilder,
    value: TorchValue,
    shape: Sequence[int],
    weight: TorchValue | None = None,
    eps: float | None = None,
) -> Any:
    axes = tuple(range(value.rank - len(shape), value.rank))
    eps = torch.finfo(value.dtype).eps if eps is None else eps
    mean = b.op("mean", b.op("square", value), axis=axes, keepdims=True)
    normalized = b.op("broadcast_mul", value, b.op("rsqrt", b.op("_plus_scalar", mean, scalar=float(eps))))
    return normalized if weight is None else b.op("broadcast_mul", normalized, weight)


@translates("group_norm")
def _group_norm(
    b: SymbolBuilder,
    value: TorchValue,
    groups: int,
    weight: TorchValue | None = None,
    bias: TorchValue | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> TorchValue:
    whole = value if value.rank > 2 else b.reshape(value, (*value.dims, 1))
    vectors = [_vector(b, given, value.dims[1], n, value) for given, n in ((weight, 1.0), (bias, 0.0))]
    normalized = b.op("GroupNorm", whole, *vectors, num_groups=groups, eps=eps)
    return b.reshape(b.value(normalized, whole.dims, value.dtype), value.dims)


@translates("instance_norm")
def _instance_norm(
    b: SymbolBuilder,
    value: TorchValue,
    weight: TorchValue | None,
    bias: TorchValue | None,
    mean: TorchValue | None,
    var: TorchValue | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    if mean is not None or not use_input_stats:
        raise NoCounterpart("keeps running statistics of single examples, which MXNet does not support")
    size = value.dims[1]
    gamma, beta = _vector(b, weight, size, 1.0, value), _vector(b, bias, size, 0.0, value)
    return b.op("InstanceNorm", value, gamma, beta, eps=eps)


# embedding


@translates("embedding")
def _embedding(
    b: SymbolBuilder,
    weight: TorchValue,
    indices: TorchValue,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Symbol:
    if scale_grad_by_freq:
        raise NoCounterpart("scales gradients by the frequency of rows, which MXNet does not support")
    rows, width = weight.dims
    vectors = b.op("Embedding", indices, weight, input_dim=rows, output_dim=width, dtype=weight.type)
    if padding_idx < 0:
        return vectors
    kept = b.op("_not_equal_scalar", indices, scalar=float(padding_idx))
    mask = b.value(b.op("expand_dims", kept, axis=indices.rank or 1), (*indices.dims, 1), torch.bool)
    return b.op("where", b.expand(mask, (*indices.dims, width)), vectors, b.op("BlockGrad", vectors))


_SUM, _MAX = 0, 2


@translates("embedding_bag", "_embedding_bag")
def _embedding_bag(
    b: SymbolBuilder,
    weight: TorchValue,
    indices: TorchValue,
    offsets: TorchValue,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    factors: TorchValue | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> list[Any]:
    size = indices.dims[0] / offsets.dims[0] if offsets.rank else 0
    size = as_size(size if not isinstance(size, float) or size % 1 else int(size))
    even = is_number(size) and _counts_by(offsets, size) and not include_last_offset
    if not even or (padding_idx is not None and padding_idx >= 0):
        raise NoCounterpart("reads bags of different sizes, or with padding")
    rows = b.reshape(indices, (offsets.dims[0], size))
    vectors = b.value(
        _embedding(b, weight, rows, -1, scale_grad_by_freq), (*rows.dims, weight.dims[1]), weight.dtype
    )
    if factors is not None:
        scaled = b.op("broadcast_mul", vectors, b.reshape(factors, (*rows.dims, 1)))
        vectors = b.value(scaled, vectors.dims, vectors.dtype)
    if mode == _MAX:  # as in torch, one of several equal rows gets the gradient
        pooled = b.op("pick", vectors, b.op("argmax", vectors, axis=1), axis=1)
    else:
        pooled = b.op("sum" if mode == _SUM else "mean", vectors, axis=1)
    return [pooled, None, None, None]


def _counts_by(value: TorchValue, step: int) -> bool:
    """Return True if a value holds 0, step, 2 * step, ..."""
    if value.tensor is not None:
        return value.tensor.tolist() == list(range(0, step * value.tensor.numel(), step))
    node = None if value.symbol is None else value.symbol.entries[0][0]
    factor = 1.0
    while node is not None and node.op is not None and node.op.name in ("Cast", "_mul_scalar"):
        factor *= node.a.scalar if node.op.name == "_mul_scalar" else 1.0
        node = node.inputs[0][0]
    counts = node is not None and node.op is not None and node.op.name == "_contrib_arange_like"
    return counts and factor == step


# resizing and padding


def _pairs(pad: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Return torch's padding, which begins with the last axis, as a pair for each axis from the first."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


@translates("pad", "constant_pad_nd")
def _pad(
    b: SymbolBuilder,
    value: TorchValue,
    pad: Sequence[int],
    mode: str | float | None = "constant",
    number: float | None = None,
) -> Any:
    if not isinstance(mode, str):
        number, mode = mode, "constant"
    if not all(is_number(n) for n in pad):
        raise NoCounterpart("pads by widths that are not fixed")
    pairs = _pairs(pad, value.rank)
    if mode == "circular":
        return _wrapped(b, value, pairs)
    value, pairs = _cropped(b, value, pairs)
    if not any(map(any, pairs)):
        return value
    if value.rank > 2 and not any(map(any, pairs[:2])):
        ours = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}[mode]
        widths = tuple(n for pair in pairs for n in pair)
        return b.op("Pad", value, mode=ours, pad_width=widths, constant_value=float(number or 0.0))
    if mode != "constant":
        return _padded_single(b, value, pairs, mode)
    return _surrounded(b, value, pairs, number or 0.0)


def _padded_single(b: SymbolBuilder, value: TorchValue, pairs: list[tuple[int, int]], mode: str) -> Any:
    whole = b.reshape(value, (1, *value.dims))
    widths = tuple(n for pair in [(0, 0), *pairs] for n in pair)
    padded = b.op("Pad", whole, mode={"reflect": "reflect", "replicate": "edge"}[mode], pad_width=widths)
    return b.squeeze(padded, [0], whole.rank)


def _cropped(
    b: SymbolBuilder, value: TorchValue, pairs: list[tuple[int, int]]
) -> tuple[TorchValue, list[tuple[int, int]]]:
    """Crop where padding is negative; return the remaining padding."""
    begin = tuple(-p if p < 0 else None for p, _ in pairs)
    end = tuple(q if q < 0 else None for _, q in pairs)
    if any(n is not None for n in (*begin, *end)):
        dims = tuple(d + min(p, 0) + min(q, 0) for d, (p, q) in zip(value.dims, pairs))
        value = b.value(b.op("slice", value, begin=begin, end=end), dims, value.dtype)
    return value, [(max(p, 0), max(q, 0)) for p, q in pairs]


def _surrounded(
    b: SymbolBuilder, value: TorchValue, pairs: list[tuple[int, int]], number: float
) -> TorchValue:
    for axis, (before, after) in enumerate(pairs):
        rest = value.dims[:axis], value.dims[axis + 1 :]
        edges = [b.full((*rest[0], n, *rest[1]), number, value.dtype) if n else None for n in (before, after)]
        pieces = [part for part in (edges[0], value, edges[1]) if part is not None]
        if len(pieces) > 1:
            dims = (*rest[0], value.dims[axis] + before + after, *rest[1])
            value = b.value(b.op("Concat", *pieces, dim=axis), dims, value.dtype)
    return value


def _wrapped(b: SymbolBuilder, value: TorchValue, pairs: list[tuple[int, int]]) -> Symbol:
    symbol = b.sym(value)
    for axis, (before, after) in enumerate(pairs):
        pieces = [symbol]
        if before:
            pieces.insert(0, b.op("slice_axis", symbol, axis=axis, begin=-before, end=None))
        if after:
            pieces.append(b.op("slice_axis", symbol, axis=axis, begin=0, end=after))
        symbol = b.op("Concat", *pieces, dim=axis) if len(pieces) > 1 else symbol
    return symbol


def _padding_of(mode: str) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue, padding: Sequence[int]) -> Any:
        return _pad(b, value, padding, mode)

    return translate


for _rank in (1, 2, 3):
    TABLE[f"reflection_pad{_rank}d"] = _padding_of("reflect")
    TABLE[f"replication_pad{_rank}d"] = _padding_of("replicate")


@translates("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest(b: SymbolBuilder, value: TorchValue, size: Ints | None, *given: Any) -> Any:
    old, new = value.dims[2:], dims_of(b.result)[2:]
    scales = _scales(given, len(old))
    factors = [_factor(n, d) if s is None or s == int(s) else None for n, d, s in zip(new, old, scales)]
    if value.rank == 4 and factors[0] is not None and factors[0] == factors[1]:
        return b.op("UpSampling", value, scale=factors[0], sample_type="nearest")
    symbol = b.sym(value)
    for axis, (factor, n, d, scale) in enumerate(zip(factors, new, old, scales), 2):
        if factor is not None:
            symbol = b.op("repeat", symbol, repeats=factor, axis=axis)
        elif is_number(n) and is_number(d):
            indices = _rows_read(d, n, scale, axis - 2, len(old))
            symbol = b.op("take", symbol, TorchValue((n,), indices.dtype, None, indices), axis=axis)
        else:
            raise NoCounterpart("resizes to a size that is not fixed")
    return symbol


def _rows_read(old: int, new: int, scale: float | None, axis: int, rank: int) -> torch.Tensor:
    """Return the position that torch's nearest interpolation reads for each result; it depends on the rank."""

    def along(number: Any) -> list[Any]:
        return [number if k == axis else 1 for k in range(rank)]

    numbers = torch.arange(float(old)).view(1, 1, *along(old))
    read = interpolate(numbers, scale_factor=along(scale)) if scale else interpolate(numbers, along(new))
    return read.flatten().long()


def _scales(given: Sequence[Any], count: int) -> Sequence[float | None]:
    """Return the factors that torch divides positions by; None where it divides by the ratio of the sizes."""
    listed = given[0] if len(given) == 1 else given
    return listed or (None,) * count


def _factor(new: Size, old: Size) -> int | None:
    """Return the new size as a multiple of the old one, None if that is not a whole number."""
    if is_number(new) and is_number(old):
        return int(new // old) if new % old == 0 else None
    ratio = as_size(new / old)
    return int(ratio) if is_number(ratio) else None


@translates("upsample_bilinear2d")
def _bilinear_resize(
    b: SymbolBuilder, value: TorchValue, size: Ints | None, align_corners: bool, *given: Any
) -> Symbol:
    height, width = dims_of(b.result)[2:]
    if not is_number(height) or not is_number(width):
        raise NoCounterpart("resizes to a size that is not fixed")
    scales = _scales(given, 2)
    if not align_corners and any(
        s and n != d * s for s, n, d in zip(scales, (height, width), value.dims[2:])
    ):
        symbol = b.sym(value)
        for scale, length in zip(scales[::-1], value.dims[:1:-1]):  # MXNet divides by the ratio of the sizes
            if not is_number(length):
                raise NoCounterpart("resizes an image whose size is not fixed")
            weights = interpolate(torch.eye(length, dtype=value.dtype)[None], None, scale, "linear")[0]
            table = TorchValue(tuple(weights.shape), weights.dtype, None, weights)
            symbol = b.op("SwapAxis", b.op("dot", symbol, table), dim1=2, dim2=3)
        return symbol
    options = {"height": height, "width": width, "align_corners": align_corners}
    return b.op("_contrib_BilinearResize2D", value, **options)


@translates("pixel_shuffle")
def _pixel_shuffle(b: SymbolBuilder, value: TorchValue, factor: int) -> TorchValue:
    lead, (channels, height, width) = value.dims[:-3], value.dims[-3:]
    blocks = b.reshape(value, (*lead, channels // factor**2, factor, factor, height, width))
    at = len(lead)
    mixed = b.transpose(blocks, (*range(at), at, at + 3, at + 1, at + 4, at + 2))
    return b.reshape(mixed, dims_of(b.result))


@translates("pixel_unshuffle")
def _pixel_unshuffle(b: SymbolBuilder, value: TorchValue, factor: int) -> TorchValue:
    lead, (channels, height, width) = value.dims[:-3], value.dims[-3:]
    blocks = b.reshape(value, (*lead, channels, height // factor, factor, width // factor, factor))
    at = len(lead)
    mixed = b.transpose(blocks, (*range(at), at, at + 2, at + 4, at + 1, at + 3))
    return b.reshape(mixed, dims_of(b.result))


@translates("channel_shuffle")
def _channel_shuffle(b: SymbolBuilder, value: TorchValue, groups: int) -> TorchValue:
    grouped = b.reshape(value, (value.dims[0], groups, value.dims[1] // groups, *value.dims[2:]))
    return b.reshape(b.transpose(grouped, (0, 2, 1, *range(3, grouped.rank))), value.dims)


@translates("im2col")
def _im2col(
    b: SymbolBuilder, value: TorchValue, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Symbol:
    options = {"kernel": _each(kernel, 2), "dilate": _each(dilation, 2), "pad": _each(padding, 2)}
    return b.op("im2col", value, stride=_each(stride, 2), **options)


@translates("col2im")
def _col2im(
    b: SymbolBuilder, value: TorchValue, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Symbol:
    options = {"kernel": _each(kernel, 2), "dilate": _each(dilation, 2), "pad": _each(padding, 2)}
    return b.op("col2im", value, output_size=_each(size, 2), stride=_each(stride, 2), **options)


@translates("grid_sampler", "grid_sampler_2d")
def _grid_sampler(
    b: SymbolBuilder, value: TorchValue, grid: TorchValue, mode: int, padding: int, align_corners: bool
) -> Symbol:
    if value.rank != 4:
        raise NoCounterpart("samples volumes, expected images")
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    options = {"mode": modes[mode], "padding_mode": paddings[padding], "align_corners": align_corners}
    return b.op("_grid_sample", value, grid, **options)
