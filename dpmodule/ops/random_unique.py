"""Distinct numbers drawn from Zipf's law, as sampled softmax needs them."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..base import OpError, Shape
from .attrs import integer, optional, shape
from .registry import op
from .shapes import unify
from .spec import NEVER, Attr, Env, Onnx, Shapes


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    dims = unify(a.shape, outs[0], "shape and required output shape")
    return [], [dims, unify(outs[1], None if dims is None else dims[:1], "number of rows")]


def _draw(rows: int, count: int, high: int, env: Env) -> torch.Tensor:
    """Draw numbers below `high`, k with a chance of log((k + 2) / (k + 1)) / log(high + 1)."""
    uniform = torch.rand(rows, count, dtype=torch.float64, generator=env.generator, device=env.device)
    return torch.exp(uniform * math.log(high + 1.0)).round().long().sub(1).remainder(high)


def _first_seen(drawn: torch.Tensor) -> torch.Tensor:
    """Say of each number of each row whether it comes for the first time."""
    ordered, places = drawn.sort(dim=1, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(new).scatter(1, places, new)


@op(
    "_sample_unique_zipfian",
    (),
    {
        "range_max": Attr(integer(low=1), "one more than the greatest number"),
        "shape": Attr(optional(shape), "(rows, numbers in each row)", None),
    },
    outputs=("output0", "output1"),
    infer=_infer,
    infer_type=lambda a, ins, outs: ([], ["int64", "int64"]),
    random=True,
    needs_shapes=True,
    batch=NEVER,
    onnx=Onnx(builder="zipfian"),
)
def sample_unique_zipfian(a: Any, env: Env) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw distinct numbers for each row from an approximately Zipfian distribution.

    Shape:
        output0: `shape`, (N, K) int64: distinct numbers within each row, from 0 to range_max - 1.
        output1: (N,) int64: how many draws that took.

    Raises:
        OpError: there are not K numbers to choose from, or the shape has not two axes.

    Source: MXNet 1.9.1 `_sample_unique_zipfian`.
    """
    dims = (env.out_shapes[0] if env.out_shapes else None) or a.shape
    if dims is None or len(dims) != 2 or dims[1] > a.range_max:
        raise OpError(
            f"_sample_unique_zipfian: shape is {dims}, expected (rows, numbers) with at most {a.range_max} numbers"
        )
    rows, wanted = dims
    drawn = _draw(rows, 2 * wanted, a.range_max, env)
    while True:
        new = _first_seen(drawn)
        seen = new.cumsum(1)
        if drawn.numel() == 0 or int(seen[:, -1].min()) >= wanted:
            break
        drawn = torch.cat([drawn, _draw(rows, drawn.shape[1], a.range_max, env)], 1)
    taken = new & (seen <= wanted)
    tries = (seen < wanted).sum(1) + 1
    return drawn[taken].reshape(rows, wanted), tries
