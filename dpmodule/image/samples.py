"""Where an `ImageIter` finds labels and image files: lists, folders and record files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import ArgumentError, FileError, FileFormatError, numeric_types
from ..files import regular_file
from ..ndarray import NDArray, array

Entry = tuple[NDArray, str]


def read_list(path: str, dtype: str) -> tuple[dict[Any, Entry], list[Any]]:
    """Read an image list: lines of number, labels and file, separated by tabs.

    Returns:
        Labels and file by number, and the numbers in order.
    """
    entries: dict[Any, Entry] = {}
    keys: list[Any] = []
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    key, entry = _entry(path, number, line, dtype)
                    entries[key] = entry
                    keys.append(key)
    except OSError as error:
        raise FileError(error.errno, f"image list: {error.strerror}", path) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: byte {error.start}: no text, but an image list is text") from error
    return entries, keys


def _entry(path: str, number: int, line: str, dtype: str) -> tuple[int, Entry]:
    fields = line.strip().split("\t")
    try:
        if len(fields) < 3:
            raise ValueError(line)
        labels = np.array([float(field) for field in fields[1:-1]])
        return int(fields[0]), (array(labels, dtype=dtype), fields[-1])
    except ValueError:
        raise FileFormatError(
            f"{path}: line {number}: {line.strip()[:60]!r}, expected number, labels and file, separated by tabs"
        ) from None


def labelled(entries: Sequence[Sequence[Any]], dtype: str) -> tuple[dict[Any, Entry], list[Any]]:
    """Read a list of labels and files given in Python: ``[label, file]`` or ``[label, ..., file]``.

    Returns:
        Labels and file by number, "1", "2", ..., and the numbers in order.
    """
    found: dict[Any, Entry] = {}
    for number, entry in enumerate(entries, 1):
        if len(entry) < 2:
            raise ArgumentError(f"imglist: entry {number} is {entry!r}, expected label and file")
        several = len(entry) == 2 and not isinstance(entry[0], numeric_types)
        label = entry[0] if several else entry[:-1]
        found[str(number)] = (array(label, dtype=dtype), entry[-1])
    return found, list(found)


def read_file(root: str | None, name: str) -> bytes:
    """Return the bytes of an image file."""
    path = os.path.join(root or "", name)
    try:
        with open(path, "rb", opener=regular_file) as file:
            return file.read()
    except OSError as error:
        raise FileError(error.errno, f"image file: {error.strerror}", path) from error
