"""Choosing the range to quantize from a histogram of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ...devices.device_transfer import beside
from ..attrs import integer
from ..registry import bound
from ..spec import NEVER, Attr, Onnx, Shapes, arg
from .ranges import one

Pair = tuple[torch.Tensor, torch.Tensor]

_SMALL = 0.0001


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    bins, edges = ins
    if bins is None and edges is not None and edges[0]:
        bins = (edges[0] - 1,)
    if bins is not None and edges is None and bins[0]:
        edges = (bins[0] + 1,)
    return [bins, edges], [one, one]


def _smoothed(counts: torch.Tensor) -> torch.Tensor | None:
    """Give empty bins a little of the others' weight; None if there are too few others."""
    empty = counts == 0
    missing, filled = int(empty.sum()), int((~empty).sum())
    if not filled or _SMALL * missing >= filled:
        return None
    return counts + torch.where(empty, _SMALL, -_SMALL * missing / filled)


def _divergence(kept: torch.Tensor, left: torch.Tensor, right: torch.Tensor, quantized: int) -> float:
    """Return the Kullback-Leibler divergence of a clipped histogram and what few bins make of it."""
    clipped = kept.clone()
    clipped[0] = left
    clipped[-1] += right
    merged = kept.numel() // quantized
    group = torch.arange(kept.numel(), device=kept.device).div(merged, rounding_mode="floor")
    group = group.clamp(max=quantized - 1)
    sums = kept.new_zeros(quantized).index_add(0, group, kept)
    filled = kept.new_zeros(quantized).index_add(0, group, (kept != 0).to(kept.dtype))
    share = torch.where(filled > 0, sums / filled.clamp(min=1), 0.0)[group]
    coarse = _smoothed(torch.where(clipped != 0, share, 0.0))
    fine = _smoothed(clipped)
    if coarse is None or fine is None:
        return float("inf")
    fine, coarse = fine / fine.sum(), coarse / coarse.sum()
    return float((fine * (fine / coarse).log()).sum())


@bound(
    "_contrib_calibrate_entropy",
    [arg("hist"), arg("hist_edges")],
    {"num_quantized_bins": Attr(integer(low=1), "number of bins that quantization leaves", 255)},
    outputs=("threshold", "divergence"),
    infer=_infer,
    infer_type=lambda a, ins, outs: (["float32", "float32"], ["float32", "float32"]),
    batch=NEVER,
    onnx=Onnx(missing="calibration runs before a model is quantized, not inside it"),
)
def calibrate_entropy(a: Any) -> Callable[..., Pair]:
    """Find the threshold at which clipping and quantizing a histogram loses least information; no gradient.

    Shape:
        hist: (B,) float32: counts over a range around 0.
        hist_edges: (B + 1,) float32: edges of the bins.
        threshold: (1,): the magnitude to clip at.
        divergence: (1,): the Kullback-Leibler divergence there.

    Source: MXNet 1.9.1 `_contrib_calibrate_entropy`; Migacz (2017), 8-bit inference with TensorRT.
    """
    quantized = a.num_quantized_bins

    def calibrate_entropy(hist: torch.Tensor, edges: torch.Tensor) -> Pair:
        bins = hist.numel()
        if edges.numel() != bins + 1:
            raise OpError(
                f"_contrib_calibrate_entropy: hist_edges has {edges.numel()} elements, expected {bins + 1}"
            )
        middle, half = bins // 2, quantized // 2
        if middle < half or bins < 2 * middle + 1:
            raise OpError(
                f"_contrib_calibrate_entropy: hist has {bins} bins, expected an odd number of at least {quantized}"
            )
        counts = hist.detach().cpu().double()  # every divergence is read
        found = []
        for reach in range(half, middle + 1):
            start, stop = middle - reach, middle + reach + 1
            kept = counts[start:stop].clone()
            kept[0] = 0
            found.append(_divergence(kept, counts[: start + 1].sum(), counts[stop:].sum(), quantized))
        best = min(range(len(found)), key=found.__getitem__)
        threshold = edges.detach()[middle + half + best + 1].reshape(1).float()
        return threshold, beside(hist, [found[best]], torch.float32)

    return calibrate_entropy
