"""Conversion of a user's data to named NDArrays, without copying if possible."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError, DTypeError
from ..context import Context, current_context
from ..ndarray import NDArray
from ..ndarray.ragged import ragged_array
from ..ndarray.sparse_creation import csr_matrix, is_scipy
from ..ops.write_tracking import expose


def is_array(value: object) -> bool:
    """Return True if `value` is one array: an NDArray, a tensor, or an object that NumPy converts."""
    return isinstance(value, (NDArray, torch.Tensor, np.ndarray)) or hasattr(value, "__array__")


def shares_read_only(value: object) -> bool:
    """Return True if `wrap` shares read-only memory, such as a file mapped for reading."""
    return isinstance(value, np.ndarray) and value.dtype == np.float32 and not value.flags.writeable


def wrap(value: Any, what: str) -> NDArray:
    """Return `value` as an NDArray, sharing its memory where possible.

    NDArrays are returned unchanged; tensors keep their type and device. NumPy arrays and similar objects become
    float32 in the current context, as with `nd.array`; float32 arrays are not copied. A list of numbers becomes an
    array of one axis, a list of rows a ragged array (see `nd.ragged_array`).
    """
    if isinstance(value, NDArray):
        return value
    if is_scipy(value):
        return csr_matrix(value)
    if isinstance(value, torch.Tensor):
        expose(value)
        return NDArray(value.detach(), Context(value.device))
    if isinstance(value, (list, tuple)) and value and all(map(_is_row, value)):
        return ragged_array(value)
    if not is_array(value) and not (
        isinstance(value, (list, tuple)) and value and all(isinstance(item, Number) for item in value)
    ):
        advice = (
            "; a list holds one array for each input: pass numpy.array(list) for a single one"
            if isinstance(value, Number)
            else ""
        )
        raise ArgumentError(
            f"{what} is {type(value).__name__}, expected an NDArray, a torch tensor, a NumPy array, a list of "
            f"numbers, or a list or dict of them{advice}"
        )
    array = np.asarray(value)
    if array.dtype.kind in "OSUMm":
        raise DTypeError(f"{what} has NumPy type {array.dtype}, expected numbers")
    context = current_context()
    tensor = _from_numpy(array.astype(np.float32, order="C", copy=False))
    return NDArray(tensor.to(context.torch_device), context)


def _is_row(value: Any) -> bool:
    """Return True if an item of a list is a row of a ragged array."""
    return isinstance(value, (list, tuple)) or (is_array(value) and bool(np.ndim(value)))


def _from_numpy(array: np.ndarray[Any, np.dtype[np.float32]]) -> torch.Tensor:
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():  # torch warns here; callers check shares_read_only
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def numbered_names(name: str, count: int) -> list[str]:
    """Return the default names of `count` arrays: ``data``, or ``_0_data``, ``_1_data`` for several."""
    return [name] if count == 1 else [f"_{i}_{name}" for i in range(count)]


def named_arrays(value: Any, name: str) -> list[tuple[str, Any]]:
    """Return pairs of name and array from an array, a list of arrays, a dict of arrays or None.

    Args:
        value: the arrays; dicts are sorted by name.
        name: name of a single array, or ending of the names of several.
    """
    if value is None:
        return []
    if isinstance(value, Mapping):
        return sorted(value.items())
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return list(zip(numbered_names(name, len(values)), values, strict=True))
