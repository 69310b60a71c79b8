"""Index arrays and ranges, comparisons, replaced and masked rows, elements of sparse matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..._devices.device_transfer import extremes
from ...base import BoundsError, OpError, Shape, ShapeError
from ..attrs import boolean, integer, optional, real, shape, string
from ..registry import bound, pure
from ..shapes import first_type, forward, normal_axis, output_shape, typed, unify
from ..spec import NEVER, Attr, Onnx, Shapes, Types, Variadic, arg

_pure, _bound = partial(pure, batch=NEVER), partial(bound, batch=NEVER)

Tensors = Callable[..., torch.Tensor]


def _infer_allclose(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    both = unify(ins[0], ins[1], "inputs of _contrib_allclose")
    return [both, both], [()]


@_pure(
    "_contrib_allclose",
    [arg("a"), arg("b")],
    {
        "rtol": Attr(real, "relative tolerance", 1e-05),
        "atol": Attr(real, "absolute tolerance", 1e-08),
        "equal_nan": Attr(boolean, "treat NaN as equal to NaN", True),
    },
    infer=_infer_allclose,
    infer_type=typed(lambda a: "uint8"),
)
def allclose(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return 1 if ``|a - b| <= atol + rtol * |b|`` everywhere, else 0. No gradient.

    Shape:
        a, b: one shape.
        returns: (), uint8.

    Source: MXNet 1.9.1 `_contrib_allclose`; NumPy `allclose`.
    """
    rtol, atol, equal_nan = a.rtol, a.atol, a.equal_nan
    return torch.isclose(left, right, rtol, atol, equal_nan).all().to(torch.uint8)


def _all_finite(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    flags = [torch.isfinite(t).all() for t in tensors]
    return torch.stack(flags).all().reshape(1).to(torch.float32)


def _infer_one_number(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, [output_shape(outs[0], (1,))]


_INIT = Attr(boolean, "accepted; the result never depends on the old value of `out`", True)


@_bound(
    "all_finite",
    [arg("data")],
    {"init_output": _INIT},
    infer=_infer_one_number,
    infer_type=typed(lambda a: "float32"),
)
def all_finite(a: Any) -> Tensors:
    """Return 1 if all elements are finite, else 0. No gradient.

    Shape:
        data: any.
        returns: (1,), float32.

    Source: MXNet 1.9.1 `all_finite`.
    """
    return lambda data: _all_finite((data,))


@_bound(
    "multi_all_finite",
    attrs={
        "num_arrays": Attr(integer(low=1), "number of inputs; set by the call", 1),
        "init_output": _INIT,
    },
    variadic=Variadic("array_", "num_arrays"),
    infer=_infer_one_number,
    infer_type=typed(lambda a: "float32"),
    onnx=Onnx(builder="all_finite"),
)
def multi_all_finite(a: Any) -> Tensors:
    """Return 1 if all elements of all inputs are finite, else 0. No gradient.

    Shape:
        array_0, array_1, ...: any.
        returns: (1,), float32.

    Source: MXNet 1.9.1 `multi_all_finite`.
    """
    return lambda *tensors: _all_finite(tensors)


@_pure(
    "_contrib_index_array",
    [arg("data")],
    {"axes": Attr(optional(shape), "axes whose indices are returned; None: all", None)},
    infer=forward(lambda a, dims: (*dims, len(dims) if a.axes is None else len(a.axes))),
    infer_type=typed(lambda a: "int64"),
)
def index_array(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return each element's indices along the axes. No gradient.

    Shape:
        data: (d0, d1, ...); only its shape matters.
        returns: (d0, d1, ..., number of axes), int64.

    Source: MXNet 1.9.1 `_contrib_index_array`.
    """
    axes = a.axes
    axis_numbers = range(x.dim()) if axes is None else [normal_axis(i, x.dim(), "axes") for i in axes]
    if not x.dim():
        return torch.empty((0,), dtype=torch.int64, device=x.device)
    lines = [torch.arange(n, device=x.device) for n in x.shape]
    grids = torch.meshgrid(*lines, indexing="ij")
    return torch.stack([grids[i] for i in axis_numbers], -1)


def _arange_like_shape(a: Any, dims: tuple[int, ...]) -> Shape:
    return dims if a.axis is None else (dims[normal_axis(a.axis, len(dims))],)


@_pure(
    "_contrib_arange_like",
    [arg("data")],
    {
        "start": Attr(real, "first value", 0.0),
        "step": Attr(real, "difference of consecutive values", 1.0),
        "repeat": Attr(integer(low=1), "number of times each value is repeated", 1),
        "ctx": Attr(string, "accepted; the result is on the data's device", ""),
        "axis": Attr(optional(integer()), "axis whose length is used; None: the whole shape", None),
    },
    infer=forward(_arange_like_shape),
)
def arange_like(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return evenly spaced values in the shape of an array or along one of its axes. No gradient.

    Shape:
        data: (d0, d1, ...); only shape and type matter.
        returns: the same shape, or (d_axis,); the type of `data`.

    Example:
        >>> mx.nd.contrib.arange_like(mx.nd.zeros((2, 3)), axis=1, start=1).asnumpy()
        array([1., 2., 3.], dtype=float32)

    Source: MXNet 1.9.1 `_contrib_arange_like`.
    """
    start, step, repeat = a.start, a.step, a.repeat
    dims = _arange_like_shape(a, tuple(x.shape)) or ()
    values = torch.arange(math.prod(dims), device=x.device)
    if repeat > 1:
        values = values.div(repeat, rounding_mode="floor")
    if (start, step) != (0.0, 1.0):
        values = start + values.double() * step
    return values.to(x.dtype).reshape(dims)


def _infer_index_copy(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    old = unify(ins[0], outs[0], "old_tensor and the result of _contrib_index_copy")
    return [old, ins[1], ins[2]], [old]


def _index_copy_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = ins[0] or ins[2] or outs[0]
    return [dtype, ins[1] or "float32", dtype], [dtype]


@_pure(
    "_contrib_index_copy",
    [arg("old_tensor"), arg("index_vector"), arg("new_tensor")],
    infer=_infer_index_copy,
    infer_type=_index_copy_types,
)
def index_copy(a: Any, old: torch.Tensor, index: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Return an array with some of its rows replaced.

    Shape:
        old_tensor: (N, ...).
        index_vector: (K,): indices of the rows to replace, integers; no gradient.
        new_tensor: (K, ...): the new rows.
        returns: (N, ...).

    Raises:
        BoundsError: a row index is out of range.

    Source: MXNet 1.9.1 `_contrib_index_copy`.
    """
    rows = index.detach().long()
    if rows.dim() != 1 or new.shape != (rows.numel(), *old.shape[1:]):
        raise ShapeError(
            f"_contrib_index_copy: index_vector is {tuple(index.shape)} and new_tensor {tuple(new.shape)}, "
            f"expected (K,) and (K, *{tuple(old.shape[1:])})"
        )
    least, most = extremes(rows) if rows.numel() else (0, -1)
    if least < 0 or most >= old.shape[0]:
        raise BoundsError(
            f"_contrib_index_copy: index_vector ranges from {least} to {most}, expected 0 to {old.shape[0] - 1}"
        )
    return old.index_copy(0, rows, new)


def _infer_boolean_mask(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, index = ins
    if data is not None:
        index = unify(index, data[:1], "index and the first axis of data of _contrib_boolean_mask")
    return [data, index], outs


@_bound(
    "_contrib_boolean_mask",
    [arg("data"), arg("index")],
    {"axis": Attr(integer(), "axis of the rows; only 0", 0)},
    infer=_infer_boolean_mask,
    infer_type=first_type(),
    onnx=Onnx("Compress", const={"axis": 0}, builder="boolean_mask"),
)
def boolean_mask(a: Any) -> Tensors:
    """Return the rows whose index is not 0; their number is known only after the operator has run.

    Shape:
        data: (N, ...).
        index: (N,); its gradient is 0.
        returns: (number of index elements that are not 0, ...).

    Source: MXNet 1.9.1 `_contrib_boolean_mask`.
    """
    if a.axis != 0:
        raise OpError(f"_contrib_boolean_mask: axis is {a.axis}, expected 0, the only supported axis")

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


@_pure(
    "_contrib_getnnz",
    [arg("data")],
    {"axis": Attr(optional(integer()), "0 counts each column, 1 each row, None all", None)},
    infer=forward(_getnnz_shape),
    infer_type=typed(lambda a: "int64"),
)
def getnnz(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Count the stored elements of a CSR matrix, or the nonzero elements of a dense one. No gradient.

    Shape:
        data: (M, N).
        returns: (1,), or (N,) for axis 0, or (M,) for axis 1; int64.

    Source: MXNet 1.9.1 `_contrib_getnnz`, which has no axis 0.
    """
    axis = a.axis
    _getnnz_shape(a, tuple(x.shape))
    return torch.count_nonzero(x).reshape(1) if axis is None else torch.count_nonzero(x, axis)


def _edge_id_shape(a: Any, data: tuple[int, ...], u: tuple[int, ...], v: tuple[int, ...]) -> Shape:
    if len(data) != 2 or len(u) != 1 or u != v:
        raise ShapeError(f"_contrib_edge_id: data is {data}, u {u} and v {v}, expected (M, N), (K,) and (K,)")
    return u


@_pure(
    "_contrib_edge_id",
    [arg("data"), arg("u"), arg("v")],
    infer=forward(_edge_id_shape),
    infer_type=first_type("int64"),
)
def edge_id(a: Any, data: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the elements of a graph's CSR matrix at pairs of nodes, or -1 if none is stored. No gradient.

    Shape:
        data: (M, N); in a dense matrix 0 counts as not stored.
        u: (K,): row numbers.
        v: (K,): column numbers.
        returns: (K,).

    Source: MXNet 1.9.1 `_contrib_edge_id`.
    """
    values = data.detach()[u.long(), v.long()]
    return torch.where(values == 0, -torch.ones_like(values), values)
