"""Attribute types, which parse Python values and the text of saved graphs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..base import dtype_name, plain


@dataclass(frozen=True, slots=True, eq=False)
class AttrType:
    """Type of an attribute: `parse` raises ValueError or TypeError; `expects` completes the error message."""

    parse: Callable[[Any], Any]
    expects: str
    annotation: str


def to_text(value: Any) -> str:
    """Return a value as attribute text, as Python prints plain numbers and tuples."""
    # the digits that NumPy shows: a float32 of 0.1 is "0.1"
    return str(value) if isinstance(value, np.floating) else str(plain(value))


_LONG = re.compile(r"(?<![\w.+-])([+-]?\d+)L\b")
_UNICODE = re.compile(r"""u(['"])(.*)\1""", re.DOTALL)


@lru_cache(4096)  # the shapes of a network's parameters repeat
def literal(text: str) -> Any:
    """Parse a Python literal like ``ast.literal_eval``, but thread-safe; do not write to a list that it returns."""
    if text.isdecimal() and text.isascii() and not text.startswith("0"):
        return int(text)
    try:
        return ast.literal_eval(text)
    except SystemError:
        # Python's parser shares a counter between threads and fails if two of them parse (gh-106905)
        return literal(text)


def as_python3(text: str) -> str:
    """Return attribute text without Python 2 syntax: long integers such as 8L, and ``u'word'``.

    Example:
        >>> from dpmodule.ops.attrs import as_python3
        >>> as_python3("(8L, 3L)"), as_python3("u'same'")
        ('(8, 3)', 'same')
    """
    word = _UNICODE.fullmatch(text)
    if word:
        return word[2]
    return _LONG.sub(r"\1", text) if "L" in text else text


def _literal(value: Any) -> Any:
    """Parse text as a Python literal; MXNet also writes lists and the bare words true and false."""
    if not isinstance(value, str):
        return plain(value)
    text = as_python3(value.strip())
    return {"true": True, "false": False, "none": None}.get(text.lower()) if text.isalpha() else literal(text)


def _to_int(value: Any) -> int:
    number = _literal(value)
    if isinstance(number, bool) and isinstance(value, str) or not isinstance(number, int):
        if isinstance(number, float) and not isinstance(value, str) and number.is_integer():
            return int(number)
        raise ValueError(value)
    return int(number)


def _to_real(value: Any) -> float:
    if isinstance(value, str):
        return float(as_python3(value.strip()))
    number = plain(value)
    if not isinstance(number, (int, float)):
        raise TypeError(value)
    return float(number)


def _to_fraction(value: Any) -> float:
    number = _to_real(value)
    if not 0 <= number <= 1:
        raise ValueError(value)
    return number


def _to_bool(value: Any) -> bool:
    flag = _literal(value)
    if flag in (True, False, 0, 1):
        return bool(flag)
    raise ValueError(value)


def _to_tuple(value: Any) -> tuple[Any, ...]:
    values = _literal(value)
    if values is None and isinstance(value, str) and value.strip() != "()":
        raise ValueError(value)
    if isinstance(values, (tuple, list)):
        return tuple(values)
    return (values,)


def _to_shape(value: Any) -> tuple[int, ...]:
    return tuple(_to_int(v) for v in _to_tuple(value))


def _to_word(value: Any) -> str:
    return as_python3(value) if isinstance(value, str) else str(value)


def _to_dtype(value: Any) -> str:
    return dtype_name(as_python3(value) if isinstance(value, str) else value)


def _to_ints_or_none(value: Any) -> tuple[int | None, ...]:
    if value is None or isinstance(value, str) and value.strip() == "None":
        return (None,)
    return tuple(None if v is None else _to_int(v) for v in _to_tuple(value))


def integer(low: int | None = None, high: int | None = None) -> AttrType:
    """An int, optionally within [low, high]."""

    def parse(value: Any) -> int:
        number = _to_int(value)
        if low is not None and number < low or high is not None and number > high:
            raise ValueError(value)
        return number

    limits = "" if low is None else f" from {low}"
    return AttrType(parse, f"an integer{limits}" + ("" if high is None else f" to {high}"), "int")


real = AttrType(_to_real, "a number", "float")
fraction = AttrType(_to_fraction, "a number from 0 to 1", "float")
boolean = AttrType(_to_bool, "True or False", "bool")
string = AttrType(_to_word, "a string", "str")
shape = AttrType(_to_shape, "a tuple of integers", "tuple[int, ...]")
ints = AttrType(_to_shape, "an integer or a tuple of integers", "int | tuple[int, ...]")
ints_or_none = AttrType(
    _to_ints_or_none, "a tuple of integers or None", "int | tuple[int | None, ...] | None"
)
reals = AttrType(
    lambda value: tuple(_to_real(v) for v in _to_tuple(value)), "a tuple of numbers", "tuple[float, ...]"
)
dtype = AttrType(_to_dtype, "a dtype such as 'float32'", "Any")


def choice(*names: str) -> AttrType:
    """One of a few words."""

    def parse(value: Any) -> str:
        word = _to_word(value)
        if word not in names:
            raise ValueError(value)
        return word

    return AttrType(parse, "one of " + ", ".join(names), "str")


def optional(inner: AttrType) -> AttrType:
    """A value of type `inner`, or None."""

    def parse(value: Any) -> Any:
        return None if value is None or value == "None" else inner.parse(value)

    annotation = inner.annotation if inner.annotation == "Any" else f"{inner.annotation} | None"
    return AttrType(parse, f"{inner.expects}, or None", annotation)
