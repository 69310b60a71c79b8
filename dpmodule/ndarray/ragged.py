"""`RaggedNDArray`: rows of different lengths in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, DTypeError, ShapeError
from ..context import Context
from ..ops.dtypes import name_of
from ..ops.sparse import Ragged
from . import tape
from .convert import dtype_pair, pickled, to_numpy, unpickled
from .creation import array as dense_array
from .handle import Handle
from .ndarray import NDArray
from .op_functions import as_context

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..types import ArrayLike, ContextLike, DTypeLike, IndexLike

Tensor = torch.Tensor
_ALL = slice(None)
_SHOWN = 6
"""Number of rows that `repr` shows at each end."""


class RaggedNDArray(NDArray):
    """Rows of different lengths: row i is ``values[offsets[i]:offsets[i + 1]]``. Made by `nd.ragged_array`.

    Its shape is (N,) and the trailing axes of its values; it does not contain the row lengths. Operators that work row
    by row run on the values; others raise, as ragged arrays are never converted implicitly: use `values` or `padded`.

    Args:
        values: the elements of all rows, (T, ...); shared.
        offsets: position of each row among them, (N + 1,) int64 on the same device; shared.
        ctx: context of the arrays.

    Raises:
        ShapeError: the arrays are inconsistent.

    Example:
        >>> a = mx.nd.ragged_array([5.0, 6.0, 7.0], [0, 2, 2, 3])
        >>> a.shape, a[0].asnumpy(), a.lengths.asnumpy()
        ((3,), array([5., 6.], dtype=float32), array([2, 0, 1]))
    """

    __slots__ = ("stored",)

    stored: Ragged  # an attribute instead of a property, for speed

    stype = "ragged"

    def __init__(self, values: Tensor, offsets: Tensor, ctx: Context) -> None:
        if not values.dim() or offsets.dim() != 1 or not offsets.shape[0]:
            raise ShapeError(
                f"ragged array: values have shape {tuple(values.shape)} and offsets {tuple(offsets.shape)}, expected "
                "(T, ...) and (N + 1,)"
            )
        self._hold(Ragged(values, offsets), ctx)

    def _hold(self, record: Ragged, ctx: Context) -> None:
        self.context, self.pinned, self.trace = ctx, False, None
        self.stored = record
        record.home = ref(self)

    # --- for the library

    @classmethod
    def of_record(cls, record: Ragged, ctx: Context) -> RaggedNDArray:
        """Return an operator's result as an array; memory is shared.

        Args:
            ctx: context of the result.
        """
        found = cls.__new__(cls)
        found._hold(record, ctx)
        return found

    @classmethod
    def zeros(cls, shape: Sequence[int], ctx: Context, dtype: torch.dtype) -> RaggedNDArray:
        """Return an array of empty rows.

        Args:
            shape: (rows, ...); after the first axis the shape of one element.
            ctx: context of the result.
        """
        device = ctx.torch_device
        values = torch.zeros((0, *shape[1:]), dtype=dtype, device=device)
        return cls(values, torch.zeros(shape[0] + 1, dtype=torch.int64, device=device), ctx)

    def take_over(self, record: Ragged) -> None:
        """Replace the content by an operator's result of this array's shape; memory is shared.

        Args:
            record: the result, on this array's device.
        """
        self.stored = record.detach()
        self.stored.home = ref(self)
        variable = tape.variable_of(self)
        if variable is not None:  # the gradient has the rows of the array
            variable.grad.take_over(self._zeros_record())  # type: ignore[attr-defined]
            tape.mark(self, variable.grad, variable.request)

    def _zeros_record(self) -> Ragged:
        return self.stored.replaced(torch.zeros_like(self.stored.values))

    @property
    def raw(self) -> Tensor:
        """Raise: rows of different lengths are not a dense tensor."""
        self._refuse("dense form")

    @raw.setter
    def raw(self, tensor: Tensor) -> None:
        self._refuse("dense form")

    def overwrite(self, values: Tensor) -> NoReturn:
        self._refuse("dense form")

    def _refuse(self, name: str) -> NoReturn:
        """Raise for an attribute that ragged arrays lack."""
        raise ArgumentError(
            f"a ragged array has no {name}; use .values, .padded() or a row, or make dense rows with sequence_pool"
        )

    # --- parts

    @property
    def values(self) -> NDArray:
        """Elements of all rows, (T, ...); memory is shared. Inside ``autograd.record()`` it is differentiable."""
        made = NDArray(self.stored.values, self.context, pinned=True)
        made.trace = self.trace
        return made

    @property
    def offsets(self) -> NDArray:
        """Position of each row among the values, and the number of values: (N + 1,) int64; a copy."""
        return NDArray(self.stored.offsets.clone(), self.context)

    @property
    def lengths(self) -> NDArray:
        """Lengths of the rows, (N,) int64; a copy."""
        return NDArray(self.stored.lengths().clone(), self.context)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def ndim(self) -> int:
        return len(self.stored.shape)

    @property
    def size(self) -> int:
        return self.stored.values.numel()

    @property
    def dtype(self) -> Any:
        return NDArray(self.stored.values, self.context).dtype

    def __len__(self) -> int:
        return self.stored.shape[0]

    def __getitem__(self, key: IndexLike) -> NDArray:
        """Return one row as a dense array, or a slice of rows without step as a ragged one.

        Memory is shared.
        """
        rows = len(self)
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            if not -rows <= key < rows:
                raise BoundsError(f"row {key} is outside of a ragged array with {rows} rows")
            first, last = self.stored.offsets[key % rows : key % rows + 2].tolist()
            return NDArray(self.stored.values[first:last], self.context, pinned=True)
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise ArgumentError(f"ragged arrays take a row or a slice of rows without step, got {key!r}")
        begin, end, _ = key.indices(rows)
        return RaggedNDArray.of_record(self.stored.range(begin, max(begin, end)), self.context)

    def __setitem__(self, key: IndexLike, value: Handle | ArrayLike) -> None:
        """Write all rows: ``array[:] = other``, a ragged array of this shape, whose rows may have other lengths."""
        if not (type(key) is slice and key == _ALL) or not isinstance(value, RaggedNDArray):
            raise ArgumentError(
                "ragged arrays can only be written completely, as array[:] = nd.ragged_array(values, offsets), got "
                f"[{key!r}] = {type(value).__name__}"
            )
        value.copyto(self)

    def rows(self, numbers: Tensor) -> RaggedNDArray:
        """Return rows by number, in this order, as a new array.

        Args:
            numbers: row numbers, (M,) int64, each within the array.
        """
        picked = self.stored.pick(numbers.to(self.stored.device))
        return RaggedNDArray.of_record(picked, self.context)

    def tolist(self) -> list[Any]:
        values, offsets = to_numpy(self.stored.values), to_numpy(self.stored.offsets)
        return [values[first:last].tolist() for first, last in zip(offsets, offsets[1:])]

    def padded(self, value: float = 0, length: int | None = None) -> NDArray:
        """Return the rows as a dense array, padded at their ends.

        Args:
            value: padding value.
            length: length of the rows, at least that of the longest row; None means that.

        Returns:
            (N, length, ...).

        Raises:
            ArgumentError: `length` is less than that of the longest row.
        """
        record = self.stored
        longest = int(record.lengths().max()) if len(self) else 0
        if length is not None and length < longest:
            raise ArgumentError(f"padded: length is {length}, expected at least {longest}, the longest row's")
        wide = longest if length is None else length
        found = record.values.new_full((len(self), wide, *self.shape[1:]), value)
        rows = record.row_numbers()
        places = torch.arange(rows.numel(), device=rows.device) - record.offsets.index_select(0, rows)
        found[rows, places] = record.values
        return NDArray(found, self.context)

    @staticmethod
    def joined(arrays: Sequence[NDArray], axis: int = 0) -> RaggedNDArray:
        """Return the concatenated rows of several arrays.

        Args:
            arrays: one ragged array or more, of equal types and trailing axes.
            axis: 0, the only axis along which ragged arrays can be joined.

        Raises:
            ArgumentError: `axis` is not 0, or an array is not ragged.
            ShapeError: their trailing axes differ.
        """
        ragged = [array for array in arrays if isinstance(array, RaggedNDArray)]
        if axis or len(ragged) < len(arrays):
            kinds = ", ".join(array.stype for array in arrays)
            raise ArgumentError(
                f"concatenate: axis is {axis} for arrays stored as {kinds}, expected axis 0 and ragged arrays only"
            )
        if len({array.shape[1:] for array in ragged}) > 1:
            shapes = ", ".join(str(array.shape) for array in ragged)
            raise ShapeError(
                f"cannot join ragged arrays of shapes {shapes}, expected equal axes after the first"
            )
        records = [array.stored.to(ragged[0].context.torch_device) for array in ragged]
        lengths = torch.cat([records[0].offsets[:1], *(record.lengths() for record in records)])
        values = torch.cat([record.values for record in records])
        return RaggedNDArray(values, lengths.cumsum(0), ragged[0].context)

    # --- copies, types and contexts

    def copy(self) -> RaggedNDArray:
        return RaggedNDArray.of_record(self.stored.clone(), self.context)

    def detach(self) -> RaggedNDArray:
        return RaggedNDArray.of_record(self.stored.detach(), self.context)

    def copyto(self, other: Handle | ContextLike) -> Any:
        if isinstance(other, (Context, torch.device)):
            where = as_context(other)
            return RaggedNDArray.of_record(self.stored.to(where.torch_device).clone(), where)
        if not isinstance(other, RaggedNDArray):
            kind = other.stype if isinstance(other, Handle) else type(other).__name__
            raise DTypeError(f"copyto: the target of a ragged array is {kind}, expected ragged, or a Context")
        if other.shape != self.shape:
            raise ShapeError(f"copyto: the target has shape {other.shape}, expected {self.shape}")
        own = other.stored
        moved = self.stored.to(own.device)
        other.take_over(moved.replaced(moved.values.to(own.dtype, copy=True)))
        return other

    def as_in_context(self, context: ContextLike) -> RaggedNDArray:
        where = as_context(context)
        return self if where == self.context else self.copyto(where)

    def astype(self, dtype: DTypeLike, copy: bool = True) -> RaggedNDArray:
        wanted = dtype_pair(dtype)[1]
        if not copy and wanted == self.stored.dtype:
            return self
        values = self.stored.values.to(wanted, copy=True)
        return RaggedNDArray.of_record(self.stored.replaced(values), self.context)

    def tostype(self, stype: str) -> NDArray:
        if stype == self.stype:
            return self
        raise ArgumentError(f"a ragged array has no {stype!r} form; use .values or .padded()")

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        if stype not in (None, self.stype):
            raise ArgumentError(f"attach_grad: stype is {stype!r}, expected 'ragged' for a ragged array")
        tape.mark(self, RaggedNDArray.of_record(self._zeros_record(), self.context), grad_req)

    def asnumpy(self) -> NoReturn:
        self._refuse("asnumpy()")

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Raise: rows of different lengths are not a NumPy array."""
        self._refuse("form for NumPy")

    def wait_to_read(self) -> None:
        NDArray(self.stored.values, self.context).wait_to_read()

    wait_to_write = wait_to_read

    def __repr__(self) -> str:
        rows = len(self)
        cut = rows > 2 * _SHOWN
        shown = [*range(_SHOWN), *range(rows - _SHOWN, rows)] if cut else range(rows)
        lines = [f" {np.array2string(to_numpy(self[i].raw), prefix=' ', threshold=20)}" for i in shown]
        if cut:
            lines.insert(_SHOWN, " ...")
        body = "\n".join(lines)
        name = f"{type(self).__name__} {'x'.join(map(str, self.shape))}"
        return f"\n[{body[1:]}]\n<{name}, {self.stored.values.shape[0]} values @{self.context}>"

    def __reduce__(self) -> tuple[Any, ...]:
        values, offsets = self.stored.values, to_numpy(self.stored.offsets)
        return _unpickle, (pickled(values), offsets, name_of(values.dtype), self.context)


def numbers_of(array: NDArray) -> Tensor:
    """Return the values of a dense array, or of all rows of a ragged one; memory is shared."""
    return array.stored.values if isinstance(array, RaggedNDArray) else array.raw


def _unpickle(
    values: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], dtype: str, ctx: Context
) -> RaggedNDArray:
    """Return an unpickled array; pickle calls it."""
    return RaggedNDArray(unpickled(values.copy(), dtype, ctx), unpickled(offsets.copy(), "int64", ctx), ctx)


def ragged_array(
    values: ArrayLike,
    offsets: ArrayLike | None = None,
    ctx: ContextLike | None = None,
    dtype: DTypeLike = None,
) -> RaggedNDArray:
    """Create a ragged array from values and offsets, or from a list of rows.

    Args:
        values: elements of all rows, (T, ...), in any form that `nd.array` accepts; tensors and NDArrays keep their
            type and are not copied. Without `offsets`, a list of rows in such forms.
        offsets: position of each row among them, and T at the end: N + 1 non-descending integers from 0, which
            are copied.
        ctx: the context; None means that of the values if they are an NDArray, else the current one.
        dtype: element type; None keeps that of an array of NumPy, torch or this package; Python numbers become int64
            if all are integers, else float32.

    Raises:
        ArgumentError: the offsets do not begin at 0, end elsewhere than at T, or descend.
        ShapeError: values or offsets do not have these shapes, or rows have different trailing axes.
        DTypeError: the values are not numbers, or the offsets are not integers.

    Example:
        >>> mx.nd.ragged_array([[1, 2], [], [3]]).tolist()
        [[1, 2], [], [3]]
    """
    where = as_context(ctx) if ctx is not None or not isinstance(values, NDArray) else values.context
    if offsets is None:
        values, offsets = _joined(values, where, dtype)
    tensor = _tensor(values, where, dtype)
    starts = _offsets(offsets, tensor)
    return RaggedNDArray(tensor, starts, where)


def _tensor(values: ArrayLike, ctx: Context, dtype: DTypeLike) -> Tensor:
    """Return values as a tensor on a context's device, sharing memory if possible."""
    if isinstance(values, NDArray):
        tensor = values.raw
    elif isinstance(values, torch.Tensor):
        tensor = values.detach()
    else:
        tensor = dense_array(values, ctx, _kept_type(values) if dtype is None else dtype).raw
    wanted = tensor.dtype if dtype is None else dtype_pair(dtype)[1]
    return tensor.to(ctx.torch_device, wanted)


def _kept_type(values: ArrayLike) -> Any:
    """Return the type of a NumPy array, int64 for Python integers, None for others."""
    if isinstance(values, np.ndarray):
        return values.dtype
    return np.int64 if np.size(values) and np.asarray(values).dtype.kind in "iub" else None


def _joined(rows: ArrayLike, ctx: Context, dtype: DTypeLike) -> tuple[Tensor, Tensor]:
    """Return the values and offsets of a list of rows."""
    if not isinstance(rows, (list, tuple)) or not rows:
        given = "an empty list" if isinstance(rows, (list, tuple)) else type(rows).__name__
        raise ArgumentError(f"ragged_array: without offsets, values are {given}, expected a list of rows")
    tensors = [_tensor(row, ctx, dtype) for row in rows]
    full = [tensor for tensor in tensors if tensor.dim() > 1 or tensor.numel()]
    trailing = full[0].shape[1:] if full else torch.Size()
    if any(t.shape[1:] != trailing for t in full) or any(not t.dim() for t in tensors):
        shapes = sorted({tuple(tensor.shape) for tensor in tensors})
        raise ShapeError(f"ragged_array: rows have the shapes {shapes}, expected equal axes after the first")
    lengths = torch.tensor([0, *(t.shape[0] for t in tensors)], device=ctx.torch_device)
    return torch.cat(full) if full else tensors[0].new_zeros(0), lengths.cumsum(0)


def _offsets(offsets: ArrayLike, values: Tensor) -> Tensor:
    """Return checked offsets as int64 on the values' device."""
    raw = offsets.raw if isinstance(offsets, NDArray) else torch.as_tensor(offsets)
    if raw.dim() != 1 or not raw.numel():
        raise ShapeError(f"ragged_array: offsets have shape {tuple(raw.shape)}, expected (N + 1,)")
    if raw.is_floating_point() and bool((raw != raw.floor()).any()):
        raise DTypeError(
            f"ragged_array: offsets are {name_of(raw.dtype)} numbers with fractions, expected integers"
        )
    starts = raw.to(values.device, torch.int64, copy=True)  # writes to the given ones would not be checked
    count = values.shape[0] if values.dim() else 0
    if int(starts[0]) != 0 or int(starts[-1]) != count:
        raise ArgumentError(
            f"ragged_array: offsets go from {int(starts[0])} to {int(starts[-1])}, expected 0 to {count}, the number "
            "of values"
        )
    if bool((starts.diff() < 0).any()):
        raise ArgumentError("ragged_array: offsets must not descend")
    return starts


Handle.of_records["ragged"] = RaggedNDArray.of_record
