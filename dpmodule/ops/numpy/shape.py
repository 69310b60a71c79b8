"""Reshaping, order of axes, joining."""

from __future__ import annotations

from typing import Any

import torch

from ..._devices.device_transfer import on_device
from ...base import OpError
from ..array.axis import permutation
from ..array.reshape import infers_reshape
from ..array.reshape_codes import resolve_numpy
from ..attrs import boolean, choice, integer, ints, optional, shape
from ..registry import pure
from ..shapes import normal_axes, normal_axis, same
from ..spec import NEVER, ROWS, Attr, Onnx, Variadic, arg, numbered
from .rules import each_type

COUNT = Attr(integer(low=0), "number of inputs; set by the call", 0)


@pure(
    "_np_reshape",
    [arg("a")],
    {
        "newshape": Attr(shape, "new sizes; one of them may be -1, which is inferred"),
        "order": Attr(choice("C"), "order of the elements", "C"),
    },
    infer=infers_reshape(lambda a, dims: resolve_numpy(dims, a.newshape)),
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
    onnx=Onnx("Transpose", builder="np_permute"),
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
    outputs=("out",),
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


def _many(*aliases: str, axis: bool = False, **fields: Any) -> dict[str, Any]:
    """Return the fields of an operator of any number of arrays of one type."""
    attrs = {"num_args": COUNT}
    if axis:
        attrs["dim"] = Attr(integer(), "accepted and ignored", 1)
        fields["outputs"] = ("out",)
    return {"attrs": attrs, "variadic": Variadic("data"), "aliases": aliases, **fields}


@pure(
    "_npi_stack",
    attrs={"axis": Attr(integer(), "position of the new axis in the result", 0), "num_args": COUNT},
    variadic=Variadic("data"),
    onnx=Onnx("Concat", builder="stack"),
)
def stack(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Join arrays along a new axis.

    Shape:
        data: one shape.
        returns: one more dimension, of size the number of arrays.

    Source: MXNet 1.9.1 `_npi_stack`.
    """
    return torch.stack(arrays, a.axis)


@pure("_npi_vstack", **_many(onnx=Onnx("Concat", builder="np_joined")))
def vstack(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Join arrays along the first axis; vectors become rows.

    Shape:
        data: shapes that differ at most at axis 0.
        returns: the same shape with the sum of their sizes at axis 0.

    Source: MXNet 1.9.1 `_npi_vstack`.
    """
    return torch.vstack(arrays)


@pure("_npi_hstack", **_many(axis=True, onnx=Onnx("Concat", builder="np_joined")))
def hstack(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Join arrays along the second axis, vectors along the first.

    Shape:
        data: shapes that differ at most at axis 1.
        returns: the same shape with the sum of their sizes there.

    Source: MXNet 1.9.1 `_npi_hstack`.
    """
    return torch.hstack(arrays)


@pure("_npi_dstack", **_many(axis=True, onnx=Onnx("Concat", builder="np_joined")))
def dstack(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Join arrays along the third axis, which matrices get.

    Shape:
        data: shapes that differ at most at axis 2.
        returns: the same shape with the sum of their sizes at axis 2.

    Source: MXNet 1.9.1 `_npi_dstack`.
    """
    return torch.dstack(arrays)


@pure("_npi_column_stack", **_many(onnx=Onnx("Concat", builder="np_joined")))
def column_stack(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Join arrays along the second axis; vectors become columns.

    Shape:
        data: (N,) or shapes that differ at most at axis 1.
        returns: (N, sum of their sizes at axis 1, ...).

    Source: MXNet 1.9.1 `_npi_column_stack`.
    """
    return torch.cat([x.reshape(-1, 1) if x.dim() < 2 else x for x in arrays], 1)


def _declare_atleast(rank: int, function: Any) -> None:
    def run(a: Any, *arrays: torch.Tensor) -> Any:
        found = function(arrays)
        return found[0] if len(arrays) == 1 else tuple(found)

    run.__doc__ = f"""Return arrays of at least {rank} dimensions.

    Shape:
        arys: any shapes.
        returns: the same elements with axes of size 1 added.

    Source: MXNet 1.9.1 `_np_atleast_{rank}d`.
    """
    pure(
        f"_np_atleast_{rank}d",
        attrs={"num_args": COUNT},
        variadic=Variadic("ary"),
        aliases=(f"_npi_atleast_{rank}d",),
        outputs=lambda a: numbered(a.num_args),
        infer_type=each_type,
        view=True,
        onnx=Onnx("Reshape", builder="np_reshape"),
    )(run)


_declare_atleast(1, torch.atleast_1d)
_declare_atleast(2, torch.atleast_2d)
_declare_atleast(3, torch.atleast_3d)


@pure("_np_copy", [arg("a", ROWS)], aliases=("_npi_copy",), infer=same, view=True, onnx=Onnx("Identity"))
def copy(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return `a` unchanged.

    Shape:
        a: any shape.
        returns: the same shape and dtype.

    Source: MXNet 1.9.1 `_np_copy`.
    """
    return x


@pure(
    "_np_moveaxis",
    [arg("a")],
    {"source": Attr(ints, "axes to move"), "destination": Attr(ints, "their positions in the result")},
    aliases=("_npi_moveaxis",),
    view=True,
    onnx=Onnx("Transpose", builder="np_permute"),
)
def moveaxis(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Move axes to other positions; the others keep their order.

    Shape:
        a: any shape.
        returns: the permuted shape.

    Source: MXNet 1.9.1 `_np_moveaxis`.
    """
    return torch.movedim(x, a.source, a.destination)


@pure(
    "_npi_rollaxis",
    [arg("data")],
    {"axis": Attr(integer(), "axis to move"), "start": Attr(integer(), "axis before which to insert it", 0)},
    view=True,
    onnx=Onnx("Transpose", builder="np_permute"),
)
def rollaxis(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Move an axis before another; the others keep their order.

    Shape:
        data: any shape.
        returns: the permuted shape.

    Source: MXNet 2.0 `_npi_rollaxis`.
    """
    return x.permute(rolled_axes(a, x.dim()))


def rolled_axes(a: Any, ndim: int) -> tuple[int, ...]:
    """Return the permutation of `rollaxis`."""
    axis = normal_axis(a.axis, ndim)
    start = a.start + ndim if a.start < 0 else a.start
    order = [i for i in range(ndim) if i != axis]
    order.insert(start - (start > axis), axis)
    return tuple(order)


@pure(
    "_np_roll",
    [arg("data")],
    {
        "shift": Attr(optional(ints), "positions to shift by, one or one per axis", None),
        "axis": Attr(optional(ints), "axes; None shifts the flattened array", None),
    },
    aliases=("_npi_roll",),
    infer=same,
    onnx=Onnx("Concat", builder="np_roll"),
)
def roll(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Shift elements along axes; those beyond the end enter at the beginning.

    Shape:
        data: any shape.
        returns: the same shape and dtype.

    Source: MXNet 1.9.1 `_np_roll`.
    """
    if a.shift is None:
        raise OpError("_np_roll: shift is None, expected an integer or one for each axis")
    if a.axis is None:
        return torch.roll(x, a.shift)
    shift = a.shift * len(a.axis) if len(a.shift) == 1 else a.shift
    return torch.roll(x, shift, a.axis)


@pure(
    "_npi_flip",
    [arg("data")],
    {"axis": Attr(optional(ints), "axes to reverse; None means all")},
    infer=same,
    onnx=Onnx("Slice", builder="np_flip"),
)
def flip(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Reverse axes.

    Shape:
        data: any shape.
        returns: the same shape and dtype.

    Source: MXNet 1.9.1 `_npi_flip`.
    """
    return torch.flip(x, tuple(range(x.dim())) if a.axis is None else a.axis)


@pure(
    "_npi_rot90",
    [arg("data")],
    {
        "k": Attr(integer(), "number of quarter turns", 1),
        "axes": Attr(optional(shape), "plane of the rotation; None means the first two axes", None),
    },
    onnx=Onnx("Gather", builder="np_gather"),
)
def rot90(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Rotate by quarter turns in the plane of two axes.

    Shape:
        data: any shape of two or more dimensions.
        returns: the shape, with both lengths exchanged if `k` is odd.

    Source: MXNet 1.9.1 `_npi_rot90`.
    """
    return torch.rot90(x, a.k, a.axes or (0, 1))


@pure(
    "_npi_broadcast_to",
    [arg("array")],
    {"shape": Attr(shape, "shape of the result; -2 keeps a length", ())},
    onnx=Onnx("Expand", builder="np_broadcast_to"),
    aliases=("_np_broadcast_to",),  # in MXNet 1.6
)
def broadcast_to(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Repeat an array to a shape, with NumPy's broadcasting.

    Shape:
        array: dimensions that are 1 or those of `shape`, aligned at the end.
        returns: `shape`.

    Source: MXNet 1.9.1 `_npi_broadcast_to`.
    """
    before = (1,) * (len(a.shape) - x.dim()) + tuple(x.shape)
    return x.expand([old if new == -2 else new for new, old in zip(a.shape, before)])


@pure(
    "_np_diag",
    [arg("data")],
    {"k": Attr(integer(), "index of the diagonal, positive above the main one", 0)},
    aliases=("_npi_diag",),
    onnx=Onnx("Gather", builder="np_gather"),
)
def diag(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return a diagonal of a matrix, or a matrix with a diagonal.

    Shape:
        data: (N, M), or (N,).
        returns: (length of the diagonal,), or (N + |k|, N + |k|).

    Source: MXNet 1.9.1 `_np_diag`.
    """
    return torch.diag(x, a.k)


@pure(
    "_np_diagflat",
    [arg("data")],
    {"k": Attr(integer(), "index of the diagonal, positive above the main one", 0)},
    aliases=("_npi_diagflat",),
    batch=NEVER,
    onnx=Onnx("Gather", builder="np_gather"),
)
def diagflat(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return a matrix with the elements of `data` on a diagonal.

    Shape:
        data: any shape of N elements.
        returns: (N + |k|, N + |k|).

    Source: MXNet 1.9.1 `_np_diagflat`.
    """
    return torch.diagflat(x, a.k)


_DIAGONAL = {
    "offset": Attr(integer(), "index of the diagonal, positive above the main one", 0),
    "axis1": Attr(integer(), "axis of the rows", 0),
    "axis2": Attr(integer(), "axis of the columns", 1),
}


@pure(
    "_np_diagonal",
    [arg("data")],
    _DIAGONAL,
    aliases=("_npi_diagonal",),
    onnx=Onnx("Gather", builder="np_gather"),
)
def diagonal(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the diagonals of matrices.

    Shape:
        data: two or more dimensions.
        returns: the other axes, then the length of the diagonal.

    Source: MXNet 1.9.1 `_np_diagonal`.
    """
    return torch.diagonal(x, a.offset, a.axis1, a.axis2)


@pure(
    "_np_trace", [arg("data")], _DIAGONAL, aliases=("_npi_trace",), onnx=Onnx("ReduceSum", builder="np_trace")
)
def trace(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the sums of the diagonals of matrices.

    Shape:
        data: two or more dimensions.
        returns: the other axes; a scalar if there are none.

    Source: MXNet 1.9.1 `_np_trace`.
    """
    return torch.diagonal(x, a.offset, a.axis1, a.axis2).sum(-1, dtype=x.dtype)


def _declare_triangle(name: str, function: Any, where: str) -> None:
    def run(a: Any, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 1:
            x = x.expand(x.shape[0], x.shape[0])
        found: torch.Tensor = function(x, a.k)
        return found

    run.__doc__ = f"""Return matrices with zeros {where} a diagonal.

    Shape:
        data: (..., N, M), or (N,), which is repeated to (N, N).
        returns: (..., N, M).

    Source: MXNet {"1.9.1" if name == "_npi_tril" else "2.0"} `{name}`.
    """
    pure(
        name,
        [arg("data")],
        {"k": Attr(integer(), "index of the diagonal, positive above the main one", 0)},
        onnx=Onnx("Trilu", builder="np_triangle"),
    )(run)


_declare_triangle("_npi_tril", torch.tril, "above")
_declare_triangle("_npi_triu", torch.triu, "below")

_SPLIT = {
    "indices": Attr(shape, "start of each piece; the first is 0"),
    "axis": Attr(integer(), "axis to split", 1),
    "squeeze_axis": Attr(boolean, "remove the axis, which must have size 1 in each piece", False),
    "sections": Attr(integer(0, 65536), "number of equal pieces; 0 means to use `indices`", 0),
}


def pieces(x: torch.Tensor, axis: int, a: Any) -> Any:
    """Return the pieces of an array along an axis."""
    if a.sections:
        if x.shape[axis] % a.sections:
            raise OpError(
                f"split: axis {axis} has {x.shape[axis]} elements, which cannot be split into {a.sections} equal pieces"
            )
        found = torch.tensor_split(x, a.sections, axis)
    else:
        found = torch.tensor_split(x, a.indices[1:], axis)
    return found[0] if len(found) == 1 else tuple(found)


def _declare_split(name: str, which: Any, where: str) -> None:
    def run(a: Any, x: torch.Tensor) -> Any:
        return pieces(x, which(x.dim()), a)

    run.__doc__ = f"""Split an array along {where}, evenly or at given positions.

    Shape:
        data: any shape.
        returns: `sections` arrays, or one for each of `indices`.

    Source: MXNet 1.9.1 `{name}`.
    """
    pure(
        name,
        [arg("data")],
        _SPLIT,
        outputs=lambda a: numbered(a.sections or len(a.indices)),
        view=True,
        onnx=Onnx("Split", builder="np_split"),
    )(run)


_declare_split("_npi_hsplit", lambda rank: 1 if rank > 1 else 0, "the second axis, vectors along the first")
_declare_split("_npi_dsplit", lambda rank: 2, "the third axis")


@pure(
    "_npi_array_split",
    [arg("data")],
    _SPLIT,
    outputs=lambda a: numbered(a.sections or len(a.indices)),
    view=True,
    onnx=Onnx("Split", builder="np_split"),
)
def array_split(a: Any, x: torch.Tensor) -> Any:
    """Split an array along an axis, as evenly as possible or at given positions.

    Shape:
        data: any shape.
        returns: `sections` arrays, or one for each of `indices`.

    Source: MXNet 2.0 `_npi_array_split`.
    """
    found = torch.tensor_split(x, a.sections or a.indices[1:], a.axis)
    return found[0] if len(found) == 1 else tuple(found)


@pure(
    "_npi_repeats",
    [arg("data")],
    {
        "repeats": Attr(ints, "number of copies, one for all or one for each position"),
        "axis": Attr(optional(integer()), "axis; None repeats the elements of the flattened array", None),
    },
    onnx=Onnx("Gather", builder="np_gather"),
)
def repeats(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Repeat positions along an axis.

    Shape:
        data: any shape.
        returns: the shape with the sum of the copies at `axis`; one dimension if it is None.

    Source: MXNet 2.0 `_npi_repeats`.
    """
    flat, axis = (x.reshape(-1), 0) if a.axis is None else (x, a.axis)
    return flat.index_select(axis, on_device(repeated_places(a, flat.shape[axis]), x.device))


def repeated_places(a: Any, length: int) -> torch.Tensor:
    """Return the positions that `repeats` selects."""
    counts = a.repeats * length if len(a.repeats) == 1 else a.repeats
    return torch.tensor(
        [i for i, count in zip(range(length), counts, strict=True) for _ in range(count)], dtype=torch.int64
    )
