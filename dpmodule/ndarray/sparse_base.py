"""Base of sparse arrays, which store some of their elements and behave like full arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast
from weakref import ref

import numpy as np
import torch

from ..base import ArgumentError, DTypeError, NotSupportedForSparseNDArray, OutOfMemoryError, ShapeError
from ..context import Context
from ..ops import get
from ..ops.dtypes import name_of
from ..ops.shapes import prod
from .convert import dtype_pair, is_number, tensor_of, to_numpy
from .execution import execute
from .handle import Handle, Operand
from .ndarray import NDArray, converted
from .op_dispatch import plan_for
from .op_functions import as_context
from .operators import ADD, DIV, MUL, SUB

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Self

    from ..types import ArrayLike, ContextLike, DTypeLike, IndexLike

_ALL = slice(None)


def alike(name: str, otherwise: Callable[[Any, Any], Any], lhs: Operand, rhs: Operand) -> Any:
    """Run an operator on two arrays of one shape; pass other operands to another function.

    The broadcasting operators support fewer storage types.
    """
    if isinstance(lhs, Handle) and isinstance(rhs, Handle) and lhs.shape == rhs.shape:
        return execute(plan_for(get(name), {}, 2), (lhs, rhs))
    return otherwise(lhs, rhs)


class BaseSparseNDArray(NDArray):
    """An array that stores some of its elements; the others are zero.

    Operators without a sparse form read a temporary dense copy and return dense arrays. Sparse arrays have no views:
    `data` and the index arrays are copies, and ``[:]`` is the only key for reading and writing.

    Source: MXNet 1.9.1 `BaseSparseNDArray`.
    """

    __slots__ = ("_checked", "_record")

    def _hold(self, record: Any, ctx: Context, checked: bool) -> None:
        """Initialize the array with a record, which it owns from now on.

        Args:
            checked: True if the record is known to be sorted and all indices are within the array.
        """
        self.context, self.pinned, self.trace = ctx, False, None
        self._record, self._checked = record, checked
        record.home = ref(self)

    @classmethod
    def of_record(cls, record: Any, ctx: Context) -> Self:
        """Return an operator's result as an array; memory is shared.

        Args:
            record: sorted; the array owns it from now on.
            ctx: context of the record.
        """
        found = cls.__new__(cls)
        found._hold(record, ctx, True)
        return found

    def take_over(self, record: Any) -> None:
        """Replace the content by an operator's result of the same shape.

        Args:
            record: on this array's device; the array owns it from now on.
        """
        self._record, self._checked = record, True
        record.home = ref(self)

    @property
    def stored(self) -> Any:
        """Value that operators read: the sorted record; shared."""
        if not self._checked:
            self._check()
            self._checked = True
        return self._record

    @property
    def values(self) -> torch.Tensor:
        """Stored elements, for library code; users read `data`."""
        found: torch.Tensor = self._record.values
        return found

    def replaced(self, values: torch.Tensor, ctx: Context | None = None) -> Self:
        """Return an array that stores other values at the same positions.

        Args:
            values: as many as are stored; shared.
            ctx: context of the values; None means this array's.
        """
        found = type(self).__new__(type(self))
        record = self._record.to(values.device).replaced(values)
        found._hold(record, ctx or self.context, self._checked)
        return found

    # --- defined by subclasses

    @classmethod
    def from_dense(cls, array: Handle) -> BaseSparseNDArray:
        """Return a dense array in this storage type; it stores the elements that are not zero.

        Args:
            array: dense.
        """
        raise NotImplementedError

    def _check(self) -> None:
        """Sort the record, and check that all indices are within the array."""
        raise NotImplementedError

    def check_format(self, full_check: bool = True) -> None:
        """Check the index arrays.

        Args:
            full_check: True to check every index; False to check only lengths.

        Raises:
            ArgumentError: they are invalid.
        """
        raise NotImplementedError

    def check_bounds(self) -> None:
        """Check that all indices are within the array.

        Raises:
            ArgumentError: an index is not.
        """
        raise NotImplementedError

    # --- methods of `Handle`

    def dense(self) -> torch.Tensor:
        """Return all elements as a new dense tensor."""
        record = self.stored
        try:
            found: torch.Tensor = record.dense()
            return found.clone() if found is record.values else found
        except RuntimeError as error:  # includes torch.cuda.OutOfMemoryError
            size = self.size * self.values.itemsize
            what = f"a dense copy of a {self.stype} {self.shape} array, which needs {size} bytes"
            raise OutOfMemoryError.of(what, error) from None

    def assign(self, other: Handle) -> None:
        """Copy another array of the same shape, converted to this one's type and device.

        Args:
            other: an array of any storage type.
        """
        own = self.values
        record = (other if isinstance(other, type(self)) else self.from_dense(other)).stored.to(own.device)
        self.take_over(record.replaced(record.values.to(own.dtype, copy=True)))

    @property
    def raw(self) -> torch.Tensor:
        """All elements as a new dense tensor; writing to it does not change the array."""
        return self.dense()

    @raw.setter
    def raw(self, tensor: torch.Tensor) -> None:
        self.overwrite(tensor)

    def overwrite(self, values: torch.Tensor) -> None:
        self.assign(NDArray(values, self.context))

    @property
    def shape(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self._record.shape
        return found

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def dtype(self) -> Any:
        return NDArray(self.values, self.context).dtype

    @property
    def data(self) -> NDArray:
        """Stored elements; a copy."""
        return NDArray(self.values.clone(), self.context)

    def wait_to_read(self) -> None:
        NDArray(self.values, self.context).wait_to_read()

    wait_to_write = wait_to_read

    # --- copies, types and contexts

    def copy(self) -> BaseSparseNDArray:
        return self.replaced(self.values.clone())

    def detach(self) -> BaseSparseNDArray:
        return self.replaced(self.values)

    def copyto(self, other: Handle | ContextLike) -> Any:
        if isinstance(other, (Context, torch.device)):
            where = as_context(other)
            return self.replaced(self.values.to(where.torch_device, copy=True), where)
        if not isinstance(other, Handle):
            raise DTypeError(f"copyto takes an NDArray or a Context, got {type(other).__name__}")
        if other is self:
            warnings.warn(
                "copyto: source and target are the same array; nothing is copied",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        if other.stype not in ("default", self.stype):
            raise DTypeError(f"copyto: the target is {other.stype}, expected default or {self.stype}")
        if other.shape != self.shape:
            raise ShapeError(f"copyto: the target has shape {other.shape}, expected {self.shape}")
        if isinstance(other, BaseSparseNDArray):
            other.assign(self)
        else:
            other.overwrite(self.dense())
        return other

    def astype(self, dtype: DTypeLike, copy: bool = True) -> BaseSparseNDArray:
        wanted = dtype_pair(dtype)[1]
        if not copy and wanted == self.values.dtype:
            return self
        return self.replaced(self.values.to(wanted, copy=True))

    def tostype(self, stype: str) -> NDArray:
        if stype == "default":
            return converted(self, stype, lambda array: NDArray(array.dense(), array.context))
        if stype == self.stype:
            return converted(self, stype, type(self).copy)
        if stype in self.casts:
            raise ArgumentError(
                f"cast_storage from {self.stype} to {stype} is not supported; convert with tostype('default') first"
            )
        known = ", ".join(map(repr, ("default", *sorted(self.casts, reverse=True))))
        raise ArgumentError(f"stype is {stype!r}, expected one of {known}")

    # --- values for Python and NumPy

    def asnumpy(self) -> np.ndarray[Any, Any]:
        return to_numpy(self.dense())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return all elements as a dense NumPy array, which is always a copy."""
        if copy is False:
            raise ValueError(f"a {self.stype} array cannot be converted to a NumPy array without a copy")
        array = self.asnumpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"\n<{type(self).__name__} {'x'.join(map(str, self.shape))} @{self.context}>"

    # --- parts

    def __getitem__(self, key: IndexLike) -> NDArray:
        """Return the array itself for ``[:]``."""
        if type(key) is slice and key == _ALL:
            return self
        raise ArgumentError(f"{type(self).__name__} only supports [:], got {key!r}; use tostype('default')")

    def __setitem__(self, key: IndexLike, value: Handle | ArrayLike) -> None:
        """Write all elements: ``array[:] = value``.

        Args:
            key: ``[:]``, the only key of sparse arrays.
            value: an array of the same shape, a NumPy array, or, for row-sparse arrays, a number.
        """
        if not (type(key) is slice and key == _ALL):
            raise ArgumentError(f"{type(self).__name__} only supports [:] for assignment, got {key!r}")
        if value is self:
            return
        if is_number(value):
            self.fill(cast("float", value))
            return
        source: Handle
        if isinstance(value, Handle):
            source = value
        elif isinstance(value, np.ndarray):
            dtype = self.values.dtype
            source = NDArray(tensor_of(value, dtype, name_of(dtype), self.values.device), self.context)
        else:
            raise DTypeError(
                f"cannot write a {type(value).__name__} into a sparse array; expected an NDArray or a NumPy array"
            )
        if source.shape != self.shape:
            raise ShapeError(f"the value has shape {source.shape}, expected {self.shape}")
        self.assign(source)

    def fill(self, number: float) -> None:
        """Set all elements to one number.

        Args:
            number: new value of every element.

        Raises:
            ArgumentError: the storage type cannot hold it.
        """
        raise ArgumentError(f"a number cannot be written into a {self.stype} array")

    # --- arithmetic

    def __add__(self, other: Operand) -> Any:
        return alike("elemwise_add", ADD.right, self, other)

    def __sub__(self, other: Operand) -> Any:
        return alike("elemwise_sub", SUB.right, self, other)

    def __mul__(self, other: Operand) -> Any:
        return alike("elemwise_mul", MUL.right, self, other)

    def __truediv__(self, other: Operand) -> Any:
        return alike("elemwise_div", DIV.right, self, other)

    def __iadd__(self, other: Operand) -> Any:
        return self._become(self + other)

    def __isub__(self, other: Operand) -> Any:
        return self._become(self - other)

    def __imul__(self, other: Operand) -> Any:
        return self._become(self * other)

    def __itruediv__(self, other: Operand) -> Any:
        return self._become(self / other)

    def __imod__(self, other: Operand) -> Any:
        return self._become(self % other)

    def _become(self, result: object) -> Any:
        if isinstance(result, Handle):
            self[:] = result
            return self
        return result

    # --- operations that need shared memory

    def _refuse(self, name: str) -> NoReturn:
        """Raise for an operation that sparse arrays lack."""
        raise NotSupportedForSparseNDArray(name)

    def _view(self, tensor: torch.Tensor) -> NoReturn:
        self._refuse("views")

    def _derive(self, name: str, function: Callable[[torch.Tensor], torch.Tensor], view: bool) -> NDArray:
        if view:
            self._refuse("views")
        return super()._derive(name, function, False)

    def reshape(self, *shape: Any, **kwargs: Any) -> NoReturn:
        self._refuse("reshape")

    def torch(self) -> NoReturn:
        self._refuse("torch()")

    def __dlpack__(self, **options: Any) -> NoReturn:
        self._refuse("__dlpack__")

    def __dlpack_device__(self) -> NoReturn:
        self._refuse("__dlpack_device__")


def fetched(array: Any) -> Any:
    """Return an array in this process: itself, unless other processes keep rows of it."""
    return array.fetched() if hasattr(array, "fetched") else array


def clear(array: Handle) -> None:
    """Set all elements to zero; a sparse array then stores no elements, so that optimizers update none."""
    if array.stype == "default":
        array.raw.zero_()
    else:
        array.take_over(array.stored.emptied())  # type: ignore[attr-defined]
