"""`NDArray`: values in a torch tensor, in a context."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from .._core import lazy, mode
from ..base import ArgumentError, DTypeError, ShapeError, StateError
from ..base import integer_types as integer_types
from ..base import numeric_types as numeric_types
from ..context import Context, gpu_module, is_gpu
from ..ops import get
from ..ops.dtypes import name_of
from ..ops.shapes import prod
from ..ops.write_tracking import expose
from . import indexing, tape
from .convert import (
    broadcast_shape,
    dtype_pair,
    host_array,
    is_number,
    pickled,
    reshaped_shape,
    slicer,
    split_bounds,
    squeezed_shape,
    tensor_of,
    to_numpy,
    unpickled,
    wanted_shape,
)
from .differentiate import differentiate
from .handle import Handle, Operand
from .methods import OpMethods, fluent
from .op_functions import as_context, call, op_function
from .operators import ADD, DIV, EQ, GE, GT, LE, LT, MOD, MUL, NE, POW, SUB

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..types import ArrayLike, ContextLike, DTypeLike, IndexLike

    _Method = Callable[["NDArray", Operand], "NDArray"]

__all__ = ["NDArray"]

lazy.publish(__name__, __all__)

# names that MXNet programs import from here
py_slice = slice
_STORAGE_TYPE_STR_TO_ID = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2, "ragged": 101}
_STORAGE_TYPE_ID_TO_STR = {number: name for name, number in _STORAGE_TYPE_STR_TO_ID.items()}
_DTYPE_NP_TO_MX = {
    None: -1,
    np.float32: 0,
    np.float64: 1,
    np.float16: 2,
    np.uint8: 3,
    np.int32: 4,
    np.int8: 5,
    np.int64: 6,
    np.bool_: 7,
    np.int16: 8,
    np.uint16: 9,
    np.uint32: 10,
    np.uint64: 11,
}
_DTYPE_MX_TO_NP = {number: dtype for dtype, number in _DTYPE_NP_TO_MX.items()}

Tensor = torch.Tensor
Bounds = Sequence[int | None]

_ALL = slice(None)


@fluent(op_function)
class NDArray(Handle, OpMethods):
    """An array on a device, with MXNet's methods, whose memory is a torch tensor.

    Basic slices and `reshape` return views, as in MXNet: writing to ``a[0]`` or ``a.reshape((-1,))`` changes `a`.
    Sharing with torch, NumPy and DLPack needs no copy. Work on a GPU is queued as in torch; methods that return
    values to Python wait for it.

    Args:
        tensor: the values; shared, not copied. `nd.from_torch` checks it, this does not.
        ctx: the context of the array.
        pinned: True if the memory is already shared (see `Handle`).

    Example:
        >>> a = mx.nd.array([[1, 2, 3], [4, 5, 6]])
        >>> (a + 1).sum(axis=1).asnumpy()
        array([ 9., 18.], dtype=float32)

    Source: MXNet 1.9.1 `NDArray`.
    """

    __slots__ = ()

    # --- arithmetic and comparison: see `operators`

    __array_priority__ = 1000.0  # NumPy arrays leave ``array + ndarray`` to this class
    __hash__ = object.__hash__

    __add__ = __radd__ = cast("_Method", ADD.right)
    __sub__, __rsub__ = cast("_Method", SUB.right), cast("_Method", SUB.left)
    __mul__ = __rmul__ = cast("_Method", MUL.right)
    __truediv__, __rtruediv__ = cast("_Method", DIV.right), cast("_Method", DIV.left)
    __mod__, __rmod__ = cast("_Method", MOD.right), cast("_Method", MOD.left)
    __pow__, __rpow__ = cast("_Method", POW.right), cast("_Method", POW.left)
    __iadd__, __isub__, __imul__ = ADD.within, SUB.within, MUL.within
    __itruediv__, __imod__ = DIV.within, MOD.within
    __eq__, __ne__ = EQ.compared(), NE.compared()
    __gt__, __ge__ = GT.compared(), GE.compared()
    __lt__, __le__ = LT.compared(), LE.compared()

    def __neg__(self) -> Any:
        return MUL.right(self, -1)

    def __abs__(self) -> Any:
        return op_function("abs")(self)

    # --- values for Python, NumPy and torch

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the values as a NumPy array, after waiting for them; bfloat16 becomes float32."""
        array = to_numpy(self.raw)
        if self.raw.device.type == "cpu" and self.raw.dtype != torch.bfloat16:
            return array.copy(order="C")
        return array

    def asscalar(self) -> Any:
        """Return the only element as a NumPy scalar.

        Raises:
            ShapeError: the array does not have exactly one element.
        """
        if self.size != 1:
            raise ShapeError(f"the current array is not a scalar: it has shape {self.shape}")
        return self.asnumpy().reshape(-1)[0]

    def item(self) -> Any:
        """Return the only element as a Python number.

        Raises:
            ShapeError: the array does not have exactly one element.
        """
        return self.asscalar().item()

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return to_numpy(self.raw).tolist()

    def torch(self) -> torch.Tensor:
        """Return the tensor of the values; writing to it writes to this array."""
        self._contiguous()
        self.pinned = True
        expose(self.raw)
        return self.raw

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return the values as a NumPy array, sharing memory on the CPU unless a copy is needed or requested."""
        array = to_numpy(self._contiguous())
        shares = self.raw.device.type == "cpu" and self.raw.dtype != torch.bfloat16
        if copy is False and not (shares and (dtype is None or array.dtype == np.dtype(dtype))):
            raise ValueError(
                f"a {self.describe()} cannot be converted to a NumPy array of {dtype} without a copy"
            )
        if copy and shares:
            array = array.copy()
        elif shares:
            self.pinned = True
            expose(self.raw)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        self._contiguous()
        self.pinned = True
        expose(self.raw)
        return self.raw.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.raw.__dlpack_device__()

    def to_dlpack_for_read(self) -> Any:
        """Return a DLPack capsule over this array's memory, for reading."""
        return self.__dlpack__()

    def to_dlpack_for_write(self) -> Any:
        """Return a DLPack capsule over this array's memory, for writing."""
        return self.__dlpack__()

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __bool__(self) -> bool:
        """Return True if the only element is not 0; False for an empty array."""
        if self.size > 1:
            raise ShapeError("the truth value of an NDArray with multiple elements is ambiguous")
        return self.size == 1 and bool(self.raw.reshape(-1)[0])

    def __repr__(self) -> str:
        dims = "x".join(map(str, self.shape))
        return f"\n{to_numpy(self.raw)}\n<{type(self).__name__} {dims} @{self.context}>"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks."""
        from .notebook import array_html

        return array_html(self)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore an array pickled by MXNet, in the context cpu(0).

        Args:
            state: record of an array in MXNet's file format under "handle"; None for an empty array.
        """
        from .binary_reader import read_one

        data = state["handle"]
        self._restore(*((torch.empty(0), [], (0,)) if data is None else read_one(bytes(data))))

    def _restore(self, values: Tensor, indices: list[Tensor], shape: tuple[int, ...]) -> None:
        """Initialize the array with the parts of a record."""
        if indices:
            raise DTypeError("the pickled array is sparse, expected a dense one")
        NDArray.__init__(self, values, Context("cpu", 0))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (pickled(self.raw), name_of(self.raw.dtype), self.context)

    # --- parts

    def __len__(self) -> int:
        """Return the length of the first axis."""
        if not self.raw.dim():
            raise DTypeError("len() of an array without axes")
        return self.raw.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        for i in range(len(self)):
            yield self[i]

    def __getitem__(self, key: IndexLike) -> NDArray:
        """Return a part: a view if `key` selects contiguous memory, else a copy (see `indexing`)."""
        if type(key) is slice and key == _ALL:
            return self
        if self.trace is not None and mode.is_recording():
            return self._read_recorded(key)
        part, shared = indexing.read(self._contiguous(), key)
        return self._view(part) if shared else NDArray(part, self.context)

    def _read_recorded(self, key: IndexLike) -> NDArray:
        """Return a part, and record the operation."""
        shared = indexing.read(self.raw, key)[1]
        return tape.apply(self, lambda t: indexing.read(t, key)[0], "getitem", shared)

    def __setitem__(self, key: IndexLike, value: Handle | ArrayLike) -> None:
        """Write numbers or an array, broadcast and converted to this array's type, into a part."""
        if mode.is_recording() and self._write_recorded(key, value):
            return
        tensor = self.raw
        if type(key) is slice and key == _ALL:
            if _write_all(tensor, value):
                return
            key = ...
        if is_number(value):
            array = host_array(value, name_of(tensor.dtype))
            source = torch.from_numpy(array).to(tensor.device, tensor.dtype)
        elif isinstance(value, (Handle, np.ndarray, torch.Tensor, Sequence)) and not isinstance(
            value, (str, bytes)
        ):
            source = tensor_of(value, tensor.dtype, name_of(tensor.dtype), tensor.device)
        else:
            raise DTypeError(
                f"cannot write a {type(value).__name__} into an array; expected numbers or an array"
            )
        with torch.no_grad():
            indexing.write(tensor, key, source)

    def _write_recorded(self, key: IndexLike, value: Handle | ArrayLike) -> bool:
        """Record a write if necessary; return True if nothing remains to be done."""
        shape = indexing.whole(self.raw, key)
        if shape is not None and isinstance(value, np.ndarray):  # MXNet copies it without an operator
            return False
        tape.check_writable(self)
        if not (isinstance(value, NDArray) and tape.in_graph(value)):
            return False
        if shape is None:
            raise StateError(
                f"{tape.IN_PLACE}: a recorded array is written to a part of another; use concat, stack or where"
            )

        def spread(tensor: torch.Tensor) -> torch.Tensor:
            return indexing.fit(tensor, shape).expand(shape).reshape(self.shape)

        tape.apply(value, spread, "broadcast_to").copyto(self)
        return True

    @staticmethod
    def _basic_indexing_slice_is_contiguous(slc_key: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
        """Return True if a basic key selects contiguous memory; MXNet's tests use this name."""
        return bool(np.empty(shape, np.bool_)[slc_key].flags.c_contiguous)

    def slice_assign(self, rhs: Handle, begin: Bounds, end: Bounds, step: Bounds | None) -> NDArray:
        """Write an array to ``self[begin:end:step]``, with one bound for each axis, and return self.

        Args:
            rhs: array of the shape of that part.
            begin: start on each axis; None for the beginning.
            end: exclusive end on each axis; None for the end of the axis.
            step: step on each axis; None for 1.
        """
        self[_slices(begin, end, step)] = rhs
        return self

    def slice_assign_scalar(self, value: float, begin: Bounds, end: Bounds, step: Bounds | None) -> NDArray:
        """Write a number to ``self[begin:end:step]``, with one bound for each axis, and return self.

        Args:
            begin: start on each axis; None for the beginning.
            end: exclusive end on each axis; None for the end of the axis.
            step: step on each axis; None for 1.
        """
        self[_slices(begin, end, step)] = value
        return self

    # --- shapes

    def _view(self, tensor: Tensor) -> NDArray:
        """Return an array that views a part of this one's memory; neither tensor may be replaced from now on."""
        self.pinned = True
        return NDArray(tensor, self.context, True)

    def _contiguous(self) -> Tensor:
        """Return the tensor in C-contiguous memory, unless it is shared with a user.

        Outputs of executors have their axes in any order in memory until they are viewed or shared.
        """
        if not (self.pinned or self.raw.is_contiguous()):
            self.raw = self.raw.contiguous()
        return self.raw

    def _derive(self, name: str, function: Callable[[Tensor], Tensor], view: bool) -> NDArray:
        """Return an array from a view of this one's tensor: the view, or a copy; recorded if necessary."""
        if view:
            self._contiguous()
            return tape.apply(self, function, name, True)
        return tape.apply(self, lambda tensor: _clone(function(tensor)), name)

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """Return a view of another shape and equal size.

        Args:
            shape: lengths, as one tuple or separate arguments; 0 copies a length, -1 is inferred, -2 copies the rest,
                -3 merges two axes, -4 splits one into the next two numbers.
            kwargs: `shape` by name, and `reverse`: True to match the codes from the right.

        Raises:
            ShapeError: the new shape has another number of elements, or a code is invalid.
            DTypeError: a keyword is unknown.
        """
        unknown = set(kwargs) - {"shape", "reverse"}
        if unknown:
            raise DTypeError(f"reshape takes shape and reverse, got {', '.join(sorted(unknown))}")
        wanted: Any = shape[0] if len(shape) == 1 else shape or kwargs.get("shape")
        dims = reshaped_shape(self.shape, wanted, bool(kwargs.get("reverse", False)))
        # memory from from_torch or from_dlpack may not be contiguous; then it is copied, as in NumPy
        shares = self._contiguous().is_contiguous()
        return self._derive("reshape", lambda t: t.reshape(dims), shares)

    def head_view(self, shape: Sequence[int]) -> NDArray:
        """Return a view of the first elements in another shape that is not larger (the data pool of executors).

        Args:
            shape: the shape of the view.

        Raises:
            ShapeError: `shape` has more elements than this array, or the array is not contiguous.
        """
        dims = wanted_shape(shape)
        count = prod(dims)
        if count > self.size or not self._contiguous().is_contiguous():
            raise ShapeError(f"a view of shape {dims} does not fit into a {self.describe()}")
        return self._view(self.raw.view(-1)[:count].view(dims))

    @property
    def T(self) -> NDArray:
        """Copy with reversed axes."""
        axes = tuple(reversed(range(self.ndim)))
        return self._derive("transpose", lambda t: t.permute(axes), False)

    def broadcast_to(self, shape: Sequence[int]) -> NDArray:
        """Return a copy broadcast to `shape`.

        Args:
            shape: the lengths; axes of length 1 are repeated.

        Raises:
            ShapeError: the shapes are incompatible.
        """
        dims = broadcast_shape(self.shape, shape)
        return self._derive("broadcast_to", lambda t: t.expand(dims), False)

    def broadcast_like(self, other: Handle) -> NDArray:
        """Return a copy broadcast to the shape of `other`.

        Args:
            other: array with the shape of the result.
        """
        return self.broadcast_to(other.shape)

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """Insert an axis of length 1; a view if `inplace`, else a copy.

        Args:
            axis: position of the new axis; negative ones count from the end.
            inplace: True to share this array's memory.

        Raises:
            ShapeError: there is no such position.
        """
        if not -self.ndim - 1 <= axis <= self.ndim:
            raise ShapeError(f"axis is {axis}, expected {-self.ndim - 1} to {self.ndim}")
        return self._derive("expand_dims", lambda t: t.unsqueeze(axis), inplace)

    def flatten(self, inplace: bool = False) -> NDArray:
        """Merge all axes but the first; a view if `inplace`, else a copy.

        Args:
            inplace: True to share this array's memory.
        """
        rows = self.shape[0] if self.ndim else 1
        dims = rows, prod(self.shape[1:])
        return self._derive("flatten", lambda t: t.reshape(dims), inplace)

    def squeeze(self, axis: int | tuple[int, ...] | None = None, inplace: bool = False) -> NDArray:
        """Remove axes of length 1, all of them if `axis` is None; a view if `inplace`, else a copy.

        Args:
            axis: one axis or several.
            inplace: True to share this array's memory.

        Raises:
            ShapeError: an axis is longer than 1 or does not exist.
        """
        left = squeezed_shape(self.shape, axis)
        return self._derive("squeeze", lambda t: t.reshape(left), inplace)

    def split_v2(
        self, indices_or_sections: int | tuple[int, ...], axis: int = 0, squeeze_axis: bool = False
    ) -> NDArray | list[NDArray]:
        """Split into equal parts, or at the given indices.

        Args:
            indices_or_sections: number of equal parts, or a tuple of positions to split at.
            axis: the axis to split.
            squeeze_axis: True to drop the axis of parts that have length 1 along it.

        Returns:
            Copies of the parts; a single one is not in a list.

        Raises:
            ArgumentError: `indices_or_sections` is neither.
            ShapeError: there is no such axis, or it cannot be split into that many equal parts.
        """
        if not -self.ndim <= axis < self.ndim:
            raise ShapeError(f"axis is {axis}, expected {-self.ndim} to {self.ndim - 1}")
        bounds = split_bounds(self.shape[axis], indices_or_sections)
        parts = [
            self._derive("split_v2", slicer(axis, begin, max(end - begin, 0), squeeze_axis), False)
            for begin, end in zip(bounds[:-1], bounds[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else parts

    def diag(self, k: int = 0, **kwargs: Any) -> Any:
        """Return a diagonal of a matrix, or a matrix with a diagonal (operator `diag`).

        Args:
            k: the diagonal: 0 is the main one, positive is above, negative is below.
            **kwargs: further attributes of the operator, such as `axis1` and `axis2`.
        """
        return op_function("diag")(self, k=k, **kwargs)

    # --- copies and contexts

    def copy(self) -> NDArray:
        """Return a copy in the same context."""
        return tape.apply(self, _clone, "copy")

    def __copy__(self) -> NDArray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> NDArray:
        with mode.scope(recording=False):
            return self.copy()

    def copyto(self, other: Handle | ContextLike) -> Any:
        """Copy into another array, converting to its type, or into a new one in another context.

        Args:
            other: an NDArray of the same shape, or a Context.

        Returns:
            The target; False, with a warning, if it is this array.

        Raises:
            ShapeError: the other array has another shape.
            DTypeError: `other` is neither.
        """
        if isinstance(other, Handle):
            if other is self:
                warnings.warn(
                    "copyto: source and target are the same array; nothing is copied",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return False
            if other.shape != self.shape:
                raise ShapeError(f"copyto: the target has shape {other.shape}, expected {self.shape}")
            return self._copy_into(other)
        if isinstance(other, (Context, torch.device)):
            where = as_context(other)
            device = where.torch_device

            def move(tensor: torch.Tensor) -> torch.Tensor:
                return tensor.to(device, copy=True, memory_format=torch.contiguous_format)

            return tape.apply(self, move, "copyto", ctx=where)
        raise DTypeError(f"copyto takes an NDArray or a Context, got {type(other).__name__}")

    def _copy_into(self, other: Handle) -> Handle:
        """Copy into an array of the same shape, and record it if necessary."""
        if mode.is_recording():
            tape.check_writable(other)
            if tape.in_graph(self) and other.stype == "default":
                (traced,), nodes = tape.inputs_of((self,))
                other.trace = tape.copy_into(traced, other), tape.TapeNode(tape.TapeStep("copyto"), nodes)
                return other
        other.overwrite(self.raw)
        return other

    def as_in_context(self, context: Context) -> NDArray:
        """Return this array if it is in `context`, else a copy there; cpu(0) and cpu(1) are distinct.

        Args:
            context: such as ``mx.gpu(0)``.
        """
        where = as_context(context)
        return self if where == self.context else self.copyto(where)

    as_in_ctx = as_in_context

    def astype(self, dtype: DTypeLike, copy: bool = True) -> NDArray:
        """Return a copy of another type; this array if `copy` is False and the type is the same.

        Args:
            dtype: the element type, as NumPy type, torch dtype or name.
            copy: True to copy even if the type is the same.
        """
        _, wanted = dtype_pair(dtype)
        if not copy and wanted == self.raw.dtype:
            return self

        def convert(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(wanted, copy=True, memory_format=torch.contiguous_format)

        return tape.apply(self, convert, "astype")

    def tostype(self, stype: str) -> NDArray:
        """Return the array in another storage type: "default", "row_sparse" or "csr" (two axes).

        Rows or elements that are zero are not stored. If the array has that type, it is returned.

        Raises:
            ArgumentError: there is no such storage type.
            ShapeError: the number of axes does not match the storage type.
        """
        if stype == "default":
            return self
        if stype not in self.casts:
            known = ", ".join(map(repr, ("default", *sorted(self.casts, reverse=True))))
            raise ArgumentError(f"stype is {stype!r}, expected one of {known}")
        return converted(self, stype, self.casts[stype])

    @property
    def writable(self) -> bool:
        """True if the array can be written: always."""
        return True

    def as_nd_ndarray(self) -> NDArray:
        """Return this array (for MXNet, which has a second class)."""
        return self

    # --- gradients

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make this array a variable: `backward` computes its gradient into a new array of zeros.

        Args:
            grad_req: "write", "add", or "null" for none.
            stype: storage type of the gradient; None means that of the array.

        Raises:
            UnknownNameError: `grad_req` is not one of these.
            ArgumentError: `stype` is not a storage type.
        """
        grad = NDArray(torch.zeros_like(self.raw, memory_format=torch.contiguous_format), self.context)
        kind = self.stype if stype is None else stype
        tape.mark(self, grad if kind == "default" else grad.tostype(kind), grad_req)

    @property
    def grad(self) -> NDArray | None:
        """Gradient that `backward` writes, or None; with "null" it stays zero."""
        variable = tape.variable_of(self)
        return None if variable is None else cast("NDArray", variable.grad)

    @property
    def _fresh_grad(self) -> bool:
        """True if `backward` has written the gradient since it was set to False."""
        variable = tape.variable_of(self)
        return variable is not None and variable.fresh

    @_fresh_grad.setter
    def _fresh_grad(self, state: bool) -> None:
        variable = tape.variable_of(self)
        if variable is None:
            raise StateError(
                "this array has no gradient: call attach_grad() or autograd.mark_variables() first"
            )
        variable.fresh = bool(state)

    def backward(
        self, out_grad: NDArray | None = None, retain_graph: bool = False, train_mode: bool = True
    ) -> None:
        """Compute gradients of this array with respect to all variables it depends on.

        Args:
            out_grad: gradient of this array; None means ones.
            retain_graph: True to keep the graph for another call.
            train_mode: the training flag that users' gradient functions see.

        Raises:
            StateError: this array was not recorded, or depends on no variable.
            ShapeError: `out_grad` has another shape.
        """
        differentiate([self], [out_grad], None, retain_graph, False, train_mode)

    def detach(self) -> NDArray:
        """Return an array with the same memory that is not in a graph."""
        return self._view(self._contiguous())

    def wait_to_read(self) -> None:
        """Wait until the values are computed."""
        if is_gpu(self.raw.device):
            gpu_module().synchronize(self.raw.device)

    wait_to_write = wait_to_read


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _write_all(tensor: torch.Tensor, value: Any) -> bool:
    """Fill a whole tensor directly if torch converts as MXNet does; return True if it was filled."""
    if type(value) in (int, float) and tensor.is_floating_point():
        with torch.no_grad():
            tensor.fill_(value)
        return True
    if not isinstance(value, Handle):
        return False
    source = value.raw
    if source.shape != tensor.shape:
        return False
    if source.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        return False
    with torch.no_grad():
        tensor.copy_(source)
    return True


def _slices(begin: Bounds, end: Bounds, step: Bounds | None) -> tuple[slice, ...]:
    """Return the slices of begin, end and step with one entry for each axis."""
    steps = tuple(step) if step else (None,) * len(begin)
    if not len(begin) == len(end) == len(steps):
        raise ArgumentError(f"begin {begin}, end {end} and step {step} differ in length")
    return tuple(slice(*bounds) for bounds in zip(begin, end, steps, strict=True))


def _unpickle(values: np.ndarray[Any, Any], dtype: str, ctx: Context) -> NDArray:
    """Return an unpickled array; pickle calls it."""
    return NDArray(unpickled(values, dtype, ctx), ctx)


def converted(array: NDArray, stype: str, convert: Callable[[Any], Any]) -> NDArray:
    """Return an array in another storage type, by the operator if the conversion is recorded."""
    if mode.is_recording() and tape.in_graph(array):
        return cast("NDArray", call(get("cast_storage"), (array,), {"stype": stype}))
    return cast("NDArray", convert(array))


Handle.result_type = NDArray
