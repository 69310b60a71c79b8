"""Reshaping, order of axes, joining."""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError
from ..array.axis import permutation
from ..attrs import choice, integer, ints, optional, shape
from ..registry import pure
from ..shapes import normal_axes
from ..spec import Attr, Onnx, Variadic, arg

COUNT = Attr(integer(low=0), "number of inputs; set by the call", 0)


@pure(
    "_np_reshape",
    [arg("a")],
    {
        "newshape": Attr(shape, "new sizes; one of them may be -1, which is inferred"),
        "order": Attr(choice("C"), "order of the elements", "C"),
    },
    view=True,
    onnx=Onnx("Reshape", builder="np_reshape"),
)
def reshape(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the elements in another shape.

    Shape:
        a: any shape.
        returns: `newshape`; () is a scalar.

    Source: MXNet 1.9.1 `_np_reshape`.
    """
    return x.reshape(a.newshape)


@pure(
    "_np_transpose",
    [arg("a")],
    {"axes": Attr(optional(shape), "permutation of the axes; None reverses them", None)},
    aliases=("_npi_transpose",),
    view=True,
    onnx=Onnx("Transpose", builder="np_transpose"),
)
def transpose(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Permute the axes.

    Shape:
        a: any shape (d0, d1, ...).
        returns: axis i has the size of axis axes[i] of `a`.

    Source: MXNet 1.9.1 `_np_transpose`.
    """
    return x.permute(permutation(a.axes or (), x.dim()))


@pure(
    "_np_squeeze",
    [arg("a")],
    {"axis": Attr(optional(ints), "axes to remove, of size 1; None means all axes of size 1", None)},
    aliases=("_npi_squeeze",),
    view=True,
    onnx=Onnx("Squeeze", builder="np_squeeze"),
)
def squeeze(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Remove axes of size 1.

    Shape:
        a: any shape.
        returns: `a` without these axes; a scalar if none is left.

    Raises:
        OpError: an axis has another size than 1.

    Source: MXNet 1.9.1 `_np_squeeze`.
    """
    if a.axis is None:
        return x.squeeze()
    axes = normal_axes(a.axis, x.dim())
    wrong = [axis for axis in axes if x.shape[axis] != 1]
    if wrong:
        raise OpError(f"_np_squeeze: axis {wrong[0]} has size {x.shape[wrong[0]]}, expected 1")
    return x.squeeze(axes)


@pure(
    "_npi_concatenate",
    attrs={
        "num_args": COUNT,
        "axis": Attr(optional(integer()), "axis along which to join; None joins flat", 0),
    },
    variadic=Variadic("data"),
    onnx=Onnx("Concat", builder="np_concatenate"),
)
def concatenate(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Join arrays along an axis.

    Shape:
        data: shapes that differ at most at `axis`.
        returns: the same shape with the sum of their sizes at `axis`.

    Source: MXNet 1.9.1 `_npi_concatenate`.
    """
    if a.axis is None:
        return torch.cat([x.reshape(-1) for x in arrays])
    return torch.cat(arrays, a.axis)
