"""`RowSparseNDArray`: an array that stores some of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, DTypeError, ShapeError
from ..context import Context
from ..ops.dtypes import name_of
from ..ops.shapes import HASHED_ROWS
from ..ops.sparse import RowSparse, add_rows, as_rows
from .convert import pickled, to_numpy, unpickled
from .execution import lazy_rules
from .handle import Handle
from .ndarray import NDArray
from .sparse_base import BaseSparseNDArray

if TYPE_CHECKING:
    from ..types import ArrayLike


Tensor = torch.Tensor


class RowSparseNDArray(BaseSparseNDArray):
    """An array that stores some of its rows (slices along the first axis); the others are zero.

    Gradients of embeddings have this form. Created by `nd.sparse.row_sparse_array`, or from a dense array with
    ``tostype('row_sparse')``.

    Args:
        values: the stored rows, (R, ...); shared.
        rows: their numbers, (R,) int64 on the same device; shared.
        shape: lengths of all axes.
        ctx: context of the arrays.
        tidy: True if `rows` is known to be strictly ascending and within `shape`.

    Raises:
        ShapeError: values, rows and shape are inconsistent.

    Example:
        >>> a = mx.nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2))
        >>> a
        <BLANKLINE>
        <RowSparseNDArray 4x2 @cpu(0)>
        >>> a.asnumpy()
        array([[1., 2.],
               [0., 0.],
               [3., 4.],
               [0., 0.]], dtype=float32)

    Source: MXNet 1.9.1 `RowSparseNDArray`.
    """

    __slots__ = ()

    stype = "row_sparse"

    def __init__(
        self,
        values: Tensor | None,
        rows: Tensor | None = None,
        shape: Sequence[int] = (),
        ctx: Context | None = None,
        tidy: bool = False,
    ) -> None:
        if values is None:  # in pickles of MXNet, before `__setstate__`
            return
        if rows is None or ctx is None:
            raise ArgumentError("RowSparseNDArray: expected values, rows, shape and ctx")
        wanted = (rows.numel(), *shape[1:])
        if not len(shape) or rows.dim() != 1 or tuple(values.shape) != wanted:
            raise ShapeError(
                f"row_sparse array of shape {tuple(shape)}: {tuple(rows.shape)} indices and data of shape "
                f"{tuple(values.shape)}, expected data of shape {wanted}"
            )
        self._hold(RowSparse(rows, values, shape), ctx, tidy)

    @classmethod
    def from_dense(cls, array: Handle) -> RowSparseNDArray:
        """Return an array that stores the rows that are not all zero.

        Args:
            array: (rows, ...), dense.

        Raises:
            ShapeError: the array has no axes.
        """
        tensor = array.raw
        if not tensor.dim():
            raise ShapeError("an array without axes has no rows to store")
        return cls.of_record(as_rows(tensor), array.context)

    @classmethod
    def zeros(cls, shape: Sequence[int], ctx: Context, dtype: torch.dtype) -> RowSparseNDArray:
        """Return an array without stored rows.

        Args:
            shape: (rows, ...).
            ctx: context of the result.
        """
        device = ctx.torch_device
        values = torch.empty((0, *shape[1:]), dtype=dtype, device=device)
        return cls(values, torch.empty(0, dtype=torch.int64, device=device), shape, ctx, True)

    @property
    def _aux_types(self) -> list[Any]:
        return [np.int64]

    @property
    def indices(self) -> NDArray:
        """Numbers of the stored rows, int64; a copy."""
        return NDArray(self._record.rows.clone(), self.context)

    def parts(self) -> tuple[Tensor, Tensor]:
        """Return the strictly ascending numbers of the stored rows, and the rows; shared, not copied.

        Raises:
            BoundsError: a row is outside the array.
            ArgumentError: a row is stored twice.
        """
        record = self.stored
        return record.rows, record.values

    def _check(self) -> None:
        record = self._record
        order = record.rows.argsort()
        sorted_rows, values = record.rows.index_select(0, order), record.values.index_select(0, order)
        self._hold(RowSparse(sorted_rows, values, record.shape), self.context, False)
        self.check_format()

    def check_format(self, full_check: bool = True) -> None:
        if not full_check or self._checked:
            return
        self.check_bounds()
        rows = self._record.rows
        wrong = rows[1:] <= rows[:-1]
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            first, second = rows[at : at + 2].tolist()
            what = f"holds row {first} twice" if first == second else f"has row {second} after {first}"
            raise ArgumentError(f"row_sparse array: indices must be ascending; this one {what}")

    def check_bounds(self) -> None:
        rows = self._record.rows
        if self._checked or not rows.numel() or self.shape[0] == HASHED_ROWS:  # ids of any 64 bits
            return
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= self.shape[0]:
            raise BoundsError(
                f"row_sparse array: index {low if low < 0 else high} is outside of its {self.shape[0]} rows"
            )

    def fill(self, number: float) -> None:
        values = self.values.new_full(self.shape, number)
        self.take_over(RowSparse(torch.arange(self.shape[0], device=values.device), values, self.shape))

    def retain(self, indices: ArrayLike) -> RowSparseNDArray:
        """Return an array that stores only some rows.

        Args:
            indices: row numbers in any order, as an NDArray or a list; rows that are not stored become zeros, unless
                the array stores none.

        Raises:
            BoundsError: a row is outside the array.
        """
        wanted = self.row_numbers(indices)
        if not self._record.rows.numel():
            wanted = wanted[:0]
        return RowSparseNDArray(rows_of(self, wanted), wanted, self.shape, self.context, True)

    def row_numbers(self, indices: ArrayLike) -> Tensor:
        """Return a user's row numbers as strictly ascending int64 on this array's device.

        Args:
            indices: numbers of rows, in any order.

        Raises:
            BoundsError: a row is outside the array.
            DTypeError: `indices` does not hold numbers.
        """
        return row_numbers(indices, self.shape[0]).to(self.values.device)

    def _restore(self, values: Tensor, indices: list[Tensor], shape: tuple[int, ...]) -> None:
        if len(indices) != 1:
            raise DTypeError("the pickled array is not in row_sparse storage")
        RowSparseNDArray.__init__(self, values, indices[0], shape, Context("cpu", 0))
        self.check_bounds()

    def __reduce__(self) -> tuple[Any, ...]:
        values, rows = self.values, to_numpy(self._record.rows)
        return _unpickle, (pickled(values), name_of(values.dtype), rows, self.shape, self.context)


def _unpickle(
    values: np.ndarray[Any, Any], dtype: str, rows: np.ndarray[Any, Any], shape: tuple[int, ...], ctx: Context
) -> RowSparseNDArray:
    """Return an unpickled array; pickle calls it."""
    return RowSparseNDArray(
        unpickled(values.copy(), dtype, ctx), unpickled(rows.copy(), "int64", ctx), shape, ctx
    )


def distinct_rows(indices: ArrayLike) -> Tensor:
    """Return a user's row numbers as strictly ascending int64, without checking bounds.

    Args:
        indices: an NDArray or a list, in any order and shape.
    """
    try:
        given = indices.raw if isinstance(indices, Handle) else torch.as_tensor(np.asarray(indices))
    except TypeError as error:
        raise DTypeError(f"row numbers are {indices!r}, expected integers: {error}") from None
    found: Tensor = torch.unique(given.to(torch.int64))
    return found


def row_numbers(indices: ArrayLike, count: int) -> Tensor:
    """Return a user's row numbers as strictly ascending int64.

    Args:
        indices: an NDArray or a list, in any order and shape.
    """
    found = distinct_rows(indices)
    if found.numel() and not 0 <= int(found[0]) <= int(found[-1]) < count:
        wrong = int(found[0]) if int(found[0]) < 0 else int(found[-1])
        raise BoundsError(f"row {wrong} is outside of an array with {count} rows")
    return found


def rows_of(array: Handle, rows: Tensor) -> Tensor:
    """Return rows of any array as a new tensor.

    Args:
        array: dense or row-sparse; rows that it does not store are zeros.
        rows: row numbers, int64 on its device, within its shape.
    """
    return array.stored.pick(rows) if isinstance(array, RowSparseNDArray) else array.raw.index_select(0, rows)


def sum_rows(arrays: Sequence[RowSparseNDArray], ctx: Context | None = None) -> RowSparseNDArray:
    """Return the sum of row-sparse arrays of one shape and type; it stores the rows that any of them stores.

    Args:
        arrays: at least one; added in this order.
        ctx: context of the sum; None means that of the first array.
    """
    where = ctx or arrays[0].context
    records = [array.stored.to(where.torch_device) for array in arrays]
    return RowSparseNDArray.of_record(add_rows(records), where)


Handle.casts["row_sparse"] = RowSparseNDArray.from_dense
Handle.of_records["row_sparse"] = RowSparseNDArray.of_record


# update operators with a row-sparse gradient only update the rows that it stores


def _write_rows(array: Handle, rows: Tensor, values: Tensor) -> None:
    """Write rows of a dense or row-sparse array in place; the latter stores them from now on."""
    if not isinstance(array, RowSparseNDArray):
        array.raw.index_copy_(0, rows, values)
        return
    stored, kept = array.parts()
    if stored.numel() == array.shape[0]:
        kept.index_copy_(0, rows, values)
        return
    old = kept[~torch.isin(stored, rows)], stored[~torch.isin(stored, rows)]
    parts = [RowSparseNDArray(v, r, array.shape, array.context) for v, r in (old, (values, rows))]
    array.assign(sum_rows(parts))


def _update_rows(a: Any, arrays: Sequence[Any], run: Callable[..., Tensor], out: Handle | None) -> Any:
    """Run an update on the rows that a row-sparse gradient stores; return None if all rows must be updated.

    That is so for other gradients, with ``lazy_update=False``, and if states and weight have different storage types.

    Args:
        out: array for the new weight, often the weight; None creates a new array.
    """
    weight, grad, *states = arrays
    is_lazy = getattr(a, "lazy_update", True) and all(each.stype == weight.stype for each in states)
    if not isinstance(grad, RowSparseNDArray) or not is_lazy:
        return None
    rows, values = grad.parts()
    picked, *kept = [rows_of(each, rows) for each in (weight, *states)]
    new = run(picked, values, *kept)
    for state, changed in zip(states, kept, strict=True):
        _write_rows(state, rows, changed)
    target = weight.copy() if out is None else out
    if target is not weight and out is not None:
        weight.copyto(target)
    _write_rows(target, rows, new)
    return target


def _update_sparse(a: Any, arrays: Sequence[Any], run: Callable[..., Tensor], out: Handle | None) -> Any:
    """Run an update that updates all rows of dense weights."""
    return _update_rows(a, arrays, run, out) if arrays[0].stype == "row_sparse" else None


lazy_rules["ftrl_update"] = _update_sparse
lazy_rules.update(
    dict.fromkeys(
        (
            "sgd_update",
            "sgd_mom_update",
            "adam_update",
            "_sparse_adagrad_update",
            "_contrib_group_adagrad_update",
        ),
        _update_rows,
    )
)
