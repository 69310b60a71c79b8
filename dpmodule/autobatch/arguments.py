"""Conversion and validation of arguments: numbers, booleans, strings and indices."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from .errors import (
    ArgumentError,
    BoundsError,
    ForeignValueError,
    NegativeIndexError,
    ShapeError,
    user_line,
    wrong_type,
)


def number(value: Any, what: str) -> float:
    """Convert a number of Python, NumPy or torch, or an array of one element, to a float."""
    if type(value) is float:
        return value
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        return float(value.item())  # newer NumPy versions convert 0-d arrays only
    if not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except OverflowError:
            raise ArgumentError(f"{what}: the integer is too large for a float (at {user_line()})") from None
        except (TypeError, ValueError, RuntimeError):  # torch raises the last one
            pass
    raise wrong_type(what, value, "is not a number")


def numbers(value: Any, what: str) -> NDArray[Any]:
    """Convert to a new array with a native dtype.

    Shape:
        value, returns: any.

    Args:
        value: an array, a tensor, or anything that NumPy converts to an array.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    try:
        array = np.array(value, order="C")
    except ValueError as failure:  # nested lists of different lengths
        raise ForeignValueError(f"{what}: {failure} (at {user_line()})") from None
    if array.dtype.kind not in "biuf":
        raise ForeignValueError(
            f"{what}: Input Tensor should be a numpy.ndarray or a valid list of floats or other numbers, got"
            f" {type(value).__name__} of {array.dtype} (at {user_line()})"
        )
    if not array.dtype.isnative or array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return array


def _refuse(value: Any, what: str, expected: str) -> NoReturn:
    raise ArgumentError(f"{what} is {value!r}, expected {expected} (at {user_line()})")


def number_from(value: Any, least: float, what: str) -> float:
    """Return a float of at least `least`; see `number`."""
    found = number(value, what)
    return found if found >= least else _refuse(value, what, f"{least:g} or more")


def finite(value: Any, what: str) -> float:
    """Return a finite float; see `number`."""
    found = number(value, what)
    return found if math.isfinite(found) else _refuse(value, what, "a finite number")


def below_one(value: Any, what: str) -> float:
    """Return a float in [0, 1); see `number`."""
    found = number(value, what)
    return found if 0.0 <= found < 1.0 else _refuse(value, what, "0 or more, below 1")


def probability(value: Any, what: str) -> float:
    """Return a float in [0, 1]; see `number`."""
    found = number(value, what)
    return found if 0.0 <= found <= 1.0 else _refuse(value, what, "a probability")


def flag(value: Any, what: str) -> bool:
    """Return a bool from a bool of Python or NumPy, or from an integer."""
    if value is True or value is False:
        return value
    found = value if isinstance(value, np.bool_) else as_label(value)
    if isinstance(found, (int, np.bool_)):
        return bool(found)
    raise wrong_type(what, value, "is neither True nor False")


def text(value: Any, what: str) -> str:
    """Return the value if it is a string."""
    if isinstance(value, str):
        return value
    raise wrong_type(what, value, "is not a string")


def single_line_text(value: Any, what: str) -> str:
    """Return a string that fits in one line of a model file."""
    found = text(value, what)
    if "\n" in found or any("\ud800" <= character <= "\udfff" for character in found):
        raise ArgumentError(f"{what}: {found!r} does not fit in one line of a model file (at {user_line()})")
    return found


def file_name(value: Any, what: str) -> str:
    """Return a file name as a string."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if isinstance(path, str):
        if "\0" in path or any("\ud800" <= character < "\udc80" for character in path):
            raise ArgumentError(f"{what}: {path!r} is not a possible file name (at {user_line()})")
        return path
    raise wrong_type(what, value, "is not a file name")


def as_index(value: Any, size: int, what: str) -> int:
    """Return an index below `size`, an integer from 0."""
    found = as_integer(value, what)
    if found < 0:
        raise NegativeIndexError(f"{what}: can't convert negative value {found} (at {user_line()})")
    if found >= size:
        raise BoundsError(f"{what}: {found} is out of range for size {size} (at {user_line()})")
    return found


TOO_LARGE = 1 << 31
"""Limit of sizes and attributes, which are 32-bit integers in the native engine."""


def as_integer(value: Any, what: str) -> int:
    """Convert to an integer; whole floats such as 2.0 count, since iterators return labels as floats."""
    if type(value) is int:
        return value
    found = as_label(value)
    if isinstance(found, int):
        return found
    raise wrong_type(what, value, "is not an integer")


def as_label(value: Any) -> Any:
    """Convert one label to an integer, and return a list of labels unchanged; see `as_integer`."""
    try:
        return index(value)
    except TypeError:
        is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
        return int(value) if is_whole else value


def one_or_several(value: Any, what: str) -> Any:
    """Convert to an integer, or return an iterable unchanged."""
    labels = as_label(value)
    if not isinstance(labels, (int, list)):
        try:
            iter(labels)
        except TypeError:
            raise wrong_type(what, value, "is not an integer or a list of integers") from None
    return labels


def sizes_of(dim: int | Sequence[int]) -> tuple[int, ...]:
    """Return dimensions as a tuple of integers."""
    given: Any = dim  # a string is iterable, too
    is_list = type(given) in (tuple, list) or (
        isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1) > 0
    )
    checked_sizes = tuple(
        [size if type(size) is int else as_integer(size, "dim") for size in (given if is_list else (given,))]
    )
    for size in checked_sizes:
        if not 0 < size < TOO_LARGE:
            raise ShapeError(f"dim is {dim!r}, expected positive sizes below {TOO_LARGE} (at {user_line()})")
    return checked_sizes
