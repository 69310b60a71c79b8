"""Blocks of pixels to channels and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import integer
from ..bound import bound
from ..shapes import output_shape
from ..spec import ROWS, Attr, Onnx, Shapes, arg

Unary = Callable[[torch.Tensor], torch.Tensor]


def _blocks_to_space(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    block = a.block_size
    if len(dims) != 4 or dims[1] % (block * block) or not all(dims[1:]):
        raise OpError(
            f"depth_to_space: data is {dims}, expected (N, C, H, W) with C a multiple of {block * block}"
        )
    return dims[0], dims[1] // (block * block), dims[2] * block, dims[3] * block


def _space_to_blocks(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    block = a.block_size
    if len(dims) != 4 or dims[2] % block or dims[3] % block or not all(dims[1:]):
        raise OpError(
            f"space_to_depth: data is {dims}, expected (N, C, H, W) with H and W multiples of {block}"
        )
    return dims[0], dims[1] * block * block, dims[2] // block, dims[3] // block


def _infer_by(rule: Callable[[Any, tuple[int, ...]], tuple[int, ...]]) -> Callable[..., Any]:
    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        return (ins, outs) if ins[0] is None else (ins, [output_shape(outs[0], rule(a, ins[0]))])

    return infer


_BLOCK = {"block_size": Attr(integer(low=1), "edge of a block in pixels")}


@bound(
    "depth_to_space",
    [arg("data", ROWS)],
    _BLOCK,
    infer=_infer_by(_blocks_to_space),
    view=True,
    onnx=Onnx("DepthToSpace", builder="blocks"),
)
def depth_to_space(a: Any) -> Unary:
    """Lay channels out as blocks of pixels.

    Shape:
        data: (N, C * b * b, H, W) for blocks of b by b.
        returns: (N, C, H * b, W * b).

    Source: MXNet 1.9.1 `depth_to_space`.
    """
    block = a.block_size

    def run(x: torch.Tensor) -> torch.Tensor:
        out = _blocks_to_space(a, tuple(x.shape))
        blocks = x.reshape(x.shape[0], block, block, out[1], x.shape[2], x.shape[3])
        return blocks.permute(0, 3, 4, 1, 5, 2).reshape(out)

    return run


@bound(
    "space_to_depth",
    [arg("data", ROWS)],
    _BLOCK,
    infer=_infer_by(_space_to_blocks),
    view=True,
    onnx=Onnx("SpaceToDepth", builder="blocks"),
)
def space_to_depth(a: Any) -> Unary:
    """Put blocks of pixels into channels.

    Shape:
        data: (N, C, H * b, W * b) for blocks of b by b.
        returns: (N, C * b * b, H, W).

    Source: MXNet 1.9.1 `space_to_depth`.
    """
    block = a.block_size

    def run(x: torch.Tensor) -> torch.Tensor:
        out = _space_to_blocks(a, tuple(x.shape))
        blocks = x.reshape(x.shape[0], x.shape[1], out[2], block, out[3], block)
        return blocks.permute(0, 3, 5, 1, 2, 4).reshape(out)

    return run
