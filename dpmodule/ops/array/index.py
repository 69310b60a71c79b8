"""Reading and writing elements by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import BoundsError, OpError, Shape, ShapeError
from ..attrs import boolean, choice, dtype, integer, optional, real, shape
from ..dtypes import torch_dtype
from ..registry import bound, pure
from ..shapes import first_type, known, normal_axis, output_shape, prod, typed, unify
from ..spec import NEVER, ROWS, Attr, ClassLabels, Onnx, Shapes, Types, arg

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _checked_index(index: torch.Tensor, length: int, mode: str) -> torch.Tensor:
    """Return positions as integers in [0, length)."""
    index = index.long()
    if mode == "wrap":
        return index.remainder(length)
    if mode == "clip":
        return index.clamp(0, length - 1)
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= length):
        raise BoundsError(
            f"take: indices range from {int(index.min())} to {int(index.max())}, expected 0 to {length - 1}"
        )
    return index


def _infer_take(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None or ins[1] is None:
        return ins, outs
    axis = normal_axis(a.axis, len(ins[0]))
    return ins, [output_shape(outs[0], ins[0][:axis] + ins[1] + ins[0][axis + 1 :])]


@pure(
    "take",
    [arg("a"), arg("indices")],
    {
        "axis": Attr(integer(), "axis to pick from", 0),
        "mode": Attr(
            choice("clip", "wrap", "raise"),
            "out-of-range positions: clip them, wrap them, or raise an error",
            "clip",
        ),
    },
    infer=_infer_take,
    infer_type=first_type("float32"),
)
def take(a: Any, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Pick slices of an array along an axis by position.

    Shape:
        a: (d0, ..., d_axis, ...), any dtype.
        indices: any shape (i0, ...), integers; no gradient.
        returns: (d0, ..., i0, ..., ...) with the dtype of `a`.

    Raises:
        BoundsError: mode is "raise" and a position is not in [0, d_axis).

    Example:
        >>> mx.nd.take(mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([1])).asnumpy()
        array([[3., 4.]], dtype=float32)

    Source: MXNet 1.9.1 `take`.
    """
    axis = normal_axis(a.axis, x.dim())
    positions = _checked_index(indices, x.shape[axis], a.mode)
    picked = x.index_select(axis, positions.reshape(-1))
    return picked.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def _pick_axis(a: Any, ndim: int) -> int:
    if a.axis is None:
        raise OpError("pick: axis is None, expected the number of an axis")
    return normal_axis(a.axis, ndim)


def _infer_pick(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None:
        return ins, outs
    data = ins[0]
    axis = _pick_axis(a, len(data))
    short, kept = data[:axis] + data[axis + 1 :] or (1,), (*data[:axis], 1, *data[axis + 1 :])
    index = ins[1]
    full = index is not None and len(index) == len(data) and len(data) > 1
    index = unify(index, kept if full else short, "index of pick")
    return [data, index], [output_shape(outs[0], kept if a.keepdims else short)]


@pure(
    "pick",
    [arg("data"), arg("index")],
    {
        "axis": Attr(optional(integer()), "axis to pick from", -1),
        "keepdims": Attr(boolean, "keep the axis with size 1", False),
        "mode": Attr(choice("clip", "wrap"), "out-of-range positions: clip or wrap them", "clip"),
    },
    aliases=("choose_element_0index",),
    infer=_infer_pick,
    classes=lambda a, data, index: None if a.mode == "wrap" else ClassLabels(data[_pick_axis(a, len(data))]),
    infer_type=first_type("float32"),
)
def pick(a: Any, data: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Pick one element along an axis for every position of the other axes.

    Shape:
        data: any shape.
        index: that shape without the axis, or with size 1 there; integers; no gradient.
        returns: the shape of `data` without the axis, or with size 1 there if `keepdims`.

    Source: MXNet 1.9.1 `pick`.
    """
    axis = _pick_axis(a, data.dim())
    kept = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
    if index.numel() != prod(kept):
        raise ShapeError(
            f"pick: index has shape {tuple(index.shape)}, expected {kept} or without axis {axis}"
        )
    picked = data.gather(axis, _checked_index(index, data.shape[axis], a.mode).reshape(kept))
    return picked if a.keepdims or data.dim() == 1 else picked.squeeze(axis)


def _infer_batch_take(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    rows = ins[0][:1] if ins[0] is not None else None
    common = unify(unify(ins[1], outs[0], "indices and result of batch_take"), rows, "rows of batch_take")
    return [ins[0], common], [common]


@pure(
    "batch_take",
    [arg("a", ROWS), arg("indices", ROWS)],
    infer=_infer_batch_take,
    classes=lambda a, x, indices: ClassLabels(x[1]),
    infer_type=first_type("int32"),
    differentiable=False,
    onnx=Onnx(builder="pick"),
)
def batch_take(a: Any, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Pick one element of each row; out-of-range positions are clipped.

    Shape:
        a: (N, K).
        indices: (N,), integers.
        returns: (N,).

    Source: MXNet 1.9.1 `batch_take`.
    """
    return x.gather(1, _checked_index(indices, x.shape[1], "clip").unsqueeze(1)).squeeze(1)


def _infer_one_hot(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if out is not None:
        data = unify(data, out[:-1] or None, "indices of one_hot")
    if data is not None:
        out = output_shape(out, (*data, a.depth))
    return [data], [out]


@bound(
    "one_hot",
    [arg("indices", ROWS)],
    {
        "depth": Attr(integer(low=0), "number of classes"),
        "on_value": Attr(real, "value at the index", 1.0),
        "off_value": Attr(real, "value elsewhere", 0.0),
        "dtype": Attr(dtype, "dtype of the result", "float32"),
    },
    infer=_infer_one_hot,
    infer_type=typed(lambda a: a.dtype),
)
def one_hot(a: Any) -> Unary:
    """Return one-hot rows; a position outside [0, depth) gives a row of `off_value`.

    Shape:
        indices: any shape, integers; no gradient.
        returns: that shape with `depth` at the end.

    Source: MXNet 1.9.1 `one_hot`.
    """
    target = torch_dtype(a.dtype)
    on, off = torch.tensor([a.on_value, a.off_value], dtype=torch.float64).to(target).tolist()

    def one_hot(indices: torch.Tensor) -> torch.Tensor:
        hit = indices.long().unsqueeze(-1) == torch.arange(a.depth, device=indices.device)
        return torch.where(hit, torch.full((), on, dtype=target, device=hit.device), off)

    return one_hot


def _infer_where(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    condition, x, y = ins
    common = unify(unify(x, y, "x and y of where"), outs[0], "inputs and result of where")
    if condition is not None and common is not None and len(condition) == len(common):
        condition = unify(condition, common, "condition and x of where")
    elif condition is not None and common is not None:
        unify(condition, common[:1], "one-dimensional condition and first axis of x in where")
    # as in MXNet, the result has no shape before the condition has one
    return [condition, common, common], [common if known(condition) else outs[0]]


def _where_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = ins[1] or ins[2] or outs[0]
    return [ins[0], ins[1] or dtype, ins[2] or dtype], [dtype]


@bound(
    "where",
    [arg("condition", ROWS), arg("x", ROWS), arg("y", ROWS)],
    aliases=("_sparse_where",),
    infer=_infer_where,
    infer_type=_where_types,
)
def where(a: Any) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Choose elements, or rows, of `x` where the condition is not 0, else of `y`.

    Shape:
        condition: the shape of `x`, or (N,) to choose rows; no gradient.
        x, y: one shape (N, ...).
        returns: the same shape.

    Source: MXNet 1.9.1 `where`.
    """

    def where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = condition.dim() == 1 and condition.shape[0] == x.shape[0]
        if x.shape != y.shape or condition.shape != x.shape and not rows:
            raise ShapeError(
                f"where: condition {tuple(condition.shape)}, x {tuple(x.shape)}, y {tuple(y.shape)}; "
                "expected one shape, or a condition of one element for each row"
            )
        if condition.dim() < x.dim():
            condition = condition.reshape(-1, *[1] * (x.dim() - 1))
        return torch.where(without_repeats(condition) != 0, x, y if y.requires_grad else without_repeats(y))

    return where


def without_repeats(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor that broadcasts to an expanded one, with one element on each axis that was expanded."""
    strides = x.stride()
    return x[tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)] if 0 in strides else x


def _infer_gather_nd(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if not known(ins[0]) or not known(ins[1]):
        return ins, outs
    data, indices = ins[0] or (), ins[1] or ()
    if indices[0] > len(data):
        raise ShapeError(f"gather_nd: indices {indices} index {indices[0]} axes, but data is {data}")
    return ins, [output_shape(outs[0], indices[1:] + data[indices[0] :] or (1,))]


@pure(
    "gather_nd",
    [arg("data"), arg("indices")],
    infer=_infer_gather_nd,
    infer_type=first_type("float32"),
)
def gather_nd(a: Any, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Pick elements or slices by positions along the leading axes.

    Shape:
        data: any shape.
        indices: (M, Y...): positions along the first M axes of `data`; no gradient.
        returns: (Y..., the other dimensions of `data`).

    Raises:
        BoundsError: a position is out of range.

    Source: MXNet 1.9.1 `gather_nd`.
    """
    try:
        return data[tuple(indices.long())]
    except IndexError as error:
        raise BoundsError(f"gather_nd: data has shape {tuple(data.shape)}: {error}") from error


def _infer_scatter_nd(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, [output_shape(outs[0], a.shape)]


@pure(
    "scatter_nd",
    [arg("data"), arg("indices")],
    {"shape": Attr(shape, "shape of the result")},
    infer=_infer_scatter_nd,
    infer_type=first_type("float32"),
    batch=NEVER,
)
def scatter_nd(a: Any, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Write elements or slices into zeros, by positions along the leading axes.

    Shape:
        data: (Y..., the dimensions of `shape` after the first M).
        indices: (M, Y...): positions along the first M axes; no gradient. Of equal positions one wins.
        returns: `shape`.

    Source: MXNet 1.9.1 `scatter_nd`.
    """
    size = a.shape
    return data.new_zeros(size).index_put(tuple(indices.long()), data)


@pure(
    "_backward_gather_nd",
    [arg("data"), arg("indices")],
    {"shape": Attr(shape, "shape of the result")},
    infer=_infer_scatter_nd,
    infer_type=first_type("float32"),
    batch=NEVER,
    onnx=Onnx("ScatterND", builder="scatter_add_nd"),
)
def backward_gather_nd(a: Any, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Add elements or slices into zeros, by positions along the leading axes.

    Shape:
        data: (Y..., the dimensions of `shape` after the first M).
        indices: (M, Y...): positions along the first M axes; no gradient. Equal positions add up.
        returns: `shape`.

    Source: MXNet 1.9.1 `_backward_gather_nd`, the gradient of `gather_nd`.
    """
    size = a.shape
    return data.new_zeros(size).index_put(tuple(indices.long()), data, accumulate=True)


def _infer_diag(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None or not known(data):
        return ins, outs
    if len(data) == 1:
        side = data[0] + abs(a.k)
        return ins, [output_shape(outs[0], (side, side))]
    rows, columns = normal_axis(a.axis1, len(data), "axis1"), normal_axis(a.axis2, len(data), "axis2")
    length = min(data[rows], data[columns] - a.k) if a.k >= 0 else min(data[rows] + a.k, data[columns])
    if length < 1 or rows == columns:
        raise ShapeError(f"diag: data {data} has no diagonal {a.k} between axes {a.axis1} and {a.axis2}")
    rest = tuple(d for i, d in enumerate(data) if i not in (rows, columns))
    return ins, [output_shape(outs[0], (*rest, length))]


@pure(
    "diag",
    [arg("data")],
    {
        "k": Attr(integer(), "index of the diagonal, positive above the main one", 0),
        "axis1": Attr(integer(), "axis of the rows", 0),
        "axis2": Attr(integer(), "axis of the columns", 1),
    },
    infer=_infer_diag,
    view=True,
)
def diag(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return a diagonal of an array, or a matrix with a vector as its diagonal.

    Shape:
        data: (K,), or two or more dimensions.
        returns: (K + |k|, K + |k|), or the dimensions other than axis1 and axis2, then the diagonal.

    Source: MXNet 1.9.1 `diag`.
    """
    k, rows, columns = a.k, a.axis1, a.axis2
    if x.dim() == 1:
        return torch.diag_embed(x, k)
    if k > x.shape[columns] or -k > x.shape[rows]:
        raise ShapeError(f"diag: data {tuple(x.shape)} has no diagonal {k} between axes {rows} and {columns}")
    return torch.diagonal(x, k, rows, columns)
