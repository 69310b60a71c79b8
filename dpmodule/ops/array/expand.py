"""Broadcasting, tiling, repeating, reversing and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import choice, integer, ints, optional, real, shape
from ..math.pointwise import element_of
from ..registry import bound, pure
from ..shapes import first_type, from_data, known, normal_axes, normal_axis, output_shape, prod, same
from ..spec import ROWS, Attr, Onnx, Shapes, arg

Unary = Callable[[torch.Tensor], torch.Tensor]


def _broadcast_shape(name: str, dims: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape after broadcasting to `wanted`, where 0 keeps a dimension."""
    if len(dims) != len(wanted):
        raise ShapeError(
            f"{name}: data has shape {dims} and the target shape is {wanted}, expected equal ranks"
        )
    for have, want in zip(dims, wanted, strict=True):
        if have > 1 and want not in (0, have):
            raise ShapeError(f"{name}: data {dims} cannot be broadcast to {wanted}; only size 1 expands")
    return tuple(want or have for have, want in zip(dims, wanted, strict=True))


@bound(
    "broadcast_to",
    [arg("data")],
    {"shape": Attr(shape, "target shape; 0 keeps a dimension", ())},
    infer=from_data(lambda a, dims: _broadcast_shape("broadcast_to", dims, a.shape)),
    view=True,
)
def broadcast_to(a: Any) -> Unary:
    """Broadcast the array to a shape.

    Shape:
        data: as many dimensions as `shape`, each equal to its size there or 1.
        returns: `shape`.

    Raises:
        ShapeError: a dimension is neither 1 nor the target size.

    Source: MXNet 1.9.1 `broadcast_to`.
    """
    wanted = a.shape
    return lambda x: x.expand(_broadcast_shape("broadcast_to", tuple(x.shape), wanted))


def _axis_shape(a: Any, ndim: int) -> tuple[int, ...]:
    if len(a.axis) != len(a.size):
        raise OpError(f"broadcast_axis: axis {a.axis} and size {a.size} differ in length")
    wanted = [0] * ndim
    for axis, size in zip(a.axis, a.size, strict=True):
        wanted[normal_axis(axis, ndim)] = size
    return tuple(wanted)


@bound(
    "broadcast_axis",
    [arg("data")],
    {"axis": Attr(ints, "axes of size 1 to expand", ()), "size": Attr(ints, "their new sizes", ())},
    aliases=("broadcast_axes",),
    infer=from_data(lambda a, dims: _broadcast_shape("broadcast_axis", dims, _axis_shape(a, len(dims)))),
    view=True,
    onnx=Onnx(builder="broadcast_to"),
)
def broadcast_axis(a: Any) -> Unary:
    """Repeat the elements along axes of size 1.

    Shape:
        data: size 1 at the axes.
        returns: `size` there.

    Source: MXNet 1.9.1 `broadcast_axis`.
    """
    return lambda x: x.expand(_broadcast_shape("broadcast_axis", tuple(x.shape), _axis_shape(a, x.dim())))


def _like_shape(a: Any, dims: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if (a.lhs_axes is None) != (a.rhs_axes is None) or len(a.lhs_axes or ()) != len(a.rhs_axes or ()):
        raise OpError(
            f"broadcast_like: lhs_axes {a.lhs_axes} and rhs_axes {a.rhs_axes} must have equal lengths"
        )
    if a.lhs_axes is None:
        return other
    if not a.lhs_axes:
        raise OpError("broadcast_like: lhs_axes and rhs_axes are empty, expected axes; None means all")
    wanted = list(dims)
    for axis, source in zip(a.lhs_axes, a.rhs_axes, strict=True):
        wanted[normal_axis(axis, len(dims), "lhs_axes")] = other[normal_axis(source, len(other), "rhs_axes")]
    return tuple(wanted)


def _infer_broadcast_like(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if not known(ins[0]) or not known(ins[1]):
        return ins, outs
    left, right = ins[0] or (), ins[1] or ()
    return ins, [output_shape(outs[0], _broadcast_shape("broadcast_like", left, _like_shape(a, left, right)))]


@pure(
    "broadcast_like",
    [arg("lhs"), arg("rhs")],
    {
        "lhs_axes": Attr(optional(ints), "axes of lhs to expand; None means all", None),
        "rhs_axes": Attr(optional(ints), "axes of rhs that give the sizes; None means all", None),
    },
    infer=_infer_broadcast_like,
    infer_type=first_type(),
    view=True,
)
def broadcast_like(a: Any, lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """Broadcast `lhs` to the shape of `rhs`, or to its sizes along some axes.

    Shape:
        lhs: each dimension equal to that of `rhs` or 1.
        rhs: any shape.
        returns: the shape of `rhs`, or that of `lhs` with the sizes of `rhs` at the axes.

    Source: MXNet 1.9.1 `broadcast_like`.
    """
    left = tuple(lhs.shape)
    return lhs.expand(_broadcast_shape("broadcast_like", left, _like_shape(a, left, tuple(rhs.shape))))


def _tile_shape(reps: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(reps), len(dims))
    dims, reps = (1,) * (rank - len(dims)) + dims, (1,) * (rank - len(reps)) + reps
    return tuple(d * n for d, n in zip(dims, reps, strict=True))


def _infer_tile(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if min(a.reps, default=1) < 1:
        raise OpError(f"tile: reps is {a.reps}, expected positive numbers")
    return from_data(lambda a, dims: _tile_shape(a.reps, dims))(a, ins, outs)


@bound(
    "tile",
    [arg("data")],
    {"reps": Attr(shape, "number of repetitions of each axis, aligned at the last axis")},
    infer=_infer_tile,
)
def tile(a: Any) -> Unary:
    """Repeat the whole array along axes.

    Shape:
        data: any shape; axes of size 1 are prepended if `reps` is longer.
        returns: each dimension times its number of repetitions.

    Source: MXNet 1.9.1 `tile`.
    """
    reps = a.reps
    if min(reps, default=1) < 1:
        raise OpError(f"tile: reps is {reps}, expected positive numbers")

    def tile(x: torch.Tensor) -> torch.Tensor:
        return x.repeat((1,) * (x.dim() - len(reps)) + reps)

    return tile


def _repeat_shape(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    if a.axis is None:
        return (prod(dims) * a.repeats,)
    axis = normal_axis(a.axis, len(dims))
    return (*dims[:axis], dims[axis] * a.repeats, *dims[axis + 1 :])


@pure(
    "repeat",
    [arg("data")],
    {
        "repeats": Attr(integer(low=1), "number of repetitions of each element"),
        "axis": Attr(optional(integer()), "axis along which to repeat; None flattens first", None),
    },
    infer=from_data(_repeat_shape),
    view=True,
)
def repeat(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Repeat each element along an axis.

    Shape:
        data: any shape.
        returns: `repeats` times the size at `axis`; one axis if `axis` is None.

    Source: MXNet 1.9.1 `repeat`.
    """
    if a.axis is None:
        return x.reshape(-1, 1).expand(-1, a.repeats).reshape(-1)
    axis = normal_axis(a.axis, x.dim())
    sizes = [-1] * (x.dim() + 1)
    sizes[axis + 1] = a.repeats
    return x.unsqueeze(axis + 1).expand(sizes).flatten(axis, axis + 1)


@pure(
    "reverse",
    [arg("data")],
    {"axis": Attr(ints, "axes to reverse")},
    aliases=("flip",),
    infer=same,
)
def reverse(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Reverse the order of the elements along axes.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `reverse`.
    """
    return torch.flip(x, normal_axes(a.axis, x.dim()))


def _check_pad(a: Any, dims: tuple[int, ...]) -> None:
    width, expected = a.pad_width, 2 * len(dims)
    if len(width) != expected or min(width) < 0 or any(width[:4]) or len(dims) < 3:
        raise OpError(
            f"Pad: pad_width is {width} for data {dims}, expected {expected} numbers of at least 0: a pair for "
            "each of at least 3 axes, with (0, 0) for the first two"
        )
    if a.mode == "reflect" and any(max(width[2 * i : 2 * i + 2]) >= d > 0 for i, d in enumerate(dims)):
        raise OpError(
            f"Pad: pad_width is {width}, but reflection needs widths below the sizes of data {dims}"
        )


def _pad_shape(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    _check_pad(a, dims)
    return tuple(d and d + a.pad_width[2 * i] + a.pad_width[2 * i + 1] for i, d in enumerate(dims))


@bound(
    "Pad",
    [arg("data", ROWS)],
    {
        "mode": Attr(choice("constant", "edge", "reflect"), "kind of padding"),
        "pad_width": Attr(
            shape, "elements before and after, a pair for each axis; the first two pairs are 0"
        ),
        "constant_value": Attr(real, "value for mode constant", 0.0),
    },
    aliases=("pad",),
    infer=from_data(_pad_shape),
    onnx=Onnx(builder="pad"),
)
def pad(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Pad an array with a constant, its repeated edge, or its reflection.

    Shape:
        data: (N, C, ...).
        returns: each dimension with its two widths added.

    Raises:
        OpError: the widths do not fit the data.

    Source: MXNet 1.9.1 `Pad`, which only takes four or five dimensions.
    """
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}[a.mode]
    pairs = [a.pad_width[i : i + 2] for i in range(0, len(a.pad_width), 2)]
    # torch expects the pair of the last axis first, without those of N and C
    widths = [n for pair in reversed(pairs[2:]) for n in pair]
    value = a.constant_value if mode == "constant" else None

    def pad(x: torch.Tensor) -> torch.Tensor:
        _check_pad(a, tuple(x.shape))
        return F.pad(x, widths, mode, None if value is None else element_of(x, value))

    return pad
