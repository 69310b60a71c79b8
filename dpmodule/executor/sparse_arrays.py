"""Sparse arrays at an executor's borders: what programs read, what they give back, and where gradients go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..base import ArgumentError, ShapeError, StateError
from ..context import Context
from ..ndarray import NDArray, handle
from ..ndarray.csr import CSRNDArray
from ..ndarray.ragged import RaggedNDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ndarray.sparse import zeros
from ..ndarray.sparse_base import BaseSparseNDArray
from ..ops.dtypes import torch_dtype
from ..ops.sparse import (
    Ragged,
    RowSparse,
    Sparse,
    add_rows,
    as_rows,
    densify,
    row_gradient,
    stored_as,
    stored_rows,
)
from .memory import allocate


def is_sparse(array: NDArray | None) -> bool:
    """Say whether an array has another storage type than "default": it is sparse or ragged."""
    return array is not None and array.stype != "default"


def kinds_of(arrays: dict[str, NDArray]) -> dict[str, str]:
    """Return the storage types of those arrays that are not dense."""
    return {name: array.stype for name, array in arrays.items() if array.stype != "default"}


def allocate_as(
    stype: str, shape: tuple[int, ...], ctx: Context, dtype: str, what: str = "an array"
) -> NDArray:
    """Return a new array of zeros of any storage type; a sparse one stores nothing, and ragged rows are empty.

    What stands for the array in an error is `what`.

    Shape:
        returns: `shape`.
    """
    if stype == "ragged":
        return RaggedNDArray.zeros(shape, ctx, torch_dtype(dtype))
    return allocate(shape, ctx, dtype, what) if stype == "default" else zeros(stype, shape, ctx, dtype)


def stored_bytes(array: NDArray) -> int:
    """Return the memory that an array's values take, in bytes; of a sparse one, with the places of those it stores."""
    stored = array.stored
    if isinstance(stored, torch.Tensor):
        return stored.nbytes
    parts = (getattr(stored, name, None) for name in ("values", "rows", "columns", "starts", "offsets"))
    return sum(part.nbytes for part in parts if part is not None)


def all_rows(tensor: torch.Tensor) -> RowSparse:
    """Return a dense tensor as a row-sparse value that stores every row; the memory is shared.

    Shape:
        tensor, returns: (N, ...).
    """
    return RowSparse(_counting(tensor.shape[0], tensor.device), tensor, tensor.shape)


@lru_cache(maxsize=64)
def _counting(length: int, device: torch.device) -> torch.Tensor:
    return torch.arange(length, device=device)


def array_of(value: Any, ctx: Context) -> NDArray:
    """Return a value of a program as an array: a tensor, a record, or a gradient of some rows.

    Shape:
        returns: as the value.
    """
    plain = value.detach()
    is_rows = isinstance(plain, torch.Tensor) and plain.is_sparse
    made: NDArray = handle.array_of(as_rows(plain) if is_rows else plain, ctx)
    return made


def seed_of(grad: NDArray, out: NDArray) -> Any:
    """Return the gradient given for an output: of some rows if both are row-sparse, of values if both are ragged.

    Shape:
        grad, returns: as the output; (T, ...) where both are ragged and hold T values.
    """
    if isinstance(out, RaggedNDArray) or isinstance(grad, RaggedNDArray):
        return _ragged_seed(grad, out)
    dtype, device = out.stored.dtype, out.context.torch_device
    if isinstance(grad, RowSparseNDArray) and isinstance(out, RowSparseNDArray):
        rows, values = grad.parts()
        return row_gradient(rows.to(device), values.to(device, dtype), grad.shape)
    return grad.raw.to(device, dtype)


def _ragged_seed(grad: NDArray, out: NDArray) -> torch.Tensor:
    """Return the values of a ragged output's gradient, in the output's type."""
    if not (isinstance(out, RaggedNDArray) and isinstance(grad, RaggedNDArray)):
        raise ArgumentError(
            f"out_grads: the output is {out.stype}, its gradient {grad.stype}; expected nd.ragged_array(gradients, "
            "output.offsets) for a ragged output, and a dense array for a dense one"
        )
    own, given = out.stored, grad.stored.to(out.context.torch_device)
    if not own.has_same_rows(given):
        raise ShapeError("out_grads: the rows of a ragged gradient are not as long as those of the output")
    return given.values.to(own.dtype)


def dense_pointers(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the dense tensors among values, and the stored parts of the others.

    Shape:
        returns: each as the value; of a sparse one, of its stored parts.
    """
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

    Shape:
        grads: each as its target.

    Args:
        grads: what the engine returned, for a ragged argument as a record; None for one that no head depends on.
        taken: tensors whose memory must not end up in an array.

    Returns:
        The positions of the others.
    """
    seen = set(map(torch.Tensor.data_ptr, taken))
    rest = []
    for i, (grad, target, add) in enumerate(zip(grads, targets, adds)):
        if isinstance(target, RaggedNDArray):
            _to_ragged(grad, target, add)
        elif isinstance(target, RowSparseNDArray):
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
    found = target.stored.emptied() if grad is None else as_rows(grad)
    if found.values.dtype != target.values.dtype:
        found = found.replaced(found.values.to(target.values.dtype))
    if add:
        target.take_over(add_rows([target.stored, found]))
        return
    pointer = found.values.data_ptr()
    if pointer in seen and found.values.numel():
        found = found.replaced(found.values.clone())
    seen.add(pointer)
    target.take_over(found)


def _to_ragged(grad: Ragged, target: RaggedNDArray, add: bool) -> None:
    """Put a ragged gradient into an array, or add it to what that holds."""
    old = target.stored
    found = grad.replaced(grad.values.to(old.dtype, copy=True))
    if add and old.values.shape[0]:
        if not old.has_same_rows(found):
            raise StateError(
                "backward: a ragged gradient is to be added to one of rows of other lengths; clear it, or bind the "
                "argument with grad_req='write'"
            )
        found.values.add_(old.values)
    target.take_over(found)


def _to_csr(grad: Any, target: CSRNDArray, add: bool) -> None:
    dense = grad if grad is not None else target.values.new_zeros(target.shape)
    dense = (dense.to_dense() if dense.is_sparse else dense).to(target.values.dtype)
    target.take_over(stored_as(target.stored.dense() + dense if add else dense, "csr"))


def load_stored(name: str, array: NDArray, value: Any, borrow: bool) -> Any:
    """Copy an input of which the value or the array is sparse or ragged.

    Shape:
        value: as the array.

    Args:
        borrow: leave a matrix or ragged value where it is, if it fits.

    Returns:
        The matrix or ragged value to be read where it is; None when it was copied.
    """
    if isinstance(value, Ragged) or isinstance(array, RaggedNDArray):
        return _load_ragged(name, array, value, borrow)
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


def _load_ragged(name: str, array: NDArray, value: Any, borrow: bool) -> Any:
    """Give a ragged array new rows; return what is borrowed instead, None where the array has them itself."""
    if not isinstance(array, RaggedNDArray) or not isinstance(value, Ragged):
        given = "ragged" if isinstance(value, Ragged) else f"an array of shape {tuple(value.shape)}"
        wanted = "nd.ragged_array(values, offsets)" if isinstance(array, RaggedNDArray) else "a dense array"
        raise ArgumentError(
            f"{name} is {given}, bound is a {array.stype} array of shape {array.shape}; expected {wanted}"
        )
    own, found = array.stored, value
    if value.shape != own.shape:
        raise ShapeError(f"{name} has {_ragged_shape(value.shape)}, expected {_ragged_shape(own.shape)}")
    if value.values.device != own.values.device:
        found = value.to(own.values.device)
    if found.values.dtype is not own.values.dtype:
        found = found.replaced(found.values.to(own.values.dtype))
    if borrow:
        return found
    array.take_over(found.clone() if found.values is value.values else found)
    return None


def _ragged_shape(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} rows" + (f" of elements of shape {shape[1:]}" if shape[1:] else "")
