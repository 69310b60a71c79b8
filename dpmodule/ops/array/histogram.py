"""Counting values in bins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import integer, optional, reals
from ..bound import bound
from ..math.pointwise import in_type_of
from ..shapes import output_shape
from ..spec import NEVER, Attr, Onnx, Shapes, Types, arg

Pair = tuple[torch.Tensor, torch.Tensor]


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if a.bin_cnt is not None:
        count = a.bin_cnt
    elif ins[1] is None or not ins[1][0]:
        return ins, outs
    else:
        count = ins[1][0] - 1
    return ins, [output_shape(outs[0], (count,)), output_shape(outs[1], (count + 1,))]


def _types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    first = ins[0] or outs[1]
    return [t or first for t in ins], ["int64", first]


def _even_edges(data: torch.Tensor, count: int, low: float, high: float) -> torch.Tensor:
    steps = torch.arange(count + 1, dtype=torch.float64, device=data.device)
    return in_type_of(data, (steps * high + (count - steps) * low) / count)


def _count(data: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
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
    infer=_infer,
    infer_type=_types,
    batch=NEVER,
    onnx=Onnx(builder="histogram"),
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
        return _count(data, edges.to(data.dtype)), edges

    return histogram
