"""Sparse arrays at an executor's borders: what programs read, what they give back, and where gradients go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

import torch

from ..base import ShapeError
from ..context import Context
from ..ndarray import NDArray
from ..ndarray.csr import CSRNDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ndarray.sparse import zeros
from ..ndarray.sparse_base import BaseSparseNDArray
from ..ops.sparse import Rows, Sparse, as_rows, densify, nothing_in, row_gradient, stored_as, stored_rows
from .memory import allocate

__all__ = [
    "allocate_as",
    "all_rows",
    "array_of",
    "clear",
    "deliver_sparse",
    "dense_pointers",
    "is_sparse",
    "kinds_of",
    "load_stored",
    "seed_of",
    "show",
    "stored_bytes",
    "value_of",
]


def is_sparse(array: NDArray | None) -> bool:
    """Say whether an array is sparse."""
    return isinstance(array, BaseSparseNDArray)


def kinds_of(arrays: dict[str, NDArray]) -> dict[str, str]:
    """Return the storage types of those arrays that are sparse."""
    return {name: array.stype for name, array in arrays.items() if isinstance(array, BaseSparseNDArray)}


def allocate_as(stype: str, shape: tuple[int, ...], ctx: Context, dtype: str) -> NDArray:
    """Return a new array of zeros of any storage type; a sparse one stores nothing."""
    return allocate(shape, ctx, dtype) if stype == "default" else zeros(stype, shape, ctx, dtype)


def value_of(array: NDArray, as_stored: bool = False) -> Any:
    """Return what a program reads: the tensor, or a record of a sparse array's parts.

    Args:
        array: the array.
        as_stored: the program knows it as row-sparse; a dense one then counts as storing all its rows.
    """
    if isinstance(array, BaseSparseNDArray):
        return array.record()
    return all_rows(array.raw) if as_stored else array.raw


def stored_bytes(array: NDArray) -> int:
    """Return the memory that an array's values take, in bytes; of a sparse one, with the places of those it stores."""
    if not isinstance(array, BaseSparseNDArray):
        return array.raw.nbytes
    record = array.record()
    parts = (getattr(record, name, None) for name in ("values", "rows", "columns", "starts"))
    return sum(part.nbytes for part in parts if part is not None)


def all_rows(tensor: torch.Tensor) -> Rows:
    """Return a dense tensor as a row-sparse value that stores every row; the memory is shared."""
    return Rows(_counting(tensor.shape[0], tensor.device), tensor, tensor.shape)


@lru_cache(maxsize=64)
def _counting(length: int, device: torch.device) -> torch.Tensor:
    return torch.arange(length, device=device)


def array_of(value: Any, ctx: Context) -> NDArray:
    """Return a value of a program as an array: a tensor, a record, or a gradient of some rows."""
    if isinstance(value, Sparse):
        kind = RowSparseNDArray if isinstance(value, Rows) else CSRNDArray
        return kind.of_record(cast("Any", value.detach()), ctx)
    if value.is_sparse:
        return RowSparseNDArray.of_record(as_rows(value.detach()), ctx)
    return NDArray(value.detach(), ctx)


def show(target: NDArray, value: Any) -> None:
    """Let an output array show a sparse result; one that became dense is stored anew."""
    array = cast("BaseSparseNDArray", target)
    array.take_over(stored_as(value.detach(), array.stype))


def seed_of(grad: NDArray, out: NDArray) -> Any:
    """Return the gradient given for an output: of some rows if both are row-sparse, else dense."""
    dtype, device = (
        (out.values if isinstance(out, BaseSparseNDArray) else out.raw).dtype,
        out.context.torch_device,
    )
    if isinstance(grad, RowSparseNDArray) and isinstance(out, RowSparseNDArray):
        rows, values = grad.parts()
        return row_gradient(rows.to(device), values.to(device, dtype), grad.shape)
    return grad.raw.to(device, dtype)


def dense_pointers(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the dense tensors among values, and the stored parts of the others."""
    found = []
    for value in values:
        if isinstance(value, Sparse):
            found.append(value.values)
        else:
            found.append(value._values() if value.is_sparse else value)
    return found


def deliver_sparse(
    grads: Sequence[Any], targets: Sequence[NDArray], adds: Sequence[bool], taken: Sequence[torch.Tensor]
) -> list[int]:
    """Write, or add, those gradients of which the gradient or its array is sparse.

    Args:
        grads: what the engine returned; None for an argument that no head depends on.
        targets: the arrays.
        adds: whether to add instead of write, for each.
        taken: tensors whose memory must not end up in an array.

    Returns:
        The positions of the others.
    """
    seen = {tensor.data_ptr() for tensor in taken}
    rest = []
    for i, (grad, target, add) in enumerate(zip(grads, targets, adds)):
        if isinstance(target, RowSparseNDArray):
            _to_rows(grad, target, add, seen)
        elif isinstance(target, CSRNDArray):
            _to_csr(grad, target, add)
        elif grad is not None and grad.is_sparse:
            if not add:
                target.raw.zero_()
            rows, values = stored_rows(grad)
            target.raw.index_add_(0, rows, values.to(target.raw.dtype))
        else:
            rest.append(i)
    return rest


def _to_rows(grad: Any, target: RowSparseNDArray, add: bool, seen: set[int]) -> None:
    found = nothing_in(target.record()) if grad is None else as_rows(grad)
    if found.values.dtype != target.values.dtype:
        found = found.replaced(found.values.to(target.values.dtype))
    if add:
        old = target.record()
        rows = torch.unique(torch.cat([old.rows, found.rows]))
        target.take_over(Rows(rows, old.pick(rows) + found.pick(rows), target.shape))
        return
    pointer = found.values.data_ptr()
    if pointer in seen and found.values.numel():
        found = found.replaced(found.values.clone())
    seen.add(pointer)
    target.take_over(found)


def _to_csr(grad: Any, target: CSRNDArray, add: bool) -> None:
    dense = grad if grad is not None else target.values.new_zeros(target.shape)
    dense = (dense.to_dense() if dense.is_sparse else dense).to(target.values.dtype)
    target.take_over(stored_as(target.record().dense() + dense if add else dense, "csr"))


def clear(array: NDArray) -> None:
    """Set all elements to zero; a sparse array then stores nothing."""
    if isinstance(array, BaseSparseNDArray):
        array.take_over(nothing_in(array.record()))
    else:
        array.raw.zero_()


def load_stored(name: str, array: NDArray, value: Any, borrow: bool) -> Any:
    """Copy an input of which the value or the array is sparse.

    Args:
        name: the input, for messages.
        array: where it goes.
        value: a tensor or record.
        borrow: leave a matrix where it is, if it fits.

    Returns:
        The matrix to be read where it is; None when it was copied.

    Raises:
        ShapeError: the value has another shape.
    """
    if tuple(value.shape) != array.shape:
        raise ShapeError(f"{name} has shape {tuple(value.shape)}, expected {array.shape}")
    if not isinstance(array, BaseSparseNDArray):
        array.raw.copy_(densify(value))
        return None
    found = stored_as(value.to(array.values.device), array.stype)
    if found.dtype != array.values.dtype:
        found = found.replaced(found.values.to(array.values.dtype))
    if borrow and found is value:
        return found
    array.take_over(found.clone())
    return None
