"""Order, insertion and removal of axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import integer, ints, optional, shape
from ..registry import bound
from ..shapes import from_data, normal_axes, normal_axis, output_shape, unify
from ..spec import Attr, Onnx, Shapes, arg

Unary = Callable[[torch.Tensor], torch.Tensor]


@lru_cache(maxsize=1024)
def permutation(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return a permutation of axes as nonnegative numbers; () reverses them."""
    if not axes:
        return tuple(range(ndim - 1, -1, -1))
    if len(axes) != ndim or normal_axes(axes, ndim, "axes") != tuple(range(ndim)):
        raise OpError(f"transpose: axes is {axes}, expected a permutation of all {ndim} axes of data")
    return tuple(axis % ndim for axis in axes)


def _infer_transpose(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if data is None and out is None:
        return ins, outs
    order = permutation(a.axes, len(data or out or ()))
    if out is not None:
        back = [0] * len(out)
        for i, axis in enumerate(order):
            back[axis] = out[i]
        data = unify(data, tuple(back), "data of transpose")
    if data is not None:
        out = output_shape(out, tuple(data[axis] for axis in order))
    return [data], [out]


@bound(
    "transpose",
    [arg("data")],
    {"axes": Attr(shape, "permutation of the axes; () reverses them", ())},
    infer=_infer_transpose,
    view=True,
)
def transpose(a: Any) -> Unary:
    """Permute the axes.

    Shape:
        data: any shape (d0, d1, ...).
        returns: axis i has the size of axis axes[i] of `data`.

    Raises:
        OpError: `axes` is not a permutation of all axes.

    Source: MXNet 1.9.1 `transpose`.
    """
    axes = a.axes
    return lambda x: x.permute(permutation(axes, x.dim()))


def _swapaxes_shape(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    first, second = normal_axis(a.dim1, len(dims), "dim1"), normal_axis(a.dim2, len(dims), "dim2")
    out = list(dims)
    out[first], out[second] = out[second], out[first]
    return tuple(out)


def _infer_swap(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if out is not None:
        data = unify(data, _swapaxes_shape(a, out), "data of SwapAxis")
    if data is not None:
        out = output_shape(out, _swapaxes_shape(a, data))
    return [data], [out]


@bound(
    "SwapAxis",
    [arg("data")],
    {"dim1": Attr(integer(), "first axis", 0), "dim2": Attr(integer(), "second axis", 0)},
    aliases=("swapaxes",),
    infer=_infer_swap,
    view=True,
    onnx=Onnx(builder="swap_axis"),
)
def swap_axis(a: Any) -> Unary:
    """Exchange two axes.

    Shape:
        data: any shape.
        returns: the shape with dimensions dim1 and dim2 exchanged.

    Source: MXNet 1.9.1 `SwapAxis`.
    """
    first, second = a.dim1, a.dim2
    return lambda x: x.transpose(first, second)


def _infer_expand(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if data is None and out is None:
        return ins, outs
    axis = normal_axis(a.axis, len(data) + 1 if data is not None else len(out or ()))
    if out is not None:
        data = unify(data, out[:axis] + out[axis + 1 :], "data of expand_dims")
    if data is not None:
        out = output_shape(out, (*data[:axis], 1, *data[axis:]))
    return [data], [out]


@bound(
    "expand_dims",
    [arg("data")],
    {"axis": Attr(integer(), "position of the new axis in the result")},
    infer=_infer_expand,
    view=True,
    onnx=Onnx(builder="unsqueeze"),
)
def expand_dims(a: Any) -> Unary:
    """Insert an axis of size 1.

    Shape:
        data: r dimensions.
        returns: r + 1 dimensions, with size 1 at `axis`.

    Source: MXNet 1.9.1 `expand_dims`.
    """
    axis = a.axis
    return lambda x: x.unsqueeze(axis)


def _squeeze_shape(a: Any, dims: tuple[int, ...]) -> Shape:
    if a.axis is None:
        return None if 0 in dims else tuple(d for d in dims if d != 1) or (1,)
    axes = normal_axes(a.axis, len(dims))
    for axis in axes:
        if dims[axis] > 1:
            raise OpError(
                f"squeeze: axis {axis} of data has {dims[axis]} elements, expected 1; data is {dims}"
            )
    return tuple(d for i, d in enumerate(dims) if i not in axes) or (1,)


@bound(
    "squeeze",
    [arg("data")],
    {"axis": Attr(optional(ints), "axes of size 1 to remove; None removes all of them", None)},
    infer=from_data(_squeeze_shape),
    view=True,
)
def squeeze(a: Any) -> Unary:
    """Remove axes of size 1.

    Shape:
        data: any shape.
        returns: the shape without these axes; (1,) if no axis is left.

    Raises:
        OpError: an axis in `axis` does not have size 1.

    Source: MXNet 1.9.1 `squeeze`.
    """
    axes = a.axis

    def run(x: torch.Tensor) -> torch.Tensor:
        if axes is None:
            squeezed = x.squeeze()
        else:
            _squeeze_shape(a, tuple(x.shape))
            squeezed = x.squeeze(axes) if axes else x
        return squeezed if squeezed.dim() else squeezed.reshape(1)

    run.__name__ = "squeeze"
    return run
