"""Sparse arrays of executors: conversion to and from the records that programs use, and writing gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..base import ArgumentError, ShapeError, StateError
from ..context import Context
from ..ndarray import NDArray, handle
from ..ndarray.csr import CSRNDArray
from ..ndarray.growing_table import GrowingTable, HashedArray, is_hashed
from ..ndarray.ragged import RaggedNDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ndarray.sparse import zeros
from ..ndarray.sparse_base import BaseSparseNDArray
from ..ops.dtypes import torch_dtype
from ..ops.sparse import (
    Ragged,
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
    """Return True if an array is sparse or ragged: its storage type is not "default"."""
    return array is not None and array.stype != "default"


def kinds_of(arrays: dict[str, NDArray]) -> dict[str, str]:
    """Return the storage types of the arrays that are not dense, by name."""
    return {name: array.stype for name, array in arrays.items() if array.stype != "default"}


def allocate_as(
    stype: str, shape: tuple[int, ...], ctx: Context, dtype: str, what: str = "an array"
) -> NDArray:
    """Return a new array of zeros of any storage type; a sparse one stores nothing, and ragged rows are empty.

    Shape:
        returns: `shape`.
    """
    if stype == "default" and is_hashed(shape):
        return HashedArray(GrowingTable(shape, torch_dtype(dtype)))
    if stype == "ragged":
        return RaggedNDArray.zeros(shape, ctx, torch_dtype(dtype))
    return allocate(shape, ctx, dtype, what) if stype == "default" else zeros(stype, shape, ctx, dtype)


def stored_bytes(array: NDArray) -> int:
    """Return the memory of an array's values in bytes, including the indices of a sparse array."""
    stored = array.stored
    if isinstance(stored, torch.Tensor):
        return stored.nbytes
    parts = (getattr(stored, name, None) for name in ("values", "rows", "columns", "starts", "offsets"))
    return sum(part.nbytes for part in parts if part is not None)


def array_of(value: Any, ctx: Context) -> NDArray:
    """Return a value of a program (a tensor, a record, or a gradient of some rows) as an array.

    Shape:
        returns: as the value.
    """
    plain = value.detach()
    is_rows = isinstance(plain, torch.Tensor) and plain.is_sparse
    array: NDArray = handle.array_of(as_rows(plain) if is_rows else plain, ctx)
    return array


def seed_of(grad: NDArray, out: NDArray) -> Any:
    """Convert the gradient given for an output: to rows if both are row-sparse, to values if both are ragged.

    Shape:
        grad, returns: as the output; (T, ...) where both are ragged and hold T values.
    """
    if type(grad) is type(out) is NDArray:
        given, made = grad.raw, out.raw
        same = given.dtype == made.dtype and given.device == made.device
        return given if same else given.to(made.device, made.dtype)
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
            "output.offsets) for a ragged output, and a dense array for a dense output"
        )
    own, given = out.stored, grad.stored.to(out.context.torch_device)
    if not own.has_same_rows(given):
        raise ShapeError("out_grads: the rows of the ragged gradient and the output have different lengths")
    return given.values.to(own.dtype)


def dense_pointers(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the dense tensors among the values, and the stored values of sparse ones.

    Shape:
        returns: each as the value, or as its stored values if sparse.
    """
    tensors = []
    for value in values:
        if isinstance(value, Sparse):
            tensors.append(value.values)
        else:
            tensors.append(value._values() if value.is_sparse else value)
    return tensors


def deliver_sparse(
    grads: Sequence[Any], targets: Sequence[NDArray], adds: Sequence[bool], taken: Sequence[torch.Tensor]
) -> list[int]:
    """Write or add the gradients that are sparse or whose array is sparse.

    Shape:
        grads: each as its target.

    Args:
        grads: the gradients from autograd, as records for ragged arguments; None if no head depends on the argument.
        taken: tensors whose memory must not end up in an array.

    Returns:
        The positions of the remaining gradients.
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
    rows = target.stored.emptied() if grad is None else as_rows(grad)
    if rows.values.dtype != target.values.dtype:
        rows = rows.replaced(rows.values.to(target.values.dtype))
    if add:
        target.take_over(add_rows([target.stored, rows]))
        return
    pointer = rows.values.data_ptr()
    if pointer in seen and rows.values.numel():
        rows = rows.replaced(rows.values.clone())
    seen.add(pointer)
    target.take_over(rows)


def _to_ragged(grad: Ragged, target: RaggedNDArray, add: bool) -> None:
    """Write a ragged gradient to an array, or add it to the array's values."""
    old = target.stored
    new = grad.replaced(grad.values.to(old.dtype, copy=True))
    if add and old.values.shape[0]:
        if not old.has_same_rows(new):
            raise StateError(
                "backward: a ragged gradient cannot be added to one with rows of other lengths; clear the gradient, or "
                "bind the argument with grad_req='write'"
            )
        new.values.add_(old.values)
    target.take_over(new)


def _to_csr(grad: Any, target: CSRNDArray, add: bool) -> None:
    dense = grad if grad is not None else target.values.new_zeros(target.shape)
    dense = (dense.to_dense() if dense.is_sparse else dense).to(target.values.dtype)
    target.take_over(stored_as(target.stored.dense() + dense if add else dense, "csr"))


def load_stored(name: str, array: NDArray, value: Any, borrow: bool) -> Any:
    """Copy an input if its value or array is sparse or ragged.

    Shape:
        value: as the array.

    Args:
        borrow: do not copy a matrix or ragged value that fits.

    Returns:
        The borrowed matrix or ragged value; None if it was copied.
    """
    if isinstance(value, Ragged) or isinstance(array, RaggedNDArray):
        return _load_ragged(name, array, value, borrow)
    if tuple(value.shape) != array.shape:
        raise ShapeError(f"{name} has shape {tuple(value.shape)}, expected {array.shape}")
    if not isinstance(array, BaseSparseNDArray):
        array.raw.copy_(densify(value))
        return None
    stored = stored_as(value.to(array.values.device), array.stype)
    if stored.dtype != array.values.dtype:
        stored = stored.replaced(stored.values.to(array.values.dtype))
    if borrow and stored is value:
        return stored
    array.take_over(stored.clone())
    return None


def _load_ragged(name: str, array: NDArray, value: Any, borrow: bool) -> Any:
    """Copy new rows into a ragged array and return None, or return the borrowed rows."""
    if not isinstance(array, RaggedNDArray) or not isinstance(value, Ragged):
        given = "ragged" if isinstance(value, Ragged) else f"an array of shape {tuple(value.shape)}"
        wanted = "nd.ragged_array(values, offsets)" if isinstance(array, RaggedNDArray) else "a dense array"
        raise ArgumentError(
            f"{name} is {given}, but the bound array is {array.stype} of shape {array.shape}; expected {wanted}"
        )
    own, rows = array.stored, value
    if value.shape != own.shape:
        raise ShapeError(f"{name} has {_ragged_shape(value.shape)}, expected {_ragged_shape(own.shape)}")
    if value.values.device != own.values.device:
        rows = value.to(own.values.device)
    if rows.values.dtype is not own.values.dtype:
        rows = rows.replaced(rows.values.to(own.values.dtype))
    if borrow:
        return rows
    array.take_over(rows.clone() if rows.values is value.values else rows)
    return None


def _ragged_shape(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} rows" + (f" of elements of shape {shape[1:]}" if shape[1:] else "")
