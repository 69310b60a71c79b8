"""Files with the state of a training run, which hold plain data and arrays but no code.

A ``.run`` file is a safetensors file. Its text "run" is JSON. None, bool, int, float, str, list and dict with str keys
are written as in JSON; any other value becomes a dict whose first key begins with "$" (see `_RunPacker`).
"""

from __future__ import annotations

import json
import os
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import numpy as np
import torch

from .._object_state import FACTORIES
from ..base import ArgumentError, FileFormatError
from ..context import cpu
from ..ndarray import NDArray, safetensors
from ..ndarray.row_sparse import RowSparseNDArray

VERSION = 2
"""Version of the format; files of other versions are refused."""

_TEXT = "run"
_LISTS: dict[str, Callable[[Iterable[Any]], Any]]
_LISTS = {kind.__name__: kind for kind in (tuple, set, frozenset, torch.Size)}
_DICTS: dict[str, Callable[[Iterable[Any]], Any]]
_DICTS = {"dict": dict, "OrderedDict": OrderedDict, "Counter": lambda items: Counter(dict(items))}
_BYTES: dict[str, Callable[[bytes], Any]] = {kind.__name__: kind for kind in (bytes, bytearray)}
_FACTORIES = {kind.__name__: kind for kind in FACTORIES}


def write(file: IO[bytes], state: Mapping[str, Any]) -> None:
    """Write a state to an open file.

    Args:
        state: None, numbers, str, bytes, arrays (NumPy's, torch's, NDArrays), and lists, tuples, sets, deques and
            dicts of them. Values come back with equal types, arrays and NumPy scalars with equal dtypes and shapes;
            NDArrays and tensors come back on the CPU.
    """
    packer = _RunPacker()
    try:
        text = json.dumps({"version": VERSION, "state": packer.pack(dict(state), "state")})
    except RecursionError:
        raise ArgumentError("a run's state is nested too deeply, or contains itself") from None
    safetensors.write(file, packer.arrays, {_TEXT: text})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state in a file."""
    name = os.fspath(path)
    arrays, texts = safetensors.read(name)
    packed = _state(name, texts)
    try:
        state: dict[str, Any] = _unpacked(packed, arrays)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        raise FileFormatError(f"{name}: its text {_TEXT!r} is damaged: {error!r}") from error
    return state


def peek(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the packed state in a file without reading the arrays; errors as in `read`."""
    return _state(os.fspath(path), safetensors.read_metadata(os.fspath(path)))


def _state(name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the packed state in a file's texts."""
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


class _RunPacker:
    """Conversion of a state to JSON values, with its arrays apart under their numbers as names."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray] = {}

    def pack(self, value: Any, path: str) -> Any:
        """Return a value as JSON holds it; `path` names the value in messages."""
        kind = type(value)
        if kind is int and value.bit_length() > 64:  # Python parses decimal numbers of 4300 digits at most
            return {"$int": hex(value)}
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.pack(item, f"{path}.{i}") for i, item in enumerate(value)]
        if kind in (tuple, set, frozenset, torch.Size):
            return {"$list": self.pack(list(value), path), "as": kind.__name__}
        if kind is deque:
            return {"$deque": self.pack(list(value), path), "maxlen": value.maxlen}
        if kind in (dict, OrderedDict, Counter, defaultdict):
            return self._dict(value, path)
        if kind is complex:
            return {"$complex": [value.real, value.imag]}
        if kind in (bytes, bytearray):
            return {"$bytes": value.hex(), "as": kind.__name__}
        if isinstance(value, np.generic):
            return {"$scalar": value.tobytes().hex(), "dtype": _dtype_text(value, path)}
        return self._array(value, path)

    def _dict(self, value: dict[Any, Any], path: str) -> dict[str, Any]:
        if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.pack(item, f"{path}.{key}") for key, item in value.items()}
        items = [[self.pack(key, path), self.pack(item, f"{path}.{key}")] for key, item in value.items()]
        if not isinstance(value, defaultdict):
            return {"$dict": items, "as": type(value).__name__}
        factory = value.default_factory
        if factory is not None and factory not in _FACTORIES.values():
            raise ArgumentError(
                f"{path} is a defaultdict of {factory!r}, which cannot be saved; a run's state may hold those of "
                f"{', '.join(_FACTORIES)}"
            )
        return {"$defaultdict": items, "factory": getattr(factory, "__name__", None)}

    def _array(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, RowSparseNDArray):
            fields = {"data": value.data, "indices": value.indices, "shape": list(value.shape)}
            return {"$rows": self.pack(fields, path)}
        if isinstance(value, NDArray) and value.stype == "default":
            return {"$array": self._put(value)}
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized:
            tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
            key = self._put(NDArray(tensor.reshape(-1).view(torch.uint8), cpu()))
            return {
                "$tensor": key,
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
            }
        if type(value) in (np.ndarray, np.memmap):
            order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
            dtype = _dtype_text(value, path)
            content = np.frombuffer(bytearray(value.tobytes(order)), np.uint8)
            key = self._put(NDArray(torch.from_numpy(content), cpu()))
            return {"$numpy": key, "dtype": dtype, "shape": list(value.shape), "order": order}
        layout = f" of {value.layout}" if isinstance(value, torch.Tensor) else ""
        raise ArgumentError(
            f"{path} is a {type(value).__name__}{layout}, which cannot be saved; a run's state holds None, numbers, "
            "str, bytes, dense arrays, and lists, tuples, sets, deques and dicts of them"
        )

    def _put(self, array: NDArray) -> str:
        key = str(len(self.arrays))
        self.arrays[key] = array
        return key


def _dtype_text(value: np.ndarray[Any, Any] | np.generic, path: str) -> str:
    """Return the text from which NumPy restores the dtype of a value."""
    dtype = value.dtype
    if dtype.hasobject or np.dtype(dtype.str) != dtype:
        raise ArgumentError(
            f"{path} is an array of dtype {dtype}, which cannot be saved; a run's state holds arrays of numbers, str, "
            "bytes and dates"
        )
    return dtype.str


def _unpacked(value: Any, arrays: Mapping[str, NDArray]) -> Any:
    """Return a value of the text as it was before `_RunPacker` packed it."""
    if isinstance(value, list):
        return [_unpacked(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: _unpacked(item, arrays) for key, item in value.items()}
    return _READERS[tag](value, value[tag], arrays)


def _items(rows: Any, arrays: Mapping[str, NDArray]) -> list[tuple[Any, Any]]:
    return [(_unpacked(key, arrays), _unpacked(item, arrays)) for key, item in rows]


def _read_rows(value: Any, fields: Any, arrays: Mapping[str, NDArray]) -> RowSparseNDArray:
    fields = _unpacked(fields, arrays)
    return RowSparseNDArray(fields["data"].raw, fields["indices"].raw, tuple(fields["shape"]), cpu())


def _read_tensor(value: Any, key: str, arrays: Mapping[str, NDArray]) -> torch.Tensor:
    dtype = getattr(torch, value["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{value['dtype']!r} is not a dtype")
    return arrays[key].raw.clone().view(dtype).reshape(value["shape"])


def _read_numpy(value: Any, key: str, arrays: Mapping[str, NDArray]) -> np.ndarray[Any, Any]:
    return _numpy(arrays[key].asnumpy().tobytes(), value["dtype"], value["shape"], value["order"])


def _numpy(content: bytes, dtype: str, shape: list[int], order: Any = "C") -> np.ndarray[Any, Any]:
    if np.dtype(dtype).hasobject:
        raise ValueError(f"an array of {dtype!r}")
    return np.ndarray(shape, dtype, content, order=order).copy(order="K")


_READERS: dict[str, Callable[[Any, Any, Mapping[str, NDArray]], Any]] = {
    "$int": lambda value, text, arrays: int(text, 16),
    "$complex": lambda value, parts, arrays: complex(*parts),
    "$bytes": lambda value, text, arrays: _BYTES[value["as"]](bytes.fromhex(text)),
    "$scalar": lambda value, text, arrays: _numpy(bytes.fromhex(text), value["dtype"], [])[()],
    "$list": lambda value, items, arrays: _LISTS[value["as"]](_unpacked(items, arrays)),
    "$deque": lambda value, items, arrays: deque(_unpacked(items, arrays), value["maxlen"]),
    "$dict": lambda value, rows, arrays: _DICTS[value["as"]](_items(rows, arrays)),
    "$defaultdict": lambda value, rows, arrays: defaultdict(
        value["factory"] and _FACTORIES[value["factory"]], _items(rows, arrays)
    ),
    "$rows": _read_rows,
    "$array": lambda value, key, arrays: arrays[key],
    "$tensor": _read_tensor,
    "$numpy": _read_numpy,
}
"""Functions by tag that restore a value from its dict, the dict's value of the tag, and the file's arrays."""
