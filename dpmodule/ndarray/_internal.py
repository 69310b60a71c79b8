"""Operators whose names start with an underscore, as functions of arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

from .._core import lazy
from ..base import ArgumentError
from .cached_op import CachedOp as CachedOp
from .handle import Handle
from .ndarray import NDArray
from .op_functions import names_in, op_function_in

__all__ = ["CachedOp", "NDArrayBase"]

__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    otherwise=partial(op_function_in, "_internal"),
    operators=partial(names_in, "_internal"),
)

NDArrayBase = Handle


def _set_value(src: float, out: NDArray | None = None) -> Any:
    """Fill an array with a number, as ``out[:] = src`` does."""
    if not isinstance(out, NDArray):
        raise ArgumentError(f"_set_value: out is {type(out).__name__}, expected the array to fill")
    out[:] = src
    return out
