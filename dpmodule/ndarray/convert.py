"""Conversion of host values (numbers, lists, NumPy arrays) to tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base import ArgumentError, DTypeError, NonFiniteError, ShapeError, dtype_name, plain
from ..context import Context
from ..ops.array.reshape_codes import resolve
from ..ops.dtypes import torch_dtype
from ..ops.shapes import prod
from .handle import Handle

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from ..types import ArrayLike, DTypeLike, ShapeLike


def is_number(value: object) -> TypeIs[int | float | np.number[Any] | np.bool_]:
    """Return True if `value` is a Python number or NumPy scalar."""
    return isinstance(value, (int, float, np.number, np.bool_))


def jsonable(value: object) -> Any:
    """Return a value, including lists and dicts, in a form that JSON can store.

    Arrays become lists, NumPy numbers Python numbers, and objects with a method `dumps` its result.
    """
    if isinstance(value, Mapping):
        return {key: jsonable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if isinstance(value, Handle):
        return jsonable(value.raw)
    if isinstance(value, torch.Tensor):
        return value.detach().to_dense().tolist()
    of_numpy = isinstance(value, (np.generic, np.ndarray, np.dtype, type))  # arrays also have a `dumps`
    return plain(value) if of_numpy or not hasattr(value, "dumps") else value.dumps()


def integers(value: ShapeLike) -> tuple[int, ...]:
    """Return an integer, or several in a tuple, list or array, as a tuple."""
    if type(value) is tuple or not hasattr(value, "__index__") or isinstance(value, np.ndarray):
        return tuple(index(v) for v in value)
    return (index(value),)


def wanted_shape(shape: ShapeLike) -> tuple[int, ...]:
    """Return a shape argument as a tuple.

    Args:
        shape: an integer, or integers in a tuple, list or array.
    """
    try:
        dims = integers(shape)
    except TypeError:
        raise ShapeError(f"shape is {shape!r}, expected an integer or a tuple of integers") from None
    if any(d < 0 for d in dims):
        raise ShapeError(f"shape is {dims}, expected no negative lengths")
    if any(d >= 2**63 for d in dims):
        raise ShapeError(f"shape is {dims}, expected lengths of at most 63 bits")
    return dims


def host_array(source: ArrayLike, dtype: str) -> np.ndarray[Any, Any]:
    """Return a new C-contiguous NumPy array of a number, nested list or array.

    Integers wrap around and fractions are truncated, as in C and in MXNet; float32 replaces bfloat16. Texts that
    hold numbers, such as the cells of a table read from a file, are parsed.
    """
    try:
        array = np.asarray(source)
    except (ValueError, TypeError) as error:
        raise DTypeError(f"cannot make an array of a {type(source).__name__}: {error}") from None
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind in "US":
        array = _numbers_in(array, dtype)
    if array.dtype.kind not in "biuf" or source is None:
        raise DTypeError(
            f"cannot make a {dtype} array of a {type(source).__name__} that holds {array.dtype}; "
            "expected numbers"
        )
    target = np.dtype(np.float32 if dtype == "bfloat16" else dtype)
    if target.kind in "iu" and array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise NonFiniteError(f"NaN or infinity cannot become {dtype}")
        with np.errstate(invalid="ignore"):
            array = array.astype(np.int64)  # a direct cast of negative numbers to unsigned ones is undefined
    with np.errstate(over="ignore"):
        return array.astype(target, order="C", copy=True)


def _numbers_in(texts: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return the numbers in an array of texts."""
    try:
        return texts.astype(np.float32 if dtype == "bfloat16" else dtype)
    except (ValueError, OverflowError) as error:
        raise DTypeError(f"cannot make a {dtype} array of texts: {error}; expected numbers") from None


def tensor_of(value: Handle | ArrayLike, dtype: torch.dtype, name: str, device: torch.device) -> torch.Tensor:
    """Return a number, list, array or NDArray as a tensor; it may share memory with `value`."""
    if isinstance(value, Handle):
        return value.raw.to(device)
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    return torch.from_numpy(host_array(value, name)).to(device, dtype)


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as a NumPy array, sharing memory if it is on the CPU; bfloat16 becomes float32."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.cpu().numpy()


def pickled(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as a NumPy array for pickling: bfloat16, which NumPy lacks, becomes its bits as int16."""
    return to_numpy(tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor)


def unpickled(values: np.ndarray[Any, Any], dtype: str, ctx: Context) -> torch.Tensor:
    """Return the tensor passed to `pickled`, with the given type and on a context's device."""
    tensor = torch.from_numpy(values if values.flags.writeable else values.copy())
    if dtype == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    return tensor.to(ctx.check().torch_device)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor's elements in order, sharing memory if the tensor is contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def dtype_pair(dtype: DTypeLike) -> tuple[str, torch.dtype]:
    """Return a user's dtype as a name and as a torch dtype."""
    name = dtype_name(dtype)
    return name, torch_dtype(name)


def slicer(axis: int, begin: int, length: int, squeeze: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that slices an axis, and drops the axis if `squeeze` is set and the length is 1."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        part = tensor.narrow(axis, begin, length)
        return part.squeeze(axis) if squeeze and length == 1 else part

    return cut


def reshaped_shape(dims: tuple[int, ...], wanted: ShapeLike, reverse: bool) -> tuple[int, ...]:
    """Return the shape of the result of `reshape`."""
    try:
        codes = integers(wanted)
    except TypeError:
        raise ShapeError(f"reshape: shape is {wanted!r}, expected integers") from None
    found = codes if not codes or min(codes) > 0 else resolve(dims, codes, reverse)
    if prod(found) != prod(dims):
        raise ShapeError(f"cannot reshape an array of shape {dims} and size {prod(dims)} into shape {codes}")
    return found


def split_bounds(length: int, given: int | tuple[int, ...]) -> list[int]:
    """Return the bounds of the parts of `split_v2`, including both ends of the axis."""
    if isinstance(given, int):
        if given < 1 or length % given:
            raise ShapeError(f"an axis of length {length} cannot be cut into {given} equal parts")
        return list(range(0, length + 1, length // given)) if length else [0] * (given + 1)
    if isinstance(given, tuple):
        return [0, *(slice(i).indices(length)[1] for i in given), length]
    raise ArgumentError(f"indices_or_sections is {given!r}, expected an integer or a tuple")


def broadcast_shape(dims: tuple[int, ...], wanted: ShapeLike) -> tuple[int, ...]:
    """Return the shape of the result of `broadcast_to`; 0 keeps an axis of length 1."""
    found = wanted_shape(wanted)
    offset = len(found) - len(dims)
    if offset < 0 or any(s not in (1, d) for s, d in zip(dims, found[offset:], strict=True)):
        raise ShapeError(f"cannot broadcast an array of shape {dims} to {found}")
    return found[:offset] + tuple(d or s for s, d in zip(dims, found[offset:]))


def squeezed_shape(dims: tuple[int, ...], axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return a shape without some or all axes of length 1; at least one axis remains."""
    axes = (axis,) if isinstance(axis, int) else axis
    for i in axes or ():
        if not -len(dims) <= i < len(dims) or dims[i] != 1:
            raise ShapeError(f"cannot squeeze axis {i} of an array of shape {dims}")
    chosen = {i % len(dims) for i in axes} if axes is not None else {i for i, s in enumerate(dims) if s == 1}
    left = tuple(s for i, s in enumerate(dims) if i not in chosen)
    return left or (1,) * bool(dims)
