"""Paths of classes in a complete binary tree."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape
from ..attrs import integer
from ..registry import op
from ..spec import ROWS, Attr, ClassLabels, Env, Onnx, Shapes, Types, arg
from .layer_shapes import unify_input


def num_levels(num_classes: int) -> int:
    """Return the length of the longest path."""
    return (2 * num_classes - 1).bit_length() - 1


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    rows = data[0] if data else 0
    want = (rows, num_levels(a.num_classes))
    return [data, ins[1] or (rows, 1)], [unify_input("output", out, want, data) for out in outs]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    data = ins[0] or outs[1]
    return [data, ins[1] or data], ["int64", data, data]


@op(
    "_tree_path",
    [arg("data", ROWS), arg("label", ROWS)],
    {"num_classes": Attr(integer(low=2), "number of classes")},
    outputs=("nodes", "bits", "kept"),
    infer=_infer,
    infer_type=_infer_type,
    classes=lambda a, *shapes: ClassLabels(a.num_classes),
    onnx=Onnx(missing="its result is for training only"),
)
def tree_path(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the inner nodes from each class up to the root of a complete binary tree, for hierarchical softmax.

    The inner nodes are 0 (the root) to num_classes - 2. It has no gradient.

    Shape:
        data: (N, ...), of which only the type is read.
        label: (N, 1) or (N,), class numbers.
        nodes: (N, L) int64, the path; 0 where a path is shorter than the longest one.
        bits: (N, L), 1 if the path comes from the second child, else 0.
        kept: (N, L), 1 on the path, 0 beyond its end.

    Source: Paddle 1.8 `hierarchical_sigmoid`, whose tree this is.
    """
    codes = label.detach().reshape(-1, 1).long() + a.num_classes
    below = codes >> torch.arange(num_levels(a.num_classes), device=codes.device)
    above = below >> 1
    kept = above >= 1
    return (above - 1).clamp_(min=0), (below & 1).to(data.dtype) * kept, kept.to(data.dtype)
