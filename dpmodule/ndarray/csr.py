"""`CSRNDArray`: a sparse matrix in compressed row storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, DTypeError, OutOfMemoryError, ShapeError
from ..context import Context
from ..ops.dtypes import name_of
from ..ops.sparse import Csr
from .convert import pickled, to_numpy, unpickled
from .handle import Handle
from .ndarray import NDArray
from .sparse_base import BaseSparseNDArray

if TYPE_CHECKING:
    from ..types import IndexLike

Tensor = torch.Tensor


class CSRNDArray(BaseSparseNDArray):
    """A matrix in compressed sparse row form.

    Row i stores ``data[indptr[i]:indptr[i + 1]]`` in the columns ``indices[indptr[i]:indptr[i + 1]]``. Made by
    `nd.sparse.csr_matrix`, or from a dense matrix with ``tostype('csr')``.

    Args:
        values: the stored elements, (E,); shared.
        columns: their columns, (E,) int64 on the same device; shared.
        starts: position of each row among them, (rows + 1,) int64 on the same device; shared.
        shape: (rows, columns).
        ctx: context of the arrays.

    Raises:
        ShapeError: the arrays are inconsistent.

    Example:
        >>> a = mx.nd.array([[0, 1], [2, 0]]).tostype("csr")
        >>> a.data.asnumpy(), a.indices.asnumpy(), a.indptr.asnumpy()
        (array([1., 2.], dtype=float32), array([1, 0]), array([0, 1, 2]))

    Source: MXNet 1.9.1 `CSRNDArray`.
    """

    __slots__ = ()

    stype = "csr"

    def __init__(
        self,
        values: Tensor | None,
        columns: Tensor | None = None,
        starts: Tensor | None = None,
        shape: Sequence[int] = (),
        ctx: Context | None = None,
    ) -> None:
        if values is None:  # in pickles of MXNet, before `__setstate__`
            return
        if columns is None or starts is None or ctx is None:
            raise ArgumentError("CSRNDArray: expected values, columns, starts, shape and ctx")
        if len(shape) != 2 or values.dim() != 1 or values.shape != columns.shape:
            raise ShapeError(
                f"csr array of shape {tuple(shape)}: data of shape {tuple(values.shape)} and indices of shape "
                f"{tuple(columns.shape)}, expected two axes and one index per element"
            )
        if tuple(starts.shape) != (shape[0] + 1,):
            raise ShapeError(f"csr array of shape {tuple(shape)}: indptr has shape {tuple(starts.shape)}")
        self._hold(Csr(starts, columns, values, shape), ctx, False)

    @classmethod
    def from_dense(cls, array: Handle) -> CSRNDArray:
        """Return a matrix that stores the elements that are not zero.

        Args:
            array: (rows, columns), dense.

        Raises:
            ShapeError: the array does not have two axes.
        """
        tensor = array.raw
        if tensor.dim() != 2:
            raise ShapeError(f"csr arrays have two axes, this array has shape {tuple(tensor.shape)}")
        return cls.of_record(Csr.of_dense(tensor), array.context)

    @classmethod
    def zeros(cls, shape: Sequence[int], ctx: Context, dtype: torch.dtype) -> CSRNDArray:
        """Return an empty matrix.

        Args:
            shape: (rows, columns).
            ctx: context of the result.

        Raises:
            OutOfMemoryError: there are too many rows.
        """
        device = ctx.torch_device
        columns = torch.empty(0, dtype=torch.int64, device=device)
        try:
            starts = torch.zeros(shape[0] + 1, dtype=torch.int64, device=device)
        except RuntimeError as error:
            raise OutOfMemoryError.of(
                f"the row starts of a csr array of shape {tuple(shape)}", error
            ) from error
        return cls(torch.empty(0, dtype=dtype, device=device), columns, starts, shape, ctx)

    @property
    def _aux_types(self) -> list[Any]:
        return [np.int64, np.int64]

    @property
    def indices(self) -> NDArray:
        """Columns of the stored elements, int64; a copy."""
        return NDArray(self._record.columns.clone(), self.context)

    @property
    def indptr(self) -> NDArray:
        """Position of each row among the stored elements, int64; the last entry is their number; a copy."""
        return NDArray(self._record.starts.clone(), self.context)

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the row positions, the columns and the elements; shared, not copied.

        Raises:
            BoundsError: a column is outside the matrix.
            ArgumentError: the row positions are invalid.
        """
        record = self.stored
        return record.starts, record.columns, record.values

    def _check(self) -> None:
        self.check_bounds()

    def check_bounds(self) -> None:
        if self._checked:
            return
        starts, columns, stored = self._record.starts, self._record.columns, self.values.numel()
        if int(starts[0]) != 0 or int(starts[-1]) != stored:
            raise ArgumentError(
                f"csr array: indptr goes from {int(starts[0])} to {int(starts[-1])}, expected 0 to {stored}"
            )
        if bool((starts.diff() < 0).any()):
            raise ArgumentError("csr array: indptr must not descend")
        if stored and not 0 <= int(columns.min()) <= int(columns.max()) < self.shape[1]:
            raise BoundsError(f"csr array: a column index is outside of {self.shape[1]} columns")
        self._checked = True

    def check_format(self, full_check: bool = True) -> None:
        starts, columns, _ = self.parts()
        if not full_check:
            return
        firsts = torch.zeros(columns.numel() + 1, dtype=torch.bool, device=columns.device)
        firsts[starts] = True
        if bool(((columns.diff() <= 0) & ~firsts[1 : columns.numel()]).any()):
            raise ArgumentError("csr array: the indices of a row must be ascending and all different")

    def __getitem__(self, key: IndexLike) -> NDArray:
        """Return one row or a slice of rows without step as a new matrix."""
        rows = self.shape[0]
        if isinstance(key, int):
            if not -rows <= key < rows:
                raise BoundsError(f"row {key} is outside of an array with {rows} rows")
            key = slice(key % rows, key % rows + 1)
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise ArgumentError(f"csr arrays take a row or a slice of rows without step, got {key!r}")
        if key.start is None and key.stop is None:
            return self
        begin, end, _ = key.indices(rows)
        return CSRNDArray.of_record(self.stored.range(begin, max(begin, end)).clone(), self.context)

    def rows(self, numbers: Tensor) -> CSRNDArray:
        """Return rows by number, in this order, as a new matrix.

        Args:
            numbers: row numbers, (N,) int64, each within the matrix.
        """
        return CSRNDArray.of_record(self.stored.pick(numbers.to(self.values.device)), self.context)

    def asscipy(self) -> Any:
        """Return a copy as a `scipy.sparse.csr_matrix`.

        Raises:
            ImportError: SciPy is not installed.
        """
        from scipy.sparse import csr_matrix  # type: ignore[import-untyped,unused-ignore]

        parts = (self.data.asnumpy(), self.indices.asnumpy(), self.indptr.asnumpy())
        return csr_matrix(parts, shape=self.shape, dtype=self.dtype)

    def _restore(self, values: Tensor, indices: list[Tensor], shape: tuple[int, ...]) -> None:
        if len(indices) != 2:
            raise DTypeError("the pickled array is not in csr storage")
        CSRNDArray.__init__(self, values, indices[1], indices[0], shape, Context("cpu", 0))
        self.check_bounds()

    def __reduce__(self) -> tuple[Any, ...]:
        record = self._record
        parts = (pickled(record.values), to_numpy(record.columns), to_numpy(record.starts))
        return _unpickle, (parts, name_of(record.values.dtype), record.shape, self.context)


def _unpickle(
    parts: tuple[np.ndarray[Any, Any], ...], dtype: str, shape: tuple[int, ...], ctx: Context
) -> CSRNDArray:
    """Return an unpickled matrix; pickle calls it."""
    values = unpickled(parts[0].copy(), dtype, ctx)
    columns, starts = (unpickled(part.copy(), "int64", ctx) for part in parts[1:])
    return CSRNDArray(values, columns, starts, shape, ctx)


Handle.casts["csr"] = CSRNDArray.from_dense
Handle.of_records["csr"] = CSRNDArray.of_record
