"""`CSRNDArray`: a matrix of which some elements are stored, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, OutOfMemoryError, ShapeError
from ..context import Context
from ..ops.dtypes import name_of
from ..ops.sparse import Csr
from .convert import dtype_pair, to_numpy
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
        starts: where each row begins among them, (rows + 1,) int64 on the same device; shared.
        shape: (rows, columns).
        ctx: where the parts lie.

    Raises:
        ShapeError: these do not fit each other.

    Example:
        >>> a = mx.nd.array([[0, 1], [2, 0]]).tostype("csr")
        >>> a.data.asnumpy(), a.indices.asnumpy(), a.indptr.asnumpy()
        (array([1., 2.], dtype=float32), array([1, 0]), array([0, 1, 2]))

    Source: MXNet 1.9.1 `CSRNDArray`.
    """

    __slots__ = ("_checked", "_columns", "_starts")

    stype = "csr"

    def __init__(
        self, values: Tensor, columns: Tensor, starts: Tensor, shape: Sequence[int], ctx: Context
    ) -> None:
        if len(shape) != 2 or values.dim() != 1 or values.shape != columns.shape:
            raise ShapeError(
                f"csr array of shape {tuple(shape)}: data of shape {tuple(values.shape)} and indices of shape "
                f"{tuple(columns.shape)}, expected two axes and one index per element"
            )
        if tuple(starts.shape) != (shape[0] + 1,):
            raise ShapeError(f"csr array of shape {tuple(shape)}: indptr has shape {tuple(starts.shape)}")
        super().__init__(values, shape, ctx)
        self._columns, self._starts, self._checked = columns, starts, False

    @classmethod
    def from_dense(cls, array: Handle) -> CSRNDArray:
        """Return the matrix with those elements stored that are not zero.

        Args:
            array: (rows, columns), dense.

        Raises:
            ShapeError: the array has not two axes.
        """
        tensor = array.raw
        if tensor.dim() != 2:
            raise ShapeError(f"csr arrays have two axes, this array has shape {tuple(tensor.shape)}")
        return cls.of_record(Csr.of_dense(tensor), array.context)

    @classmethod
    def zeros(cls, shape: Sequence[int], ctx: Context, dtype: torch.dtype) -> CSRNDArray:
        """Return a matrix that stores nothing.

        Args:
            shape: (rows, columns).
            ctx: where to put it.

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
        """A copy of the stored elements' columns, int64."""
        return NDArray(self._columns.clone(), self.context)

    @property
    def indptr(self) -> NDArray:
        """A copy of the rows' beginnings among the stored elements, int64; the last entry is their number."""
        return NDArray(self._starts.clone(), self.context)

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows' beginnings, the columns and the elements; shared, not copied.

        Raises:
            BoundsError: a column is outside the matrix.
            ArgumentError: the rows' beginnings make no sense.
        """
        self.check_bounds()
        return self._starts, self._columns, self.values

    @classmethod
    def of_record(cls, record: Csr, ctx: Context) -> CSRNDArray:
        """Return a matrix of what an operator made; parts are shared.

        Args:
            ctx: on which they are.
        """
        found = cls(record.values, record.columns, record.starts, record.shape, ctx)
        found._checked = True
        return found

    @property
    def stored(self) -> Csr:
        found = Csr(*self.parts(), self._shape)
        found.home = ref(self)
        return found

    def take_over(self, record: Csr) -> None:
        self.values, self._columns, self._starts = record.values, record.columns, record.starts
        self._checked = True

    def check_bounds(self) -> None:
        if self._checked:
            return
        starts, columns, stored = self._starts, self._columns, self.values.numel()
        if int(starts[0]) != 0 or int(starts[-1]) != stored:
            raise ArgumentError(
                f"csr array: indptr goes from {int(starts[0])} to {int(starts[-1])}, expected 0 to {stored}"
            )
        if bool((starts.diff() < 0).any()):
            raise ArgumentError("csr array: indptr must not descend")
        if stored and not 0 <= int(columns.min()) <= int(columns.max()) < self._shape[1]:
            raise BoundsError(f"csr array: a column index is outside of {self._shape[1]} columns")
        self._checked = True

    def check_format(self, full_check: bool = True) -> None:
        starts, columns, _ = self.parts()
        if not full_check:
            return
        firsts = torch.zeros(columns.numel() + 1, dtype=torch.bool, device=columns.device)
        firsts[starts] = True
        if bool(((columns.diff() <= 0) & ~firsts[1 : columns.numel()]).any()):
            raise ArgumentError("csr array: the indices of a row must be ascending and all different")

    def replaced(self, values: Tensor, ctx: Context | None = None) -> CSRNDArray:
        columns, starts = (part.to(values.device, copy=True) for part in (self._columns, self._starts))
        return CSRNDArray(values, columns, starts, self._shape, ctx or self.context)

    def __getitem__(self, key: IndexLike) -> NDArray:
        """Return rows as a new matrix: one by its number, or a slice without step."""
        rows = self._shape[0]
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
        """Return rows by number, in the order given, as a new matrix.

        Args:
            numbers: which, (N,) int64, each within the matrix.
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

    def __reduce__(self) -> tuple[Any, ...]:
        dtype = self.values.dtype
        bits = self.values.view(torch.int16) if dtype == torch.bfloat16 else self.values
        parts = (to_numpy(bits), to_numpy(self._columns), to_numpy(self._starts))
        return _unpickle, (parts, name_of(dtype), self._shape, self.context)


def _unpickle(
    parts: tuple[np.ndarray[Any, Any], ...], dtype: str, shape: tuple[int, ...], ctx: Context
) -> CSRNDArray:
    """Make the matrix that was pickled; called by pickle."""
    values, columns, starts = (torch.from_numpy(part.copy()).to(ctx.check().torch_device) for part in parts)
    if dtype_pair(dtype)[1] == torch.bfloat16:
        values = values.view(torch.bfloat16)
    return CSRNDArray(values, columns, starts, shape, ctx)


Handle.casts["csr"] = CSRNDArray.from_dense
Handle.of_records["csr"] = CSRNDArray.of_record
