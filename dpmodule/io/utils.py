"""MXNet's import path of what custom iterators use to name and convert data (`mx.io.utils`)."""

from __future__ import annotations

from typing import Any

from .._core import lazy
from ..base import ArgumentError
from ..ndarray import NDArray
from .wrap import named_arrays, wrap

__all__: list[str] = []

lazy.publish(__name__, __all__)


def _init_data(data: Any, allow_empty: bool, default_name: str) -> list[tuple[str, NDArray]]:
    """Return what a user gave as data, as pairs of name and array.

    Args:
        data: an array, a list of arrays, a dictionary of them by name, or None.
    """
    pairs = named_arrays(data, default_name)
    if not pairs and not allow_empty:
        raise ArgumentError(f"{default_name} is empty, expected an array, or several in a list or dictionary")
    return [(name, wrap(value, name)) for name, value in pairs]
