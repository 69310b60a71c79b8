"""MXNet's helpers for custom iterators, which name and convert data (`mx.io.utils`)."""

from __future__ import annotations

from typing import Any

from .._core import lazy
from ..base import ArgumentError
from ..ndarray import NDArray
from .wrap import named_arrays, wrap

__all__: list[str] = []

lazy.publish(__name__, __all__)


def _init_data(data: Any, allow_empty: bool, default_name: str) -> list[tuple[str, NDArray]]:
    """Return data as pairs of name and array.

    Args:
        data: an array, a list of arrays, a dictionary of arrays by name; may be None.
    """
    pairs = named_arrays(data, default_name)
    if not pairs and not allow_empty:
        raise ArgumentError(f"{default_name} is empty, expected an array, or a list or dictionary of arrays")
    return [(name, wrap(value, name)) for name, value in pairs]
