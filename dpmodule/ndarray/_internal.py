"""Operators whose names start with an underscore, as functions over arrays."""

from __future__ import annotations

from typing import Any

from ..base import ArgumentError
from .cached_op import CachedOp as CachedOp
from .faces import face_of, listed
from .handle import Handle
from .ndarray import NDArray

NDArrayBase = Handle


def _set_value(src: float, out: Any = None) -> Any:
    """Fill an array with a number, as ``out[:] = src`` does.

    Args:
        src: the number.
        out: the array; returned.

    Raises:
        ArgumentError: `out` is no array.
    """
    if not isinstance(out, NDArray):
        raise ArgumentError(f"_set_value: out is {type(out).__name__}, expected the array to fill")
    out[:] = src
    return out


def __getattr__(name: str) -> Any:
    found = globals()[name] = face_of("_internal", name)
    return found


def __dir__() -> list[str]:
    return listed("_internal", globals())
