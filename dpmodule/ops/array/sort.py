"""Sorting, top-k, cumulative sums and histograms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, dtype, integer, optional, reals
from ..dtypes import torch_dtype
from ..math.pointwise import in_type_of
from ..registry import bound, pure
from ..shapes import known, normal_axis, output_shape, prod, same, typed
from ..spec import NEVER, Attr, Onnx, Shapes, Types, arg

Unary = Callable[[torch.Tensor], torch.Tensor]

_AXIS = Attr(optional(integer()), "axis to sort along; None means the flattened array", -1)
_INDEX_TYPE = Attr(dtype, "dtype of the indices", "float32")


def _sort_shape(axis: int | None, dims: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape to sort and the axis."""
    return ((prod(dims),), 0) if axis is None else (dims, normal_axis(axis, len(dims)))


def _sort(x: torch.Tensor, axis: int | None, ascending: bool) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return sorted values, their indices (stable), and the axis."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    values, indices = torch.sort(x, dim=axis, descending=not ascending, stable=True)
    return values, indices, axis


def _infer_sort(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None or a.axis is None and not known(ins[0]):
        return ins, outs
    return ins, [output_shape(outs[0], _sort_shape(a.axis, ins[0])[0])]


@pure(
    "sort",
    [arg("data")],
    {"axis": _AXIS, "is_ascend": Attr(boolean, "ascending order", True)},
    outputs=("output0",),
    hidden=1,
    infer=_infer_sort,
)
def sort(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Sort along an axis; equal elements keep their order.

    Shape:
        data: any shape.
        returns: the same shape; one axis when `axis` is None.

    Source: MXNet 1.9.1 `sort`.
    """
    return _sort(x, a.axis, a.is_ascend)[0]


@bound(
    "argsort",
    [arg("data")],
    {"axis": _AXIS, "is_ascend": Attr(boolean, "ascending order", True), "dtype": _INDEX_TYPE},
    infer=_infer_sort,
    infer_type=typed(lambda a: a.dtype),
)
def argsort(a: Any) -> Unary:
    """Return the indices that sort an array along an axis; equal elements keep their order.

    Shape:
        data: any shape.
        returns: the same shape; one axis when `axis` is None. No gradient.

    Source: MXNet 1.9.1 `argsort`.
    """
    axis, ascending, index_dtype = a.axis, a.is_ascend, torch_dtype(a.dtype)

    def argsort(x: torch.Tensor) -> torch.Tensor:
        return _sort(x, axis, ascending)[1].to(index_dtype)

    return argsort


def _topk_count(a: Any, length: int) -> int:
    if a.k > length:
        raise OpError(f"topk: k is {a.k}, expected at most {length}, the size of the axis")
    return a.k if a.k > 0 else length


def _infer_topk(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None or a.axis is None and not known(ins[0]):
        return ins, outs
    dims, axis = _sort_shape(a.axis, ins[0])
    count = _topk_count(a, dims[axis]) if dims[axis] else max(a.k, 0)
    shape = ins[0] if a.ret_typ == "mask" else (*dims[:axis], count, *dims[axis + 1 :])
    return ins, [output_shape(o, shape) for o in outs]


def _topk_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = ins[0]
    if a.ret_typ == "indices":
        return ins, [a.dtype]
    return ins, [dtype, a.dtype] if a.ret_typ == "both" else [dtype]


_TOPK_OUTPUTS = {
    "value": ("output0",),
    "indices": ("output",),
    "mask": ("output",),
    "both": ("output0", "output1"),
}


@bound(
    "topk",
    [arg("data")],
    {
        "axis": _AXIS,
        "k": Attr(integer(), "number of elements; below 1 means all", 1),
        "ret_typ": Attr(
            choice("value", "indices", "mask", "both"),
            "values, indices, a mask of them, or both values and indices",
            "indices",
        ),
        "is_ascend": Attr(boolean, "the smallest instead of the largest", False),
        "dtype": _INDEX_TYPE,
    },
    outputs=lambda a: _TOPK_OUTPUTS[a.ret_typ],
    hidden=lambda a: int(a.ret_typ == "value"),
    infer=_infer_topk,
    infer_type=_topk_types,
)
def topk(a: Any) -> Callable[[torch.Tensor], Any]:
    """Return the k largest elements along an axis, in order; of equal elements the first come first.

    Shape:
        data: any shape.
        returns: k at `axis`; (k,) when `axis` is None; the shape of `data` for "mask".

    Raises:
        OpError: k exceeds the size of the axis.

    Source: MXNet 1.9.1 `topk`.
    """
    axis_attr, ret_typ, ascending, index_dtype = a.axis, a.ret_typ, a.is_ascend, torch_dtype(a.dtype)

    def topk(x: torch.Tensor) -> Any:
        values, indices, axis = _sort(x, axis_attr, ascending)
        count = _topk_count(a, values.shape[axis])
        indices = indices.narrow(axis, 0, count)
        if ret_typ == "mask":
            return (
                torch.zeros(values.shape, dtype=x.dtype, device=x.device)
                .scatter(axis, indices, 1)
                .reshape(x.shape)
            )
        if ret_typ == "indices":
            return indices.to(index_dtype)
        values = values.narrow(axis, 0, count)
        return (values, indices.to(index_dtype)) if ret_typ == "both" else values

    return topk


def _infer_cumsum(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if a.axis is not None:
        return same(a, ins, outs)
    return (ins, [output_shape(outs[0], (prod(ins[0]),))]) if ins[0] is not None else (ins, outs)


def _infer_cumsum_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the type; booleans are counted in int64, as in NumPy."""
    result = a.dtype or ("int64" if ins[0] == "bool" else ins[0])
    return ins, [outs[0] or result]


@bound(
    "_np_cumsum",
    [arg("a")],
    {
        "axis": Attr(optional(integer()), "axis to add along; None means the flattened array", None),
        "dtype": Attr(
            optional(dtype), "dtype of the result; None means the input's dtype, int64 for booleans", None
        ),
    },
    aliases=("cumsum",),
    infer=_infer_cumsum,
    infer_type=_infer_cumsum_type,
    onnx=Onnx(builder="cumsum"),
)
def cumsum(a: Any) -> Unary:
    """Return the cumulative sum along an axis.

    Shape:
        a: any shape.
        returns: the same shape; one axis when `axis` is None.

    Source: MXNet 1.9.1 `cumsum`.
    """
    axis = a.axis
    target = torch_dtype(a.dtype) if a.dtype is not None else None

    def cumsum(x: torch.Tensor) -> torch.Tensor:
        flat, along = (x.reshape(-1), 0) if axis is None else (x, axis)
        return torch.cumsum(flat, along, dtype=target or (torch.int64 if x.dtype == torch.bool else x.dtype))

    return cumsum


Pair = tuple[torch.Tensor, torch.Tensor]


def _infer_histogram(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if a.bin_cnt is not None:
        count = a.bin_cnt
    elif ins[1] is None or not ins[1][0]:
        return ins, outs
    else:
        count = ins[1][0] - 1
    return ins, [output_shape(outs[0], (count,)), output_shape(outs[1], (count + 1,))]


def _histogram_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    first = ins[0] or outs[1]
    return [t or first for t in ins], ["int64", first]


def _even_edges(data: torch.Tensor, count: int, low: float, high: float) -> torch.Tensor:
    steps = torch.arange(count + 1, dtype=torch.float64, device=data.device)
    return in_type_of(data, (steps * high + (count - steps) * low) / count)


def _count_in_bins(data: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Count the values in half-open bins; the last bin includes its upper edge."""
    values, bins = data.reshape(-1), edges.numel() - 1
    positions = torch.searchsorted(edges, values, right=True) - 1
    positions = torch.where(values == edges[-1], bins - 1, positions)
    inside = (positions >= 0) & (positions < bins)
    if data.is_cpu:
        return torch.bincount(positions[inside], minlength=bins)
    positions = torch.where(
        inside, positions, bins
    )  # an extra bin instead of a mask, which would wait for the device
    return positions.new_zeros(bins + 1).scatter_add_(0, positions, torch.ones_like(positions))[:bins]


@bound(
    "_histogram",
    [arg("data"), arg("bins", when=lambda a: a.bin_cnt is None)],
    {
        "bin_cnt": Attr(
            optional(integer(low=1)), "number of bins of equal width; None: edges are given", None
        ),
        "range": Attr(optional(reals), "lower edge of the first bin and upper edge of the last", None),
    },
    outputs=("output0", "output1"),
    infer=_infer_histogram,
    infer_type=_histogram_types,
    batch=NEVER,
)
def histogram(a: Any) -> Callable[..., Pair]:
    """Count the values in bins; values outside of them are not counted. No gradient.

    A value on an edge counts in the upper bin, and on the last edge in the last bin.

    Shape:
        data: any.
        bins: (K + 1,), ascending edges of the type of `data`; only if `bin_cnt` is None.
        output0: (K,) int64, the counts.
        output1: (K + 1,), the edges, of the type of `data`.

    Source: MXNet 1.9.1 `_histogram`.
    """
    count, ends = a.bin_cnt, a.range
    if count is not None and (ends is None or len(ends) != 2 or ends[0] >= ends[1]):
        raise OpError(f"_histogram: range is {ends}, expected two ascending numbers with bin_cnt {count}")

    def histogram(data: torch.Tensor, bins: torch.Tensor | None = None) -> Pair:
        if bins is None:
            edges = _even_edges(data, count, *ends)
        elif bins.dim() != 1 or bins.numel() < 2:
            raise ShapeError(
                f"_histogram: bins has shape {tuple(bins.shape)}, expected (K + 1,) with at least 2 edges"
            )
        else:
            edges = bins.clone()
        return _count_in_bins(data, edges.to(data.dtype)), edges

    return histogram
