"""Files with the state of a training run: plain data and arrays, nothing that could be executed.

A ``.run`` file is a safetensors file. Its text "run" is JSON: numbers, texts, lists and dicts; an array stands in it as
``{"$array": key, "as": kind}``, a tuple as ``{"$tuple": [...]}``, and a dict whose keys are no texts as
``{"$items": [[key, value], ...]}``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import torch

from .base import ArgumentError, FileFormatError
from .context import cpu
from .ndarray import NDArray, safetensors
from .ndarray.row_sparse import RowSparseNDArray

__all__ = ["VERSION", "peek", "read", "write"]

VERSION = 1
"""Of the files that are written; other versions are refused."""

_TEXT = "run"


def write(file: IO[bytes], state: Mapping[str, Any]) -> None:
    """Write a state to an open file.

    Args:
        file: the file.
        state: numbers, texts, None, lists, tuples, dicts, and arrays: NumPy's, torch's, NDArrays.

    Raises:
        ArgumentError: there is something else in it; names where.
    """
    packer = _Packer()
    text = json.dumps({"version": VERSION, "state": packer.pack(state, "state")})
    safetensors.write(file, packer.arrays, {_TEXT: text})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state that a file holds.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: it is damaged, of another version, or something else.
    """
    name = os.fspath(path)
    arrays, texts = safetensors.read(name)
    packed = _state(name, texts)
    try:
        state: dict[str, Any] = _unpacked(packed, arrays)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise FileFormatError(f"{name}: its text {_TEXT!r} is damaged: {error!r}") from error
    return state


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state that a file holds, in place of its arrays the words for them; errors as in `read`."""
    return _state(os.fspath(path), safetensors.read_metadata(os.fspath(path)))


def _state(name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a state as it stands in JSON."""
    if _TEXT not in texts:
        raise FileFormatError(f"{name}: a safetensors file, but not the state of a run")
    try:
        content = json.loads(texts[_TEXT])
        version, state = content["version"], content["state"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileFormatError(f"{name}: its text {_TEXT!r} is damaged: {error}") from error
    if version != VERSION:
        raise FileFormatError(
            f"{name}: version {version!r} of a run's state; this package reads version {VERSION}"
        )
    if not isinstance(state, dict):
        raise FileFormatError(f"{name}: its state is a {type(state).__name__}, expected a dict")
    return state


class _Packer:
    """Takes arrays out of a state."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray] = {}

    def pack(self, value: Any, place: str) -> Any:
        """Return what stands for a value in JSON; `place` names it."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Mapping):
            return self._mapping(value, place)
        if isinstance(value, tuple):
            return {"$tuple": self.pack(list(value), place)}
        if isinstance(value, list):
            return [self.pack(each, f"{place}.{i}") for i, each in enumerate(value)]
        return self._array(value, place)

    def _mapping(self, value: Mapping[Any, Any], place: str) -> Any:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self.pack(each, f"{place}.{key}") for key, each in value.items()}
        rows = [[self.pack(key, place), self.pack(each, f"{place}.{key}")] for key, each in value.items()]
        return {"$items": rows}

    def _array(self, value: Any, place: str) -> Any:
        if isinstance(value, RowSparseNDArray):
            parts = {"data": value.data, "indices": value.indices, "shape": list(value.shape)}
            return {"$rows": self.pack(parts, place)}
        if isinstance(value, NDArray) and value.stype == "default":
            kind, array = "nd", value
        elif isinstance(value, torch.Tensor):
            kind, array = "torch", NDArray(value.detach().cpu(), cpu())
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            kind, array = "numpy", NDArray(torch.from_numpy(np.ascontiguousarray(value)), cpu())
        else:
            raise ArgumentError(
                f"{place} is a {type(value).__name__}; a run's state holds numbers, texts, lists, dicts and arrays"
            )
        self.arrays[place] = array
        return {"$array": place, "as": kind}


def _unpacked(value: Any, arrays: Mapping[str, NDArray]) -> Any:
    if isinstance(value, list):
        return [_unpacked(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        array = arrays[value["$array"]]
        return {"nd": lambda: array, "torch": lambda: array.raw, "numpy": array.asnumpy}[value["as"]]()
    if "$tuple" in value:
        return tuple(_unpacked(value["$tuple"], arrays))
    if "$items" in value:
        return {_unpacked(key, arrays): _unpacked(each, arrays) for key, each in value["$items"]}
    if "$rows" in value:
        parts = _unpacked(value["$rows"], arrays)
        return RowSparseNDArray(parts["data"].raw, parts["indices"].raw, tuple(parts["shape"]), cpu())
    return {key: _unpacked(each, arrays) for key, each in value.items()}
