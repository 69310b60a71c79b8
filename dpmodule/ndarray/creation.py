"""Creation of arrays from values, without values, and from memory of other libraries.

Source: the functions of MXNet 1.9.1's `mx.nd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.utils.dlpack

from .._core import mode
from .._devices.single_thread import single_thread
from ..base import ArgumentError, DTypeError, OutOfMemoryError, ShapeError
from ..context import Context, gpu_module, is_gpu, num_gpus
from ..ops import get
from ..ops.dtypes import name_of
from ..ops.write_tracking import expose, mark_owned
from . import sparse_creation as sparse
from . import tape
from .convert import dtype_pair, host_array, is_number, wanted_shape
from .handle import Handle
from .ndarray import NDArray
from .op_functions import as_context, call
from .sparse_base import BaseSparseNDArray

if TYPE_CHECKING:
    from ..types import ArrayLike, ContextLike, DTypeLike, ShapeLike

_LARGE = 32768
"""Number of elements above which torch fills an array in several threads."""


def array(
    source_array: Handle | ArrayLike, ctx: ContextLike | None = None, dtype: DTypeLike = None
) -> NDArray:
    """Return a new array with the values of a number, nested list, NumPy array, tensor or NDArray.

    The result is sparse for a sparse array or a sparse matrix of SciPy.

    Args:
        ctx: context of the result; None means the current context.
        dtype: element type; None keeps that of an NDArray and means float32 for anything else.

    Raises:
        DTypeError: the source does not hold numbers, or holds lists of different lengths.
        NonFiniteError: NaN or infinity cannot be converted to an integer type.

    Example:
        >>> mx.nd.array([[1, 2], [3, 4]]).shape
        (2, 2)
    """
    where = as_context(ctx)
    device = where.torch_device
    if isinstance(source_array, BaseSparseNDArray) or sparse.is_scipy(source_array):
        return sparse.array(source_array, where, dtype)
    if isinstance(source_array, (Handle, torch.Tensor)):
        source = source_array.raw if isinstance(source_array, Handle) else source_array.detach()
        if dtype is None:
            dtype = source.dtype if isinstance(source_array, Handle) else "float32"
        wanted = dtype_pair(dtype)[1]

        def convert(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device, wanted, copy=True, memory_format=torch.contiguous_format)

        if isinstance(source_array, NDArray):
            return tape.apply(source_array, convert, "array", ctx=where)
        return NDArray(convert(source), where)
    name, wanted = dtype_pair(dtype)
    return NDArray(mark_owned(torch.from_numpy(host_array(source_array, name))).to(device, wanted), where)


def _filled(
    shape: ShapeLike,
    value: float | None,
    ctx: ContextLike | None,
    dtype: DTypeLike,
    out: NDArray | None,
    extra: dict[str, Any],
) -> NDArray:
    """Create an array of one number (None leaves the memory uninitialized), or fill `out` with it."""
    unknown = set(extra) - {"name", "stype"}
    if unknown:
        raise ArgumentError(
            f"unknown arguments: {', '.join(sorted(unknown))}; expected shape, ctx, dtype, out"
        )
    stype = extra.get("stype") or "default"
    if stype != "default":
        if value or out is not None:
            raise ArgumentError(f"stype is {stype!r}, which only zeros and empty accept, and without out")
        return sparse.zeros(stype, shape, ctx, dtype)
    dims = wanted_shape(shape)
    if value is not None and out is not None:
        if out.shape != dims:
            raise ShapeError(f"out has shape {out.shape}, expected {dims}")
        out[:] = value
        return out
    where = as_context(ctx)
    wanted = dtype_pair(dtype)[1]
    try:
        if value is None:
            return NDArray(torch.empty(dims, dtype=wanted, device=where.torch_device), where)
        # arrays are often created before a fork
        with single_thread() if prod(dims) > _LARGE else nullcontext():
            return NDArray(torch.full(dims, value, dtype=wanted, device=where.torch_device), where)
    except RuntimeError as error:
        raise OutOfMemoryError.of(f"an array of shape {dims}", error) from error


def _check_known(name: str, shape: ShapeLike) -> None:
    """Raise for shapes that MXNet regards as unknown."""
    dims = wanted_shape(shape)
    if not mode.is_np_shape() and not (dims and all(dims)):
        raise ShapeError(
            f"{name}: shape is {dims}, expected axes that are longer than 0; "
            "call it inside mx.np_shape(), or use nd.full or nd.empty"
        )


def zeros(
    shape: ShapeLike,
    ctx: ContextLike | None = None,
    dtype: DTypeLike = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return an array of zeros.

    Args:
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.
        out: array to fill instead of creating one.
        kwargs: `stype`, "default", "row_sparse" or "csr"; `name`, ignored.

    Raises:
        ShapeError: the shape has no axes, or one of length 0, outside `util.np_shape`.
    """
    if out is None and not kwargs:
        _check_known("zeros", shape)
    return _filled(shape, 0, ctx, dtype, out, kwargs)


def ones(
    shape: ShapeLike,
    ctx: ContextLike | None = None,
    dtype: DTypeLike = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return an array of ones; arguments as in `zeros`.

    Args:
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.
        out: array to fill instead of creating one.
        **kwargs: `name`, ignored.
    """
    if out is None:
        _check_known("ones", shape)
    return _filled(shape, 1, ctx, dtype, out, kwargs)


def empty(
    shape: ShapeLike, ctx: ContextLike | None = None, dtype: DTypeLike = None, stype: str | None = None
) -> NDArray:
    """Return an uninitialized array; arguments as in `zeros`.

    Args:
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.
        stype: storage type, "default", "row_sparse" or "csr"; None means "default".
    """
    return _filled(shape, None, ctx, dtype, None, {"stype": stype})


def full(
    shape: ShapeLike,
    val: ArrayLike,
    ctx: ContextLike | None = None,
    dtype: DTypeLike = np.float32,
    out: NDArray | None = None,
) -> NDArray:
    """Return an array of one number, or of values that broadcast to `shape`; arguments as in `zeros`.

    Args:
        val: the number, or an array that broadcasts to the shape.
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.
        out: array to fill instead of creating one.

    Raises:
        ShapeError: `out` has another shape, or the values do not broadcast to it.
    """
    result = out if out is not None else empty(shape, ctx, dtype)
    if is_number(val) and result.shape != wanted_shape(shape):
        raise ShapeError(f"out has shape {result.shape}, expected {wanted_shape(shape)}")
    result[:] = val
    return result


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: ContextLike | None = None,
    dtype: DTypeLike = np.float32,
) -> NDArray:
    """Return evenly spaced numbers with a given step.

    Args:
        start: first number; the end, counted from 0, if `stop` is None.
        stop: end, not included.
        repeat: number of repetitions of each number.
        infer_range: accepted and ignored.
        ctx: context of the result; None means the current context.

    Raises:
        OpError: the step has the wrong sign or is 0.
    """
    given = {"start": start, "stop": stop, "step": step, "repeat": repeat, "dtype": dtype, "ctx": ctx}
    return cast("NDArray", call(get("_arange"), (), given))


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: ContextLike | None = None,
    dtype: DTypeLike = np.float32,
) -> NDArray:
    """Return `num` evenly spaced numbers from `start` to `stop`, which is excluded if `endpoint` is False.

    Args:
        stop: last number; without `endpoint`, the one after it.
        num: number of values.
        endpoint: True to include `stop`.
        ctx: context of the result; None means the current context.
    """
    if num == 0:
        return empty((0,), ctx, dtype)
    given = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": dtype, "ctx": ctx}
    return cast("NDArray", call(get("_linspace"), (), given))


def eye(
    N: int, M: int = 0, k: int = 0, ctx: ContextLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> NDArray:
    """Return an N x M matrix (M = 0: square) with ones on diagonal `k`, zeros elsewhere.

    Args:
        M: number of columns; 0 for a square matrix.
        k: the diagonal: 0 is the main one, positive is above, negative is below.
        ctx: context of the result; None means the current context.
        dtype: element type; None means float32.
        **kwargs: `name`, ignored, and `out`.
    """
    if N == 0:
        return empty((0, M), ctx, dtype)
    given = {"N": N, "M": M, "k": k, "ctx": ctx, "dtype": dtype or "float32", **kwargs}
    return cast("NDArray", call(get("_eye"), (), given))


# --- memory of other libraries


def from_torch(tensor: torch.Tensor, ctx: ContextLike | None = None) -> NDArray:
    """Return an array that shares a tensor's memory, without its gradient history.

    Args:
        tensor: a dense tensor on a CPU or GPU.
        ctx: context of the array, which must be on the tensor's device; None means the first one on it (the
            current one for the CPU).

    Raises:
        DTypeError: the tensor's type has no counterpart (complex, quantized), or it is not a tensor.
        ArgumentError: the tensor is sparse, on another device than `ctx`, or a view with other signs than its memory.
    """
    if not isinstance(tensor, torch.Tensor):
        raise DTypeError(f"from_torch takes a torch.Tensor, got {type(tensor).__name__}")
    name_of(tensor.dtype)
    if tensor.layout != torch.strided or not (tensor.is_cpu or is_gpu(tensor.device)):
        raise ArgumentError(
            f"from_torch takes a dense tensor on a CPU or GPU, got {tensor.layout} on {tensor.device}"
        )
    if tensor.is_neg():
        raise ArgumentError("from_torch: the tensor's memory has other signs; pass tensor.resolve_neg()")
    if ctx is None and is_gpu(tensor.device):
        where = Context("gpu", tensor.device.index or 0)
    else:
        where = as_context(ctx)
        if ctx is None and where.torch_device != tensor.device:
            where = Context("cpu", 0)
    if where.torch_device != tensor.device:
        raise ArgumentError(
            f"the tensor is on {tensor.device}, which is not the device of {where}; move it first"
        )
    expose(tensor)
    return NDArray(tensor.detach(), where, True)


def from_numpy(
    ndarray: np.ndarray[Any, Any], zero_copy: bool = True, array_cls: type[NDArray] = NDArray
) -> NDArray:
    """Return an array that shares a NumPy array's memory, or a copy of it.

    Args:
        ndarray: the values; their type is kept.
        zero_copy: True to share memory; as in MXNet, `ndarray` becomes read-only, and writing to the result changes it.

    Raises:
        ArgumentError: memory to be shared is not C-contiguous, or is read-only.
        DTypeError: `ndarray` is not a NumPy array, or its type has no counterpart.
    """
    if not isinstance(ndarray, np.ndarray):
        raise DTypeError(f"from_numpy takes a numpy.ndarray, got {type(ndarray).__name__}")
    if zero_copy:
        _make_shareable(ndarray)
    else:
        ndarray = np.array(ndarray, order="C", copy=True)
    try:
        tensor = torch.from_numpy(ndarray)
        name_of(tensor.dtype)
    except TypeError as error:
        raise DTypeError(f"cannot use a NumPy array of {ndarray.dtype}: {error}") from None
    if zero_copy:
        ndarray.flags.writeable = False
    return array_cls(tensor, as_context(None), zero_copy)


def _make_shareable(ndarray: np.ndarray[Any, Any]) -> None:
    """Raise for memory that cannot be shared; allow writing if only the array forbids it."""
    if not ndarray.flags.c_contiguous:
        raise ArgumentError("only C-contiguous arrays can be shared; pass zero_copy=False")
    try:
        ndarray.flags.writeable = True
    except ValueError:
        raise ArgumentError(
            "the array's memory is read-only and cannot be shared; pass zero_copy=False"
        ) from None


def from_dlpack(dlpack: object) -> NDArray:
    """Return an array that shares the memory of a DLPack capsule, or of an object that provides one.

    Source: the DLPack standard.

    Args:
        dlpack: an object with ``__dlpack__``, or an unused capsule.
    """
    return from_torch(torch.utils.dlpack.from_dlpack(dlpack))


def to_dlpack_for_read(data: NDArray) -> Any:
    """Return a DLPack capsule over an array's memory, for reading."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> Any:
    """Return a DLPack capsule over an array's memory, for writing."""
    return data.to_dlpack_for_write()


# --- arrays from arrays


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Join arrays along an axis.

    Args:
        arrays: arrays of one type whose shapes differ only along `axis`.
        axis: the axis to join along.
        always_copy: False to return a single array unchanged.

    Raises:
        ShapeError: there is no array, or the shapes do not agree.
        DTypeError: the types differ.
    """
    if not arrays:
        raise ShapeError("concatenate needs at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    ragged: Any = next((array for array in arrays if array.stype == "ragged"), None)
    if ragged is not None:
        return cast("NDArray", ragged.joined(arrays, axis))
    if len({a.raw.dtype for a in arrays}) > 1:
        raise DTypeError(
            f"concatenate takes arrays of one type, got {', '.join(a.describe() for a in arrays)}"
        )
    first = arrays[0]
    if mode.is_recording() and any(map(tape.in_graph, arrays)):
        return cast("NDArray", call(get("Concat"), tuple(arrays), {"dim": axis}))
    try:
        joined = torch.cat([a.raw.to(first.raw.device) for a in arrays], axis)
    except (RuntimeError, IndexError):
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"cannot join arrays of shapes {shapes} along axis {axis}") from None
    return NDArray(joined.contiguous(), first.context)


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> NDArray:
    """Return a copy with axes moved to other positions; the others keep their order.

    Args:
        tensor: the array, of any shape.
        source: positions of the axes; one or several.
        destination: their new positions; negative numbers count from the end.

    Raises:
        ShapeError: an axis does not exist or is named twice, or the counts differ.
    """

    def move(values: torch.Tensor) -> torch.Tensor:
        moved = torch.movedim(values, _axes(source), _axes(destination))
        return moved.clone(memory_format=torch.contiguous_format)

    try:
        return tape.apply(tensor, move, "moveaxis")
    except (RuntimeError, IndexError) as error:
        raise ShapeError(
            f"cannot move axes {source} of shape {tensor.shape} to {destination}: {error}"
        ) from None


def _axes(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Write one-hot rows into `out`: 1 in the column given by `indices`, 0 elsewhere.

    Args:
        out: array to write, which is returned.

    Shape:
        indices: (N,).
        out: (N, K).

    Raises:
        ShapeError: the shapes do not match.
    """
    if out.ndim != 2 or indices.shape != out.shape[:1]:
        raise ShapeError(
            f"onehot_encode: indices have shape {indices.shape}, out {out.shape}, expected (N,) and (N, K)"
        )
    columns = torch.arange(out.shape[1], device=out.raw.device)
    with torch.no_grad():
        out.raw.copy_(indices.raw.to(columns).unsqueeze(1) == columns)
    return out


def split_v2(
    ary: NDArray, indices_or_sections: int | tuple[int, ...], axis: int = 0, squeeze_axis: bool = False
) -> NDArray | list[NDArray]:
    """Split an array into equal parts, or at the given indices (see `NDArray.split_v2`).

    Args:
        indices_or_sections: number of equal parts, or a tuple of positions to split at.
        axis: the axis to split.
        squeeze_axis: True to drop the axis of parts that have length 1 along it.
    """
    return ary.split_v2(indices_or_sections, axis, squeeze_axis)


def histogram(
    a: NDArray, bins: int | NDArray = 10, range: tuple[float, float] | None = None
) -> tuple[NDArray, NDArray]:
    """Count values in bins, as `numpy.histogram` does.

    Args:
        bins: number of equal bins, or an NDArray of their edges.
        range: smallest and greatest edge; None means the extremes of the values.

    Returns:
        Counts and edges. Counts are int64; float32 if `bins` is a number and `range` None, as in MXNet.
    """
    if isinstance(bins, NDArray):
        counts, edges = call(get("_histogram"), (a, bins), {})
        return counts, edges
    if range is not None:
        counts, edges = call(get("_histogram"), (a,), {"bin_cnt": bins, "range": range})
        return counts, edges
    found = np.histogram(a.asnumpy(), bins)
    return array(found[0], a.context), array(found[1], a.context)


def waitall() -> None:
    """Wait until all queued work is done."""
    if num_gpus():
        gpu_module().synchronize()
