"""Reshaping, and blocks of pixels as channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer, optional, shape
from ..registry import bound, pure
from ..shapes import first_type, from_data, known, output_shape, prod
from ..spec import ROWS, Attr, Infer, Onnx, Shapes, arg
from .reshape_codes import resolve, resolve_target

Unary = Callable[[torch.Tensor], torch.Tensor]


def _missing_dim(shape: Shape, total: int) -> Shape:
    """Return the shape with its one unknown dimension inferred from `total` elements."""
    if shape is None or shape.count(0) != 1:
        return shape
    rest = prod([d for d in shape if d])
    if total % rest:
        raise ShapeError(f"shape {shape} cannot hold {total} elements")
    return tuple(d or total // rest for d in shape)


def infers_reshape(target: Callable[[Any, tuple[int, ...]], tuple[int, ...]]) -> Infer:
    """Return the shape rule of an operator that reshapes its input to ``target(a, dims)``."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        data, out = ins[0], outs[0]
        if data is None:
            return ins, outs
        out = output_shape(out, target(a, data))
        if out is not None and known(out):
            data = _missing_dim(data, prod(out))
        if data is not None and known(data):
            out = _missing_dim(out, prod(data))
        return [data], [out]

    return infer


def _target_shape(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    if a.shape:
        return resolve(dims, a.shape, a.reverse)
    if a.target_shape:
        return resolve_target(dims, a.target_shape, a.keep_highest)
    raise OpError("Reshape: shape is (), expected at least one number or code")


@pure(
    "Reshape",
    [arg("data")],
    {
        "shape": Attr(
            shape,
            "new sizes; 0 copies one, -1 is inferred, -2 copies the rest, -3 merges two, -4 splits one",
            (),
        ),
        "reverse": Attr(boolean, "match codes and dimensions from the right", False),
        "target_shape": Attr(shape, "new sizes in old graphs; 0 is inferred", ()),
        "keep_highest": Attr(boolean, "with target_shape: keep the first dimension", False),
    },
    aliases=("reshape",),
    infer=infers_reshape(_target_shape),
    view=True,
    onnx=Onnx(builder="reshape"),
)
def reshape(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the elements in another shape.

    Shape:
        data: any shape.
        returns: `shape` with its codes resolved; the number of elements is the same.

    Raises:
        ShapeError: the codes do not fit.

    Example:
        >>> mx.nd.Reshape(mx.nd.zeros((2, 3, 4)), shape=(-3, 0)).shape
        (6, 4)

    Source: MXNet 1.9.1 `Reshape`.
    """
    return x.reshape(_target_shape(a, x.shape))


def _infer_flatten(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if data is None:
        return ins, outs
    rest = 0 if 0 in data[1:] else prod(data[1:])
    flat = output_shape(out, (data[0], rest)) or (0, 0)
    data = (flat[0], *data[1:])
    if flat[1] and 0 in data[1:]:
        data = (flat[0], *(_missing_dim(data[1:], flat[1]) or ()))
    return [data], [flat]


@pure(
    "Flatten",
    [arg("data", ROWS)],
    aliases=("flatten",),
    infer=_infer_flatten,
    view=True,
    onnx=Onnx("Flatten", const={"axis": 1}),
)
def flatten(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Flatten all axes after the first into one.

    Shape:
        data: (N, ...).
        returns: (N, product of the rest).

    Source: MXNet 1.9.1 `Flatten`.
    """
    return x.flatten(1) if x.dim() > 1 else x.unsqueeze(1)


def _axis_range(begin: int | None, end: int | None, ndim: int, which: str) -> tuple[int, int]:
    """Return a range of axes as (first, last + 1)."""
    first, last = slice(begin, end).indices(ndim)[:2]
    if first >= last:
        raise OpError(
            f"reshape_like: {which}_begin {begin} and {which}_end {end} select none of the {ndim} axes"
        )
    return first, last


def _like_shape(a: Any, dims: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    first, last = _axis_range(a.lhs_begin, a.lhs_end, len(dims), "lhs")
    start, stop = _axis_range(a.rhs_begin, a.rhs_end, len(other), "rhs")
    return dims[:first] + other[start:stop] + dims[last:]


def _infer_like(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None or ins[1] is None:
        return ins, outs
    shape = output_shape(outs[0], _like_shape(a, ins[0], ins[1]))
    if known(ins[0]) and shape is not None and known(shape) and prod(shape) != prod(ins[0]):
        raise ShapeError(
            f"reshape_like: lhs {ins[0]} does not fit into {shape}, the shape given by rhs {ins[1]}"
        )
    return ins, [shape]


@bound(
    "reshape_like",
    [arg("lhs"), arg("rhs")],
    {
        "lhs_begin": Attr(optional(integer()), "first axis of lhs to replace", None),
        "lhs_end": Attr(optional(integer()), "end of the axes of lhs to replace, exclusive", None),
        "rhs_begin": Attr(optional(integer()), "first axis of rhs to copy", None),
        "rhs_end": Attr(optional(integer()), "end of the axes of rhs to copy, exclusive", None),
    },
    infer=_infer_like,
    infer_type=first_type(),
    view=True,
)
def reshape_like(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Reshape `lhs` to the shape of `rhs`, or a range of its axes to a range of the axes of `rhs`.

    Shape:
        lhs: any shape.
        rhs: a shape with the same number of elements (in the given ranges).
        returns: lhs[:lhs_begin] + rhs[rhs_begin:rhs_end] + lhs[lhs_end:].

    Source: MXNet 1.9.1 `reshape_like`.
    """
    return lambda x, y: x.reshape(_like_shape(a, tuple(x.shape), tuple(y.shape)))


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


_BLOCK = {"block_size": Attr(integer(low=1), "side of a block in pixels")}


@pure(
    "depth_to_space",
    [arg("data", ROWS)],
    _BLOCK,
    infer=from_data(_blocks_to_space),
    view=True,
    onnx=Onnx("DepthToSpace", builder="blocks"),
)
def depth_to_space(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Rearrange channels into blocks of pixels.

    Shape:
        data: (N, C * b * b, H, W) for blocks of b by b.
        returns: (N, C, H * b, W * b).

    Source: MXNet 1.9.1 `depth_to_space`.
    """
    block = a.block_size
    out = _blocks_to_space(a, tuple(x.shape))
    blocks = x.reshape(x.shape[0], block, block, out[1], x.shape[2], x.shape[3])
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(out)


@pure(
    "space_to_depth",
    [arg("data", ROWS)],
    _BLOCK,
    infer=from_data(_space_to_blocks),
    view=True,
    onnx=Onnx("SpaceToDepth", builder="blocks"),
)
def space_to_depth(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Rearrange blocks of pixels into channels.

    Shape:
        data: (N, C, H * b, W * b) for blocks of b by b.
        returns: (N, C * b * b, H, W).

    Source: MXNet 1.9.1 `space_to_depth`.
    """
    block = a.block_size
    out = _space_to_blocks(a, tuple(x.shape))
    blocks = x.reshape(x.shape[0], x.shape[1], out[2], block, out[3], block)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(out)
