"""What callers of a key-value store hand over: keys, and for each key the arrays of all devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..base import ArgumentError
from ..ndarray import NDArray

Key = int | str

KeyLike: TypeAlias = "int | str | np.integer[Any]"
"""What a value is stored under."""

KeysLike: TypeAlias = "KeyLike | Sequence[KeyLike]"
"""A key, or a list of them."""

ArraysLike: TypeAlias = "NDArray | Sequence[NDArray] | Sequence[NDArray | Sequence[NDArray]]"
"""For one key an array, or a list with one for each device; for a list of keys a list of these."""


class KeysError(ArgumentError, AssertionError):
    """Keys of the wrong type or number; also what MXNet raises there."""


def _checked(key: object) -> Key:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)):
        return int(key)
    raise KeysError(f"kvstore: key {key!r} is a {type(key).__name__}, expected a string or an integer")


def paired(key: KeysLike, value: ArraysLike) -> list[tuple[Key, list[NDArray]]]:
    """Return each key with its arrays.

    Args:
        key: a string, an integer, or a list of them, all of one kind.
        value: for one key an NDArray or a list with one for each device; for a list of keys a list of these.
    """
    if not isinstance(key, (list, tuple)):
        return [(_checked(key), _arrays(key, value))]
    if not isinstance(value, (list, tuple)) or len(key) != len(value):
        count = len(value) if isinstance(value, (list, tuple)) else f"a {type(value).__name__}, not a list,"
        raise KeysError(f"kvstore: got {len(key)} keys and {count} values")
    pairs = [(_checked(one), _arrays(one, its)) for one, its in zip(key, value)]
    if {str} != set(map(type, key)) and len({isinstance(one, str) for one, _ in pairs}) > 1:
        raise KeysError(f"kvstore: keys {list(key)!r} are strings and integers; use one kind")
    return pairs


def _arrays(key: object, value: ArraysLike) -> list[NDArray]:
    arrays: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    for array in arrays:
        if not isinstance(array, NDArray):
            raise ArgumentError(
                f"kvstore: the value of key {key!r} is a {type(array).__name__}, expected NDArrays"
            )
    if not arrays:
        raise ArgumentError(f"kvstore: key {key!r} has an empty list of values, expected NDArrays")
    return arrays


def grouped(key: KeysLike, value: ArraysLike) -> dict[Key, list[NDArray]]:
    """Return the arrays of each key; those of a key given twice come together. See `paired`."""
    pairs = paired(key, value)
    groups = dict(pairs)
    if len(groups) == len(pairs):
        return groups
    groups = {}
    for one, arrays in pairs:
        groups.setdefault(one, []).extend(arrays)
    return groups
