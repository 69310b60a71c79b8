"""Slicing, and conversion between indices and flat positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..._core.mode import is_np_shape
from ..._devices.device_transfer import tensor_like
from ...base import OpError, Shape, ShapeError
from ..attrs import integer, ints_or_none, optional, real, shape
from ..math.pointwise import element_of
from ..registry import bound, pure
from ..shapes import first_type, from_data, normal_axis, output_shape, unify
from ..spec import NEVER, Attr, Onnx, Shapes, arg

Unary = Callable[[torch.Tensor], torch.Tensor]

_RANGE = {
    "begin": Attr(
        ints_or_none,
        "start along each of the leading axes; None means the first position in the direction of the step",
    ),
    "end": Attr(ints_or_none, "end along each of the leading axes, exclusive; None means all that follow"),
    "step": Attr(ints_or_none, "step along each of the leading axes, may be negative; () means 1", ()),
}


def _slices(name: str, a: Any, ndim: int) -> tuple[slice, ...]:
    """Return the ranges as Python slices, one per leading axis."""
    begin, end = a.begin, a.end
    step = (None,) * len(begin) if a.step in ((), (None,)) else a.step
    if not len(begin) == len(end) == len(step) or len(begin) > ndim:
        raise OpError(
            f"{name}: begin {begin}, end {end} and step {a.step} must have equal lengths of at most {ndim}"
        )
    if 0 in step:
        raise OpError(f"{name}: step is {a.step}, expected no 0")
    return tuple(slice(*limits) for limits in zip(begin, end, step, strict=True))


def _slice_shape(slices: tuple[slice, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a slice; unknown dimensions stay unknown."""
    sizes = [len(range(*s.indices(d))) if d else 0 for s, d in zip(slices, dims, strict=False)]
    for size, s, d in zip(sizes, slices, dims, strict=False):
        if d and not size:
            raise ShapeError(f"slice {s.start}:{s.stop}:{s.step or 1} of an axis of {d} elements is empty")
    return (*sizes, *dims[len(sizes) :])


def _forward_slices(slices: tuple[slice, ...], dims: torch.Size) -> tuple[tuple[slice, ...], list[int]]:
    """Return forward ranges and the axes to flip, since torch does not take negative steps."""
    forward, flipped = [], []
    for axis, (s, length) in enumerate(zip(slices, dims, strict=False)):
        if s.step is not None and s.step < 0:
            positions = range(*s.indices(length))
            flipped.append(axis)
            s = slice(positions[-1], positions[0] + 1, -s.step) if positions else slice(0, 0)
        forward.append(s)
    return tuple(forward), flipped


def _bind_slice(name: str, a: Any) -> Unary:
    slices = _slices(name, a, len(a.begin))
    backwards = any(s.step is not None and s.step < 0 for s in slices)

    def run(x: torch.Tensor) -> torch.Tensor:
        if len(slices) > x.dim():
            _slices(name, a, x.dim())
        if not backwards:
            return x[slices]
        ranges, flipped = _forward_slices(slices, x.shape)
        return x[ranges].flip(flipped)

    run.__name__ = name.strip("_")
    return run


@bound(
    "slice",
    [arg("data")],
    _RANGE,
    aliases=("crop", "_sparse_slice"),
    infer=from_data(lambda a, dims: _slice_shape(_slices("slice", a, len(dims)), dims)),
    view=True,
)
def slice_(a: Any) -> Unary:
    """Slice the leading axes, as data[begin:end:step] in Python.

    Shape:
        data: any shape.
        returns: the sizes of the slices, then the other dimensions.

    Raises:
        OpError: begin, end and step differ in length, or a step is 0.

    Source: MXNet 1.9.1 `slice`.
    """
    return _bind_slice("slice", a)


def _start_and_size(a: Any, length: int) -> tuple[int, int]:
    """Return start and size of a slice_axis."""
    begin = a.begin + length if a.begin < 0 else a.begin
    end = length if a.end is None else a.end + length if a.end < 0 else a.end
    if not (0 <= begin < end + is_np_shape() and end <= length):  # NumPy has arrays without elements
        raise OpError(
            f"slice_axis: begin {a.begin} and end {a.end} select nothing from an axis of {length} elements, "
            "or exceed it"
        )
    return begin, end - begin


def _infer_slice_axis(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if data is None and out is None:
        return ins, outs
    axis = normal_axis(a.axis, len(data or out or ()))
    if out is not None:
        data = unify(data, (*out[:axis], 0, *out[axis + 1 :]), "data of slice_axis")
    if data is not None:
        size = _start_and_size(a, data[axis])[1] if data[axis] else 0
        out = output_shape(out, (*data[:axis], size, *data[axis + 1 :]))
    return [data], [out]


@pure(
    "slice_axis",
    [arg("data")],
    {
        "axis": Attr(integer(), "axis to slice"),
        "begin": Attr(integer(), "start; negative values count from the end"),
        "end": Attr(optional(integer()), "end, exclusive; None means the end of the axis"),
    },
    infer=_infer_slice_axis,
    view=True,
)
def slice_axis(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Slice one axis.

    Shape:
        data: any shape.
        returns: the same shape with `end - begin` at `axis`.

    Raises:
        OpError: the range is empty or exceeds the axis.

    Source: MXNet 1.9.1 `slice_axis`.
    """
    axis = normal_axis(a.axis, x.dim())
    begin, size = _start_and_size(a, x.shape[axis])
    return x.narrow(axis, begin, size)


def _like_sizes(a: Any, dims: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if not a.axes and len(dims) != len(other):
        raise OpError(
            f"slice_like: data is {dims} and shape_like {other}, expected equal ranks when axes is ()"
        )
    out = list(dims)
    for axis_attr in a.axes or range(len(dims)):
        axis, source = normal_axis(axis_attr, len(dims), "axes"), normal_axis(axis_attr, len(other), "axes")
        if dims[axis] and other[source] > dims[axis]:
            raise OpError(
                f"slice_like: axis {axis} of data {dims} is shorter than that of shape_like {other}"
            )
        out[axis] = other[source]
    return tuple(out)


def _infer_slice_like(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None or ins[1] is None:
        return ins, outs
    return ins, [output_shape(outs[0], _like_sizes(a, ins[0], ins[1]))]


@pure(
    "slice_like",
    [arg("data"), arg("shape_like")],
    {"axes": Attr(shape, "axes to slice; () means all", ())},
    infer=_infer_slice_like,
    infer_type=first_type(),
    view=True,
)
def slice_like(a: Any, data: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Slice the beginning of `data` to the size of `shape_like` along some axes.

    Shape:
        data: any shape.
        shape_like: a shape that is not greater along the axes.
        returns: the size of `shape_like` along the axes, that of `data` elsewhere.

    Source: MXNet 1.9.1 `slice_like`.
    """
    return data[tuple(slice(0, n) for n in _like_sizes(a, tuple(data.shape), tuple(other.shape)))]


def _infer_assign(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    whole = unify(ins[0], outs[0], "data and result of a slice assignment")
    if whole is None:
        return ins, outs
    sliced = _slice_shape(_slices("_slice_assign", a, len(whole)), whole)
    return [whole, *(unify(s, sliced, "slice to assign") for s in ins[1:])], [whole]


def _assign(name: str, a: Any, data: torch.Tensor, value: Any) -> torch.Tensor:
    """Return a copy of `data` with one slice replaced."""
    ranges, flipped = _forward_slices(_slices(name, a, data.dim()), data.shape)
    out = data.clone()
    out[ranges] = value.flip(flipped) if flipped and isinstance(value, torch.Tensor) else value
    return out


@pure(
    "_slice_assign",
    [arg("lhs"), arg("rhs")],
    _RANGE,
    aliases=("_crop_assign",),
    infer=_infer_assign,
)
def slice_assign(a: Any, lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """Return `lhs` with the slice lhs[begin:end:step] replaced by `rhs`.

    Shape:
        lhs: any shape.
        rhs: the shape of the slice.
        returns: the shape of `lhs`.

    Raises:
        ShapeError: the shape of `rhs` is not that of the slice.

    Source: MXNet 1.9.1 `_slice_assign`.
    """
    sliced = _slice_shape(_slices("_slice_assign", a, lhs.dim()), tuple(lhs.shape))
    if tuple(rhs.shape) != sliced:
        raise ShapeError(
            f"_slice_assign: rhs has shape {tuple(rhs.shape)}, expected {sliced}, the shape of the slice"
        )
    return _assign("_slice_assign", a, lhs, rhs)


@bound(
    "_slice_assign_scalar",
    [arg("data")],
    {"scalar": Attr(real, "value assigned to the slice", 0.0), **_RANGE},
    aliases=("_crop_assign_scalar",),
    infer=_infer_assign,
    onnx=Onnx(builder="slice_assign"),
)
def slice_assign_scalar(a: Any) -> Unary:
    """Return `data` with the slice data[begin:end:step] replaced by a number.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `_slice_assign_scalar`.
    """
    return lambda data: _assign("_slice_assign_scalar", a, data, element_of(data, a.scalar))


_SHAPE = Attr(optional(shape), "shape of the indexed array; its first number is not used", None)


def _required_shape(name: str, a: Any) -> tuple[int, ...]:
    if not a.shape:
        raise OpError(f"{name}: shape is {a.shape}, expected the shape of the indexed array")
    shape: tuple[int, ...] = a.shape
    return shape


def _strides(sides: tuple[int, ...]) -> list[int]:
    """Return the stride of each axis in elements."""
    strides = [1]
    for side in reversed(sides[1:]):
        strides.append(strides[-1] * side)
    return strides[::-1]


def _infer_ravel(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    sides, data = _required_shape("_ravel_multi_index", a), ins[0]
    if data is not None and (len(data) != 2 or (data[0] and data[0] != len(sides))):
        raise ShapeError(
            f"_ravel_multi_index: data has shape {data}, expected ({len(sides)}, N) for positions in {sides}"
        )
    length = output_shape(outs[0], None if data is None else data[1:])
    return [None if length is None else (len(sides), *length)], [length]


@pure(
    "_ravel_multi_index",
    [arg("data")],
    {"shape": _SHAPE},
    aliases=("ravel_multi_index",),
    infer=_infer_ravel,
    batch=NEVER,
)
def ravel_multi_index(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Convert indices along several axes to positions in the flattened array; no gradient.

    Shape:
        data: (M, N): row i holds integer indices along axis i of an array of shape `shape`, of M dimensions.
        returns: (N,), of the same type; computed in int64.

    Example:
        >>> mx.nd.ravel_multi_index(mx.nd.array([[3, 6], [4, 5]]), shape=(7, 6)).asnumpy()
        array([22., 41.], dtype=float32)

    Source: MXNet 1.9.1 `_ravel_multi_index`.
    """
    sides = _required_shape("_ravel_multi_index", a)
    strides = _strides(sides)
    if data.dim() != 2 or data.shape[0] != len(sides):
        raise ShapeError(
            f"_ravel_multi_index: data has shape {tuple(data.shape)}, expected ({len(sides)}, N)"
        )
    weights = tensor_like(data, strides, torch.int64).unsqueeze(1)
    return (data.long() * weights).sum(0).to(data.dtype)


def _infer_unravel(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    count = len(_required_shape("_unravel_index", a))
    out = None if ins[0] is None else (count, *ins[0])
    shape = output_shape(outs[0], out)
    return [None if shape is None else shape[1:]], [shape]


@pure(
    "_unravel_index",
    [arg("data")],
    {"shape": _SHAPE},
    aliases=("unravel_index",),
    infer=_infer_unravel,
    batch=NEVER,
)
def unravel_index(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Convert positions in a flattened array to indices along its axes; no gradient.

    Shape:
        data: (...,): integer positions in a flattened array of shape `shape`, of M dimensions.
        returns: (M, ...), of the same type; computed in int64.

    Example:
        >>> mx.nd.unravel_index(mx.nd.array([22, 41]), shape=(7, 6)).asnumpy()
        array([[3., 6.],
               [4., 5.]], dtype=float32)

    Source: MXNet 1.9.1 `_unravel_index`.
    """
    sides = _required_shape("_unravel_index", a)
    rest, indices = data.long(), []
    for side in reversed(sides[1:]):
        indices.append(rest.fmod(side))
        rest = rest.div(side, rounding_mode="trunc")
    return torch.stack([rest, *reversed(indices)]).to(data.dtype)
