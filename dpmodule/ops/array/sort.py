"""Order: sorting, the greatest numbers, cumulative sums, and counts in bins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, dtype, integer, optional, reals
from ..dtypes import torch_dtype
from ..math.pointwise import in_type_of
from ..registry import bound
from ..shapes import known, normal_axis, output_shape, prod, same, typed
from ..spec import NEVER, Attr, Onnx, Shapes, Types, arg

Unary = Callable[[torch.Tensor], torch.Tensor]

_AXIS = Attr(optional(integer()), "axis to sort along; None means the flattened array", -1)
_INDEX_TYPE = Attr(dtype, "dtype of positions", "float32")


def _sort_shape(axis: int | None, dims: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape that is sorted and the axis."""
    return ((prod(dims),), 0) if axis is None else (dims, normal_axis(axis, len(dims)))


def _sorted(x: torch.Tensor, axis: int | None, ascending: bool) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return values and positions in order, equal values as they stood, and the axis."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    values, places = torch.sort(x, dim=axis, descending=not ascending, stable=True)
    return values, places, axis


def _infer_sort(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None or a.axis is None and not known(ins[0]):
        return ins, outs
    return ins, [output_shape(outs[0], _sort_shape(a.axis, ins[0])[0])]


@bound(
    "sort",
    [arg("data")],
    {"axis": _AXIS, "is_ascend": Attr(boolean, "smallest first", True)},
    outputs=("output0",),
    hidden=1,
    infer=_infer_sort,
)
def sort(a: Any) -> Unary:
    """Sort along an axis; equal elements keep their order.

    Shape:
        data: any shape.
        returns: the same shape; one axis when `axis` is None.

    Source: MXNet 1.9.1 `sort`.
    """
    axis, ascending = a.axis, a.is_ascend

    def sort(x: torch.Tensor) -> torch.Tensor:
        return _sorted(x, axis, ascending)[0]

    return sort


@bound(
    "argsort",
    [arg("data")],
    {"axis": _AXIS, "is_ascend": Attr(boolean, "smallest first", True), "dtype": _INDEX_TYPE},
    infer=_infer_sort,
    infer_type=typed(lambda a: a.dtype),
)
def argsort(a: Any) -> Unary:
    """Return the positions that sort an array along an axis; equal elements keep their order.

    Shape:
        data: any shape.
        returns: the same shape; one axis when `axis` is None. No gradient.

    Source: MXNet 1.9.1 `argsort`.
    """
    axis, ascending, kind = a.axis, a.is_ascend, torch_dtype(a.dtype)

    def argsort(x: torch.Tensor) -> torch.Tensor:
        return _sorted(x, axis, ascending)[1].to(kind)

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
    found = ins[0] if a.ret_typ == "mask" else (*dims[:axis], count, *dims[axis + 1 :])
    return ins, [output_shape(o, found) for o in outs]


def _topk_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = ins[0]
    if a.ret_typ == "indices":
        return ins, [a.dtype]
    return ins, [found, a.dtype] if a.ret_typ == "both" else [found]


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
        "k": Attr(integer(), "how many; below 1 means all", 1),
        "ret_typ": Attr(
            choice("value", "indices", "mask", "both"),
            "values, positions, 1 at their places, or the first two",
            "indices",
        ),
        "is_ascend": Attr(boolean, "the smallest instead of the greatest", False),
        "dtype": _INDEX_TYPE,
    },
    outputs=lambda a: _TOPK_OUTPUTS[a.ret_typ],
    hidden=lambda a: int(a.ret_typ == "value"),
    infer=_infer_topk,
    infer_type=_topk_types,
)
def topk(a: Any) -> Callable[[torch.Tensor], Any]:
    """Return the k greatest elements along an axis, in order; of equal ones the first come first.

    Shape:
        data: any shape.
        returns: k at `axis`; (k,) when `axis` is None; the shape of `data` for "mask".

    Raises:
        OpError: k is greater than the axis.

    Source: MXNet 1.9.1 `topk`.
    """
    given, wanted, ascending, kind = a.axis, a.ret_typ, a.is_ascend, torch_dtype(a.dtype)

    def topk(x: torch.Tensor) -> Any:
        values, places, axis = _sorted(x, given, ascending)
        count = _topk_count(a, values.shape[axis])
        places = places.narrow(axis, 0, count)
        if wanted == "mask":
            return (
                torch.zeros(values.shape, dtype=x.dtype, device=x.device)
                .scatter(axis, places, 1)
                .reshape(x.shape)
            )
        if wanted == "indices":
            return places.to(kind)
        values = values.narrow(axis, 0, count)
        return (values, places.to(kind)) if wanted == "both" else values

    return topk


def _infer_cumsum(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if a.axis is not None:
        return same(a, ins, outs)
    return (ins, [output_shape(outs[0], (prod(ins[0]),))]) if ins[0] is not None else (ins, outs)


def _infer_cumsum_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Count booleans in 64 bits, as NumPy does."""
    kind = a.dtype or ("int64" if ins[0] == "bool" else ins[0])
    return ins, [outs[0] or kind]


@bound(
    "_np_cumsum",
    [arg("a")],
    {
        "axis": Attr(optional(integer()), "axis to add along; None means the flattened array", None),
        "dtype": Attr(
            optional(dtype), "dtype of the result; None means that of the input, int64 for booleans", None
        ),
    },
    aliases=("cumsum",),
    infer=_infer_cumsum,
    infer_type=_infer_cumsum_type,
    onnx=Onnx(builder="cumsum"),
)
def cumsum(a: Any) -> Unary:
    """Add up along an axis, keeping every partial sum.

    Shape:
        a: any shape.
        returns: the same shape; one axis when `axis` is None.

    Source: MXNet 1.9.1 `cumsum`.
    """
    axis = a.axis
    kind = torch_dtype(a.dtype) if a.dtype is not None else None

    def cumsum(x: torch.Tensor) -> torch.Tensor:
        flat, along = (x.reshape(-1), 0) if axis is None else (x, axis)
        return torch.cumsum(flat, along, dtype=kind or (torch.int64 if x.dtype == torch.bool else x.dtype))

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
    """Count the values from one edge to before the next; the last bin holds its upper edge too."""
    values, bins = data.reshape(-1), edges.numel() - 1
    places = torch.searchsorted(edges, values, right=True) - 1
    places = torch.where(values == edges[-1], bins - 1, places)
    inside = (places >= 0) & (places < bins)
    if data.is_cpu:
        return torch.bincount(places[inside], minlength=bins)
    places = torch.where(inside, places, bins)  # a last bin for what is in none: no device is waited for
    return places.new_zeros(bins + 1).scatter_add_(0, places, torch.ones_like(places))[:bins]


@bound(
    "_histogram",
    [arg("data"), arg("bins", when=lambda a: a.bin_cnt is None)],
    {
        "bin_cnt": Attr(optional(integer(low=1)), "number of bins of one width; None: edges are given", None),
        "range": Attr(optional(reals), "lower end of the first bin and upper end of the last", None),
    },
    outputs=("output0", "output1"),
    infer=_infer_histogram,
    infer_type=_histogram_types,
    batch=NEVER,
)
def histogram(a: Any) -> Callable[..., Pair]:
    """Count the values in bins; what lies outside is not counted. No gradient.

    A value on the edge of two bins counts in the upper one, and on the last edge in the last bin.

    Shape:
        data: any.
        bins: (K + 1,), ascending edges of the type of `data`; only if `bin_cnt` is None.
        output0: (K,) int64, the counts.
        output1: (K + 1,), the edges, of the type of `data`.

    Source: MXNet 1.9.1 `_histogram`.
    """
    count, ends = a.bin_cnt, a.range
    if count is not None and (ends is None or len(ends) != 2 or ends[0] >= ends[1]):
        raise OpError(f"_histogram: range is {ends}, expected two ascending numbers beside bin_cnt {count}")

    def histogram(data: torch.Tensor, bins: torch.Tensor | None = None) -> Pair:
        if bins is None:
            edges = _even_edges(data, count, *ends)
        elif bins.dim() != 1 or bins.numel() < 2:
            raise ShapeError(
                f"_histogram: bins has shape {tuple(bins.shape)}, expected (K + 1,), at least (2,)"
            )
        else:
            edges = bins.clone()
        return _count_in_bins(data, edges.to(data.dtype)), edges

    return histogram
