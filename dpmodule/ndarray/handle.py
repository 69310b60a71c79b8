"""`Handle`: base of all arrays, with a tensor, its context, and whether the tensor may be replaced."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch

from ..base import ArgumentError, np_dtype
from ..context import Context
from ..ops.dtypes import name_of
from ..ops.sparse import Sparse
from ..ops.write_tracking import expose

if TYPE_CHECKING:
    from ..types import Number

_NUMPY_TYPES: dict[torch.dtype, Any] = {}


def _numpy_type(dtype: torch.dtype) -> Any:
    """Return the NumPy scalar type of a torch dtype (the name for "bfloat16", which NumPy lacks)."""
    found = _NUMPY_TYPES.get(dtype)
    if found is None:
        found = _NUMPY_TYPES[dtype] = np_dtype(name_of(dtype))
    return found


# arrays whose number was handed out, see `Handle._as_parameter_`
_numbered: WeakValueDictionary[int, Handle] = WeakValueDictionary()


def _of_number(number: object) -> Handle:
    """Return the array of a number from `Handle._as_parameter_`.

    None, with which arrays in MXNet's pickles begin, makes an empty one.
    """
    if number is None:
        return Handle(torch.empty(0), Context("cpu", 0))
    found = _numbered.get(number.value or 0) if isinstance(number, ctypes.c_void_p) else None
    if found is None:
        raise ArgumentError(f"NDArray takes a tensor and a context, got {number!r} alone; use nd.array(x)")
    return found


Operand: TypeAlias = "Handle | Number | np.ndarray[Any, Any]"
"""Second operand of arithmetic: an array, a number, or a NumPy array."""

Out: TypeAlias = "Handle | Sequence[Handle] | None"
"""Arrays for results: an array, or a list of them for several results; None means into new ones."""


class Handle:
    """A tensor and its context; the part of NDArray that operators need.

    Args:
        tensor: the values; shared, not copied, and never one that requires grad.
        pinned: the memory is shared with a view, a user or another library.
        writable: accepted and ignored.
    `tensor` may also be the number of an existing array, from ``ctypes.cast(array, NDArrayHandle)``, without `ctx`:
    monitors written for MXNet create their arrays like that.

    Attributes:
        raw: the values, for internal use; the library may replace the tensor while `pinned` is False.
        tensor: the values, for users. They may write it in ways that torch does not count, so that nothing is cached
            about its memory from then on (see `ops.write_tracking`).
        context: the context; two CPU contexts are distinct although torch has one CPU device.
        pinned: if True, `raw` is never replaced: new values are written into its memory.
        trace: the array's node in a recorded graph (see `tape`), None outside a graph.
    """

    __slots__ = ("__weakref__", "context", "pinned", "raw", "trace")

    raw: torch.Tensor
    context: Context
    pinned: bool
    trace: Any

    stype: ClassVar[str] = "default"
    """Storage type: "default" for dense arrays."""

    result_type: ClassVar[type[Handle]]
    """Class of the arrays that operators return; set by the module that defines it."""

    casts: ClassVar[dict[str, Callable[[Any], Handle]]] = {}
    """Conversions from dense arrays by storage type; the modules that define the types add them."""

    of_records: ClassVar[dict[str, Callable[[Any, Context], Handle]]] = {}
    """Conversions from an operator's sparse result to an array by storage type; the same modules add them."""

    def __init__(
        self, tensor: torch.Tensor, ctx: Context | None = None, pinned: bool = False, writable: bool = True
    ) -> None:
        if ctx is None:
            other = _of_number(tensor)
            other.pinned = pinned = True
            tensor, ctx = other.raw, other.context
        self.raw = tensor
        self.context = ctx
        self.pinned = pinned
        self.trace = None

    @property
    def tensor(self) -> torch.Tensor:
        """The values."""
        expose(self.raw)
        return self.raw

    @tensor.setter
    def tensor(self, tensor: torch.Tensor) -> None:
        expose(tensor)
        self.raw = tensor

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """The array's number, for `ctypes.cast`."""
        _numbered[id(self)] = self
        return ctypes.c_void_p(id(self))

    @property
    def stored(self) -> Any:
        """Value that operators read: the tensor, or the record of a sparse or ragged array; shared."""
        return self.raw

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self.raw.shape)

    @property
    def dtype(self) -> Any:
        """Element type as a NumPy scalar type, such as ``numpy.float32``; for bfloat16 its name."""
        return _numpy_type(self.raw.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.raw.dim()

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.raw.numel()

    @property
    def ctx(self) -> Context:
        """The context (MXNet's second name for it)."""
        return self.context

    def overwrite(self, values: torch.Tensor) -> None:
        """Copy values of the same shape, converted to this array's type, into its memory."""
        self.raw.detach().copy_(values.detach())

    def describe(self) -> str:
        """Return shape, type and context as text for messages."""
        dtype = self.dtype if isinstance(self.dtype, str) else np.dtype(self.dtype).name
        return f"{dtype} array of shape {self.shape} on {self.context}"


Handle.result_type = Handle


def array_of(value: torch.Tensor | Sparse, ctx: Context) -> Any:
    """Return an operator's result, a tensor or the record of a sparse array, as an array that shares its memory."""
    if isinstance(value, Sparse):
        return Handle.of_records[value.stype](value, ctx)
    return Handle.result_type(value, ctx)
