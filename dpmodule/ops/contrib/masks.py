"""Rows replaced and rows selected by masks, and elements of sparse matrices counted and found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import BoundsError, OpError, Shape, ShapeError
from ...devices.device_transfer import extremes
from ..attrs import integer, optional
from ..axes import normal_axis
from ..bound import bound
from ..shapes import forward, typed, unify
from ..spec import NEVER, Attr, Onnx, Shapes, Types, arg

Tensors = Callable[..., torch.Tensor]


def _infer_index_copy(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    old = unify(ins[0], outs[0], "old_tensor and the result of _contrib_index_copy")
    return [old, ins[1], ins[2]], [old]


def _index_copy_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = ins[0] or ins[2] or outs[0]
    return [found, ins[1] or "float32", found], [found]


@bound(
    "_contrib_index_copy",
    [arg("old_tensor"), arg("index_vector"), arg("new_tensor")],
    infer=_infer_index_copy,
    infer_type=_index_copy_types,
    batch=NEVER,
    onnx=Onnx(builder="index_copy"),
)
def index_copy(a: Any) -> Tensors:
    """Return an array with some of its rows replaced.

    Shape:
        old_tensor: (N, ...).
        index_vector: (K,): numbers of the rows to replace, whole values; no gradient.
        new_tensor: (K, ...): the new rows.
        returns: (N, ...).

    Raises:
        BoundsError: there is no such row.

    Source: MXNet 1.9.1 `_contrib_index_copy`.
    """

    def index_copy(old: torch.Tensor, index: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        rows = index.detach().long()
        if rows.dim() != 1 or new.shape != (rows.numel(), *old.shape[1:]):
            raise ShapeError(
                f"_contrib_index_copy: index_vector is {tuple(index.shape)} and new_tensor {tuple(new.shape)}, "
                f"expected (K,) and (K, *{tuple(old.shape[1:])})"
            )
        least, most = extremes(rows) if rows.numel() else (0, -1)
        if least < 0 or most >= old.shape[0]:
            raise BoundsError(
                f"_contrib_index_copy: index_vector runs from {least} to {most}, "
                f"expected 0 to {old.shape[0] - 1}"
            )
        return old.index_copy(0, rows, new)

    return index_copy


def _infer_boolean_mask(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, index = ins
    if data is not None:
        index = unify(index, data[:1], "index and the first axis of data of _contrib_boolean_mask")
    return [data, index], outs


def _boolean_mask_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = ins[0] or outs[0]
    return [found, ins[1] or found], [found]


@bound(
    "_contrib_boolean_mask",
    [arg("data"), arg("index")],
    {"axis": Attr(integer(), "axis of the rows; only 0", 0)},
    infer=_infer_boolean_mask,
    infer_type=_boolean_mask_types,
    batch=NEVER,
    onnx=Onnx("Compress", const={"axis": 0}, builder="boolean_mask"),
)
def boolean_mask(a: Any) -> Tensors:
    """Return the rows whose index is not 0; how many there are is known only once it has run.

    Shape:
        data: (N, ...).
        index: (N,); its gradient is 0.
        returns: (number of index elements that are not 0, ...).

    Source: MXNet 1.9.1 `_contrib_boolean_mask`.
    """
    if a.axis != 0:
        raise OpError(f"_contrib_boolean_mask: axis is {a.axis}, expected 0, the only one supported")

    def boolean_mask(data: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if index.dim() != 1 or index.shape[0] != data.shape[0]:
            raise ShapeError(
                f"_contrib_boolean_mask: data is {tuple(data.shape)} and index {tuple(index.shape)}, "
                f"expected index of ({data.shape[0]},)"
            )
        return data[index.detach() != 0]

    return boolean_mask


def _getnnz_shape(a: Any, dims: tuple[int, ...]) -> Shape:
    if len(dims) != 2:
        raise ShapeError(f"_contrib_getnnz: data has shape {dims}, expected a matrix")
    return (1,) if a.axis is None else (dims[1 - normal_axis(a.axis, 2)],)


@bound(
    "_contrib_getnnz",
    [arg("data")],
    {"axis": Attr(optional(integer()), "0 counts each column, 1 each row, None all", None)},
    infer=forward(_getnnz_shape),
    infer_type=typed(lambda a: "int64"),
    batch=NEVER,
    onnx=Onnx(builder="getnnz"),
)
def getnnz(a: Any) -> Tensors:
    """Count the stored elements of a CSR matrix, or those of a dense one that are not 0. No gradient.

    Shape:
        data: (M, N).
        returns: (1,), or (N,) for axis 0, or (M,) for axis 1; int64.

    Source: MXNet 1.9.1 `_contrib_getnnz`, which has no axis 0.
    """
    axis = a.axis

    def getnnz(x: torch.Tensor) -> torch.Tensor:
        _getnnz_shape(a, tuple(x.shape))
        return torch.count_nonzero(x).reshape(1) if axis is None else torch.count_nonzero(x, axis)

    return getnnz


def _edge_id_shape(a: Any, data: tuple[int, ...], u: tuple[int, ...], v: tuple[int, ...]) -> Shape:
    if len(data) != 2 or len(u) != 1 or u != v:
        raise ShapeError(f"_contrib_edge_id: data is {data}, u {u} and v {v}, expected (M, N), (K,) and (K,)")
    return u


def _edge_id_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = ins[0] or outs[0]
    return [found, *(t or "int64" for t in ins[1:])], [found]


@bound(
    "_contrib_edge_id",
    [arg("data"), arg("u"), arg("v")],
    infer=forward(_edge_id_shape),
    infer_type=_edge_id_types,
    batch=NEVER,
    onnx=Onnx(builder="edge_id"),
)
def edge_id(a: Any) -> Tensors:
    """Return the elements of a graph's CSR matrix at pairs of nodes, and -1 where none is stored. No gradient.

    Shape:
        data: (M, N); in a dense matrix 0 counts as not stored.
        u: (K,): row numbers.
        v: (K,): column numbers.
        returns: (K,).

    Source: MXNet 1.9.1 `_contrib_edge_id`.
    """

    def edge_id(data: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        found = data.detach()[u.long(), v.long()]
        return torch.where(found == 0, -torch.ones_like(found), found)

    return edge_id
