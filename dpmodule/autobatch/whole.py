"""Integers as people give them: of Python, numpy or torch, or floats without a fraction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from .errors import ShapeError, foreign_value, user_line

__all__ = ["TOO_LARGE", "as_label", "one_or_several", "sizes_of", "whole"]

TOO_LARGE = 1 << 31
"""Sizes and attributes are numbers of 32 bits in the native engine."""


def whole(value: Any, what: str) -> int:
    """Return a plain integer.

    Args:
        value: an integer, or a float such as 2.0, as iterators of arrays give labels.
        what: what it is for.

    Raises:
        ForeignValueError: it is something else.
    """
    if type(value) is int:
        return value
    found = as_label(value)
    if isinstance(found, int):
        return found
    raise foreign_value(what, value, "is no integer")


def as_label(value: Any) -> Any:
    """Return a plain integer for one label, and a list of labels as it is; see `whole`."""
    try:
        return index(value)
    except TypeError:
        is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
        return int(value) if is_whole else value


def one_or_several(value: Any, what: str) -> Any:
    """Return a plain integer, or something to make a list of as it is.

    Args:
        value: an integer, see `whole`, or a list of them.
        what: what it is for.

    Raises:
        ForeignValueError: it is neither.
    """
    found = as_label(value)
    if not isinstance(found, (int, list)):
        try:
            iter(found)
        except TypeError:
            raise foreign_value(what, value, "is no integer and no list of integers") from None
    return found


def sizes_of(dim: int | Sequence[int]) -> tuple[int, ...]:
    """Return dimensions as a tuple of plain integers.

    Args:
        dim: one size, or several.

    Raises:
        ForeignValueError: a size is no integer.
        ShapeError: a size is not positive, or does not fit 32 bits.
    """
    given: Any = dim  # a text has elements, too
    is_list = type(given) in (tuple, list) or (
        isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1) > 0
    )
    found = tuple(
        [size if type(size) is int else whole(size, "dim") for size in (given if is_list else (given,))]
    )
    for size in found:
        if not 0 < size < TOO_LARGE:
            raise ShapeError(f"dim is {dim!r}, expected positive sizes below {TOO_LARGE} (at {user_line()})")
    return found
