"""Bounding boxes as moves and growth of anchors, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape, ShapeError
from ...devices.device_transfer import beside
from ..attrs import choice, real
from ..dtypes import single
from ..registry import bound
from ..shapes import output_shape, unify
from ..spec import ROWS, SHARE, Attr, Onnx, Shapes, arg

_FORMAT = choice("center", "corner")


def _infer_encode(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    samples, matches, anchors, refs, means, stds = ins
    base = unify(samples, matches, "samples and matches")
    if anchors is not None:
        base = unify(base, anchors[:-1], "samples and anchors")
    if base is None:
        return ins, outs
    if len(base) != 2:
        raise ShapeError(f"samples has shape {base}, expected (B, N)")
    boxes = unify(anchors, (*base, 4), "anchors and samples")
    ends = [unify(each, (4,), "means and stds") for each in (means, stds)]
    refs = unify(refs, (base[0], 0, 4), "refs")
    return [base, base, boxes, refs, *ends], [output_shape(o, boxes) for o in outs]


def _centred(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return centres and sizes of boxes given by corners."""
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + size * 0.5, size


@bound(
    "_contrib_box_encode",
    [
        arg("samples", ROWS),
        arg("matches", ROWS),
        arg("anchors", ROWS),
        arg("refs", ROWS),
        arg("means", SHARE),
        arg("stds", SHARE),
    ],
    outputs=("output0", "output1"),
    infer=_infer_encode,
    onnx=Onnx(builder="box_encode"),
)
def box_encode(a: Any) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return what a network should predict for anchors matched with boxes, and a mask of the matched. No gradient.

    Shape:
        samples: (B, N), 1 for a matched anchor.
        matches: (B, N), numbers of the matched boxes.
        anchors: (B, N, 4), left, top, right, bottom.
        refs: (B, M, 4), likewise.
        means, stds: (4,), subtracted from the targets, then divided by.
        returns: targets (B, N, 4): moves of the centre over the size, logarithms of the sizes' ratio; mask
            (B, N, 4).

    Source: MXNet 1.9.1 `_contrib_box_encode`.
    """

    def box_encode(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        samples, matches, anchors, refs, means, stds = (x.detach() for x in inputs)
        chosen = refs.gather(1, matches.long()[:, :, None].expand(-1, -1, 4))
        (at, size), (to, new) = _centred(anchors), _centred(chosen)
        raw = torch.cat([(to - at) / size, (new / size).log()], -1)
        mask = (samples > 0.5)[:, :, None].expand(anchors.shape)
        return torch.where(mask, (raw - means) / stds, torch.zeros_like(raw)), mask.to(anchors.dtype)

    return box_encode


def _infer_decode(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, anchors = ins
    data = unify(data, outs[0], "data and output")
    if data is None:
        return ins, outs
    if len(data) != 3 or data[2] not in (0, 4):
        raise ShapeError(f"data has shape {data}, expected (B, N, 4)")
    anchors = unify(anchors, (1, data[1], 4), "anchors and data")
    data = (*data[:2], 4)
    return [data, anchors], [output_shape(outs[0], data)]


@bound(
    "_contrib_box_decode",
    [arg("data", ROWS), arg("anchors", SHARE)],
    {
        "std0": Attr(real, "factor of the move to the right", 1.0),
        "std1": Attr(real, "factor of the move down", 1.0),
        "std2": Attr(real, "factor of the logarithm of the width", 1.0),
        "std3": Attr(real, "factor of the logarithm of the height", 1.0),
        "clip": Attr(real, "greatest logarithm; no limit if not above 0", -1.0),
        "format": Attr(_FORMAT, "of the anchors; corner: left, top, right, bottom", "center"),
    },
    infer=_infer_decode,
    onnx=Onnx(builder="box_decode"),
)
def box_decode(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the boxes that predictions about anchors mean. No gradient.

    Shape:
        data: (B, N, 4), moves of the centre over the size, logarithms of the sizes' ratio.
        anchors: (1, N, 4).
        returns: (B, N, 4), left, top, right, bottom.

    Source: MXNet 1.9.1 `_contrib_box_decode`.
    """
    factors = [single(x) for x in (a.std0, a.std1, a.std2, a.std3)]

    def box_decode(data: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
        data, anchors = data.detach(), anchors.detach()
        at, size = _centred(anchors) if a.format == "corner" else (anchors[..., :2], anchors[..., 2:])
        scaled = data * beside(data, factors)
        centre = scaled[..., :2] * size + at
        growth = scaled[..., 2:]
        if a.clip > 0:
            growth = growth.clamp(max=single(a.clip))
        half = growth.exp() * size * 0.5
        return torch.cat([centre - half, centre + half], -1)

    return box_decode
