"""Numbers, yes or no, and places in lists as people give them."""

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
    """Return a plain float of a number of Python, numpy or torch, or of an array of one."""
    if type(value) is float:
        return value
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        return float(value.item())  # numpy itself takes those without axes only, from some version on
    if not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except OverflowError:
            raise ArgumentError(
                f"{what}: an integer that is too large for a float (at {user_line()})"
            ) from None
        except (TypeError, ValueError, RuntimeError):  # torch raises the last one
            pass
    raise wrong_type(what, value, "is no number")


def numbers(value: Any, what: str) -> NDArray[Any]:
    """Return a new array of numbers of the machine's own types.

    Shape:
        value, returns: any.

    Args:
        value: an array or a tensor, or what numpy makes an array of.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    try:
        array = np.array(value, order="C")
    except ValueError as failure:  # of lists of different lengths
        raise ForeignValueError(f"{what}: {failure} (at {user_line()})") from None
    if array.dtype.kind not in "biuf":
        raise ForeignValueError(
            f"{what}: Input Tensor should be a numpy.ndarray or a valid list of floats, numbers in any case, got"
            f" {type(value).__name__} of {array.dtype} (at {user_line()})"
        )
    if not array.dtype.isnative or array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return array


def _refuse(value: Any, what: str, expected: str) -> NoReturn:
    raise ArgumentError(f"{what} is {value!r}, expected {expected} (at {user_line()})")


def number_from(value: Any, least: float, what: str) -> float:
    """Return a plain float that is not below `least`; see `number`."""
    found = number(value, what)
    return found if found >= least else _refuse(value, what, f"{least:g} or more")


def finite(value: Any, what: str) -> float:
    """Return a plain float that is neither NaN nor infinite; see `number`."""
    found = number(value, what)
    return found if math.isfinite(found) else _refuse(value, what, "a finite number")


def below_one(value: Any, what: str) -> float:
    """Return a plain float from 0 on that is below 1; see `number`."""
    found = number(value, what)
    return found if 0.0 <= found < 1.0 else _refuse(value, what, "0 or more, below 1")


def probability(value: Any, what: str) -> float:
    """Return a plain float from 0 to 1; see `number`."""
    found = number(value, what)
    return found if 0.0 <= found <= 1.0 else _refuse(value, what, "a probability")


def flag(value: Any, what: str) -> bool:
    """Return yes or no: True or False, of Python or numpy, or an integer."""
    if value is True or value is False:
        return value
    found = value if isinstance(value, np.bool_) else as_label(value)
    if isinstance(found, (int, np.bool_)):
        return bool(found)
    raise wrong_type(what, value, "is neither True nor False")


def text(value: Any, what: str) -> str:
    """Return a text."""
    if isinstance(value, str):
        return value
    raise wrong_type(what, value, "is no text")


def single_line_text(value: Any, what: str) -> str:
    """Return a text that a line of a model file can hold."""
    found = text(value, what)
    if "\n" in found or any("\ud800" <= character <= "\udfff" for character in found):
        raise ArgumentError(f"{what}: {found!r} cannot stand in one line of a model file (at {user_line()})")
    return found


def file_name(value: Any, what: str) -> str:
    """Return the name of a file."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if isinstance(found, str):
        if "\0" in found or any("\ud800" <= character < "\udc80" for character in found):
            raise ArgumentError(f"{what}: no file can be named {found!r} (at {user_line()})")
        return found
    raise wrong_type(what, value, "is no name of a file")


def as_index(value: Any, size: int, what: str) -> int:
    """Return a place in a list, an integer from 0 on."""
    found = as_integer(value, what)
    if found < 0:
        raise NegativeIndexError(f"{what}: can't convert negative value {found} (at {user_line()})")
    if found >= size:
        raise BoundsError(f"{what}: {found} is outside of {size} (at {user_line()})")
    return found


TOO_LARGE = 1 << 31
"""Sizes and attributes are numbers of 32 bits in the native engine."""


def as_integer(value: Any, what: str) -> int:
    """Return a plain integer; floats such as 2.0 count, as iterators of arrays give labels."""
    if type(value) is int:
        return value
    found = as_label(value)
    if isinstance(found, int):
        return found
    raise wrong_type(what, value, "is no integer")


def as_label(value: Any) -> Any:
    """Return a plain integer for one label, and a list of labels as it is; see `whole`."""
    try:
        return index(value)
    except TypeError:
        is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
        return int(value) if is_whole else value


def one_or_several(value: Any, what: str) -> Any:
    """Return a plain integer, or something to make a list of as it is."""
    found = as_label(value)
    if not isinstance(found, (int, list)):
        try:
            iter(found)
        except TypeError:
            raise wrong_type(what, value, "is no integer and no list of integers") from None
    return found


def sizes_of(dim: int | Sequence[int]) -> tuple[int, ...]:
    """Return dimensions as a tuple of plain integers."""
    given: Any = dim  # a text has elements, too
    is_list = type(given) in (tuple, list) or (
        isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1) > 0
    )
    found = tuple(
        [size if type(size) is int else as_integer(size, "dim") for size in (given if is_list else (given,))]
    )
    for size in found:
        if not 0 < size < TOO_LARGE:
            raise ShapeError(f"dim is {dim!r}, expected positive sizes below {TOO_LARGE} (at {user_line()})")
    return found
