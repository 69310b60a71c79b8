"""Creation of sparse arrays, and arithmetic that depends on storage types.

Source: MXNet 1.9.1 `ndarray.sparse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base import ArgumentError, ShapeError, integer_types
from ..context import Context
from ..ops import get
from . import operators
from .convert import dtype_pair, host_array, wanted_shape
from .csr import CSRNDArray
from .execution import execute
from .handle import Handle, Operand
from .ndarray import NDArray
from .op_dispatch import plan_for
from .op_functions import as_context
from .row_sparse import RowSparseNDArray
from .sparse_base import BaseSparseNDArray, alike

if TYPE_CHECKING:
    from typing import TypeGuard

    from ..types import ArrayLike, ContextLike, DTypeLike, ShapeLike


_KINDS: dict[str, type[RowSparseNDArray] | type[CSRNDArray]] = {
    "row_sparse": RowSparseNDArray,
    "csr": CSRNDArray,
}


def is_scipy(value: object) -> TypeGuard[Any]:
    """Return True if `value` is a sparse matrix of SciPy, without importing SciPy."""
    return type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocsr")


def _tensor(source: Handle | ArrayLike, dtype: DTypeLike, where: Context) -> torch.Tensor:
    """Return values as a new tensor; without a dtype, arrays keep theirs and lists become float32."""
    if dtype is None and isinstance(source, (Handle, np.ndarray)):
        dtype = source.dtype
    name, wanted = dtype_pair(dtype)
    if isinstance(source, Handle):
        return source.raw.to(where.torch_device, wanted, copy=True, memory_format=torch.contiguous_format)
    return torch.from_numpy(host_array(source, name)).to(where.torch_device, wanted)


def _check_shape(found: Sequence[int], wanted: ShapeLike | None) -> None:
    """Check a shape against the requested one, if any."""
    if wanted is not None and tuple(found) != wanted_shape(wanted):
        raise ShapeError(f"the values have shape {tuple(found)}, but shape is {wanted_shape(wanted)}")


def row_sparse_array(
    arg1: ArrayLike, shape: ShapeLike | None = None, ctx: ContextLike | None = None, dtype: DTypeLike = None
) -> RowSparseNDArray:
    """Return a new row-sparse array.

    Args:
        arg1: ``(data, indices)``, the rows and their numbers; or a row-sparse array; or any argument of `nd.array`,
            whose zero rows are left out; or a shape, for an empty array.
        shape: lengths of the axes; None keeps those of `arg1`, or as many rows as ``(data, indices)`` needs.
        ctx: context of the result; None means the current context.
        dtype: element type; None keeps that of an array and means float32 for lists.

    Raises:
        ShapeError: data, indices and shape are inconsistent, or the shape is unknown.
        ArgumentError: `arg1` is a CSR array, or a tuple of one.

    Example:
        >>> a = mx.nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 4]), shape=(6, 2))
        >>> a.indices.asnumpy()
        array([1, 4])
    """
    where = as_context(ctx)
    if isinstance(arg1, tuple):
        if len(arg1) < 2:
            raise ArgumentError(f"row_sparse_array: {arg1!r} is neither (data, indices) nor a shape")
        if len(arg1) == 2 and not all(isinstance(part, integer_types) for part in arg1):
            return _row_sparse_of_parts(*arg1, shape, where, dtype)
        _check_shape(wanted_shape(arg1), shape)
        return RowSparseNDArray.zeros(wanted_shape(arg1), where, dtype_pair(dtype)[1])
    if isinstance(arg1, CSRNDArray) or is_scipy(arg1):
        raise ArgumentError(
            f"row_sparse_array does not accept a {type(arg1).__name__}; convert with tostype('default') first"
        )
    if isinstance(arg1, RowSparseNDArray):
        _check_shape(arg1.shape, shape)
        return _converted(arg1, where, dtype)  # type: ignore[return-value]  # of the same class
    dense = NDArray(_tensor(arg1, dtype, where), where)
    _check_shape(dense.shape, shape)
    return RowSparseNDArray.from_dense(dense)


def _row_sparse_of_parts(
    data: ArrayLike, indices: ArrayLike, shape: ShapeLike | None, where: Context, dtype: DTypeLike
) -> RowSparseNDArray:
    """Create an array from rows and their numbers."""
    values, rows = _tensor(data, dtype, where), _tensor(indices, "int64", where)
    if shape is None:
        if not rows.numel():
            raise ShapeError("row_sparse_array: the shape is unknown without any row; pass shape=")
        shape = (max(int(rows.max()), 0) + 1, *values.shape[1:])
    dims = wanted_shape(shape)
    if 0 in dims[1:]:
        raise ShapeError(f"row_sparse_array: rows of shape {dims[1:]} have no elements")
    if not rows.numel() and not values.numel():
        values = values.reshape(0, *dims[1:])
    return RowSparseNDArray(values, rows, dims, where)


def csr_matrix(
    arg1: ArrayLike, shape: ShapeLike | None = None, ctx: ContextLike | None = None, dtype: DTypeLike = None
) -> CSRNDArray:
    """Return a new matrix in compressed sparse row form.

    Args:
        arg1: ``(data, indices, indptr)``; or ``(data, (rows, columns))``, where duplicates are added; or a CSR
            array or sparse matrix of SciPy; or any argument of `nd.array`, whose zeros are left out; or
            ``(rows, columns)``, for an empty matrix.
        shape: (rows, columns); None keeps those of `arg1`, or as many columns as the parts need.
        ctx: context of the result; None means the current context.
        dtype: element type; None keeps that of an array and means float32 for lists.

    Raises:
        ShapeError: the parts are inconsistent, or the shape is unknown.
        ArgumentError: `arg1` is a row-sparse array, or a tuple of another length.
    """
    where = as_context(ctx)
    if isinstance(arg1, tuple):
        return _csr_of_tuple(arg1, shape, where, dtype)
    if isinstance(arg1, RowSparseNDArray):
        raise ArgumentError(
            "csr_matrix does not accept a RowSparseNDArray; convert with tostype('default') first"
        )
    if is_scipy(arg1):
        _check_shape(arg1.shape, shape)
        return _csr_of_scipy(arg1, where, dtype)
    if isinstance(arg1, CSRNDArray):
        _check_shape(arg1.shape, shape)
        return _converted(arg1, where, dtype)  # type: ignore[return-value]  # of the same class
    dense = NDArray(_tensor(arg1, dtype, where), where)
    _check_shape(dense.shape, shape)
    return CSRNDArray.from_dense(dense)


def _csr_of_tuple(
    parts: tuple[Any, ...], shape: ShapeLike | None, where: Context, dtype: DTypeLike
) -> CSRNDArray:
    """Create a matrix from its parts, from coordinates, or from its shape."""
    if len(parts) == 3:
        data, indices, indptr = parts
        values = _tensor(data, dtype, where)
        columns, starts = _tensor(indices, "int64", where), _tensor(indptr, "int64", where)
        if shape is None:
            if not columns.numel():
                raise ShapeError("csr_matrix: the shape is unknown without any element; pass shape=")
            shape = (starts.numel() - 1, int(columns.max()) + 1)
        return CSRNDArray(values, columns, starts, wanted_shape(shape), where)
    if len(parts) != 2:
        raise ArgumentError(f"csr_matrix takes a tuple of 2 or 3, got {len(parts)} parts")
    if isinstance(parts[1], tuple):
        return _csr_of_coordinates(parts[0], parts[1], shape, where, dtype)
    dims = wanted_shape(parts)
    _check_shape(dims, shape)
    return CSRNDArray.zeros(dims, where, dtype_pair(dtype)[1])


def _csr_of_coordinates(
    data: ArrayLike, coordinates: tuple[Any, ...], shape: ShapeLike | None, where: Context, dtype: DTypeLike
) -> CSRNDArray:
    """Create a matrix from elements and their coordinates; duplicates are added."""
    values = _tensor(data, dtype, where)
    row, column = (_tensor(numbers, "int64", where) for numbers in coordinates)
    if shape is None:
        if not row.numel():
            raise ShapeError("csr_matrix: the shape is unknown without any element; pass shape=")
        shape = (int(row.max()) + 1, int(column.max()) + 1)
    height, width = wanted_shape(shape)
    if row.numel() and (int(row.max()) >= height or int(column.max()) >= width):
        raise ShapeError(f"csr_matrix: a coordinate is outside of shape {(height, width)}")
    places, inverse = torch.unique(row * width + column, return_inverse=True)
    total = values.new_zeros(places.numel()).index_add_(0, inverse, values)
    starts = places.new_zeros(height + 1)
    starts[1:] = (places // max(width, 1)).bincount(minlength=height).cumsum(0)
    return CSRNDArray(total, places % max(width, 1), starts, (height, width), where)


def _csr_of_scipy(matrix: Any, where: Context, dtype: DTypeLike) -> CSRNDArray:
    csr = matrix.tocsr(copy=True)
    csr.sum_duplicates()  # also sorts
    parts = (np.asarray(csr.data), np.asarray(csr.indices), np.asarray(csr.indptr))
    return _csr_of_tuple(parts, csr.shape, where, dtype)


def _converted(source: BaseSparseNDArray, where: Context, dtype: DTypeLike) -> BaseSparseNDArray:
    """Return a copy in a context and of a type; None keeps the type."""
    copied: BaseSparseNDArray = source.copyto(where)
    return copied if dtype is None else copied.astype(dtype, copy=False)


def array(
    source_array: ArrayLike, ctx: ContextLike | None = None, dtype: DTypeLike = None
) -> BaseSparseNDArray:
    """Return a copy of a sparse array, or of a sparse matrix of SciPy.

    Args:
        source_array: array to copy.
        ctx: context of the result; None means the current context.
        dtype: element type; None means the source's.

    Raises:
        ArgumentError: it is neither; use `nd.array`, or `tostype`.
    """
    if is_scipy(source_array):
        return _csr_of_scipy(source_array, as_context(ctx), dtype)
    if not isinstance(source_array, BaseSparseNDArray):
        kind = type(source_array).__name__
        raise ArgumentError(
            f"sparse.array takes a sparse array, got a {kind}; use nd.array(x).tostype(stype)"
        )
    return _converted(source_array, as_context(ctx), dtype)


def zeros(
    stype: str, shape: ShapeLike, ctx: ContextLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> NDArray:
    """Return an array of zeros; a sparse one stores no elements.

    Args:
        stype: "row_sparse", "csr" or "default".
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.
        kwargs: `name`, ignored.

    Raises:
        ArgumentError: there is no such storage type.
        ShapeError: a CSR array does not have two axes, or a sparse array has none.
    """
    where, dims, wanted = as_context(ctx), wanted_shape(shape), dtype_pair(dtype)[1]
    if set(kwargs) - {"name"}:
        raise ArgumentError(f"sparse.zeros: unknown arguments {', '.join(kwargs)}")
    if stype == "default":
        return NDArray(torch.zeros(dims, dtype=wanted, device=where.torch_device), where)
    if stype not in _KINDS:
        raise ArgumentError(f"stype is {stype!r}, expected 'row_sparse', 'csr' or 'default'")
    if not dims or (stype == "csr" and len(dims) != 2):
        raise ShapeError(f"a {stype} array cannot have shape {dims}")
    return _KINDS[stype].zeros(dims, where, wanted)


def empty(stype: str, shape: ShapeLike, ctx: ContextLike | None = None, dtype: DTypeLike = None) -> NDArray:
    """Return a sparse array without stored elements; arguments as in `zeros`, except "default".

    Args:
        stype: "row_sparse" or "csr".
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.

    Raises:
        ArgumentError: there is no such sparse storage type.
    """
    if stype not in _KINDS:
        raise ArgumentError(f"stype is {stype!r}, expected 'row_sparse' or 'csr'")
    return zeros(stype, shape, ctx, dtype)


def cast_storage(data: NDArray, stype: str, out: NDArray | None = None, name: str | None = None) -> NDArray:
    """Return an array in another storage type.

    Args:
        stype: "default", "row_sparse" or "csr"; sparse types cannot be converted to each other.
        out: array of that type and of the same shape to write.
        name: accepted as in MXNet.

    Raises:
        ArgumentError: there is no such type or conversion, or `out` has another type.
    """
    if stype not in ("default", *_KINDS):
        raise ArgumentError(f"stype is {stype!r}, expected 'row_sparse', 'csr' or 'default'")
    if out is not None and out.stype != stype:
        raise ArgumentError(f"cast_storage: out is {out.stype}, expected {stype}")
    made: NDArray = execute(plan_for(get("cast_storage"), {"stype": stype}, 1), (data,), None, out)
    return made


# arithmetic: elementwise for arrays of one shape, else with broadcasting


def add(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs + rhs; either may be an array or a number. Two arrays of one storage type give that type.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_add", operators.add, lhs, rhs)


def subtract(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs - rhs; either may be an array or a number. Two arrays of one storage type give that type.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_sub", operators.subtract, lhs, rhs)


def multiply(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs * rhs; either may be an array or a number. The product with a sparse array is sparse.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_mul", operators.multiply, lhs, rhs)


def divide(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs / rhs; either may be an array or a number. A sparse array divided by a number stays sparse.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_div", operators.divide, lhs, rhs)
