"""DyNet's text format for parameters.

A parameter is a line ``#Parameter# /name {3,4} 193 ZERO_GRAD`` and a line of numbers, the first dimension running
fastest; the number in the first line counts the characters of the second, end included. The dimensions of a table name
the rows last. ``FULL_GRAD`` stands where a line of gradients follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..base import FileError, FileFormatError
from .given import file_name, flag, text
from .storage import ParameterStorage

if TYPE_CHECKING:
    from .collection import ParameterCollection

__all__ = [
    "Entry",
    "fill",
    "find",
    "populate_collection",
    "populate_one",
    "read",
    "save_collection",
    "save_one",
]

Array = NDArray[Any]
_HEAD = re.compile(r"#(Parameter|LookupParameter)# (\S+) \{([\d,]*)\} (\d+) (ZERO_GRAD|FULL_GRAD)")


class Entry:
    """One parameter of a file.

    Args:
        is_lookup: it is a table.
        name: its full name.
        array: its value; of a table, rows first.
        gradient: its gradient, None if the file says that it is zero.
    """

    __slots__ = ("array", "gradient", "is_lookup", "name")

    def __init__(self, is_lookup: bool, name: str, array: Array, gradient: Array | None) -> None:
        self.is_lookup, self.name, self.array, self.gradient = is_lookup, name, array, gradient

    @property
    def dim(self) -> str:
        """The dimensions as DyNet writes them."""
        return _braced(self.array.shape, self.is_lookup)


def _braced(shape: tuple[int, ...], is_lookup: bool) -> str:
    d = (*shape[1:], shape[0]) if is_lookup else shape
    return "{" + ",".join(map(str, d)) + "}"


def _numbers(tensor: torch.Tensor, is_lookup: bool) -> str:
    array = tensor.detach().cpu().numpy()
    ordered = (
        np.concatenate([row.reshape(-1, order="F") for row in array])
        if is_lookup
        else array.reshape(-1, order="F")
    )
    return "".join(f"{value:+.8e} " for value in ordered.tolist()) + "\n"


def _write(
    target: IO[str], name: str, tensor: torch.Tensor, gradient: torch.Tensor | None, is_lookup: bool
) -> None:
    kind = "LookupParameter" if is_lookup else "Parameter"
    text = _numbers(tensor, is_lookup)
    state = "ZERO_GRAD" if gradient is None else "FULL_GRAD"
    target.write(f"#{kind}# {name} {_braced(tuple(tensor.shape), is_lookup)} {len(text)} {state}\n{text}")
    if gradient is not None:
        target.write(_numbers(gradient, is_lookup))


def _opened(fname: str, mode: str) -> IO[str]:
    try:
        return open(file_name(fname, "fname"), mode, encoding="utf-8", newline="\n")
    except OSError as failure:
        what = "Could not read model from" if mode == "r" else "Could not write model to"
        raise FileError(failure.errno, f"{what} {fname}: {failure.strerror}", fname) from failure


def save_collection(collection: ParameterCollection, fname: str, name: str, append: bool) -> None:
    """Write all parameters of a collection, then all its tables; see `ParameterCollection.save`."""
    own = collection.name()
    prefix = own if not text(name, "name") else (name if name.endswith("/") else name + "/")
    with _opened(fname, "a" if flag(append, "append") else "w") as target:
        for each in collection.parameters_list():
            storage = each.storage
            _write(target, prefix + storage.name[len(own) :], storage.tensor, storage.gradient, False)
        for table in collection.lookup_parameters_list():
            storage = table.storage
            _write(target, prefix + storage.name[len(own) :], storage.tensor, storage.gradient, True)


def save_one(storage: ParameterStorage, fname: str, key: str, append: bool, is_lookup: bool) -> None:
    """Write one parameter, under another name if `key` gives one."""
    with _opened(fname, "a" if flag(append, "append") else "w") as target:
        _write(target, text(key, "key") or storage.name, storage.tensor, storage.gradient, is_lookup)


def read(fname: str) -> Iterator[Entry]:
    """Read the entries of a file one after another.

    Raises:
        FileError: it cannot be read.
        FileFormatError: it is damaged, or no such file.
    """
    with _opened(fname, "r") as source:
        at = 0
        while True:
            head = source.readline()
            if not head:
                return
            at += len(head)
            if not head.strip():
                continue
            found = _HEAD.match(head)
            if found is None:
                raise FileFormatError(
                    f"{fname}, byte {at - len(head)}: no parameter begins here: {head[:60]!r}"
                )
            yield _entry(fname, source, found)


def _entry(fname: str, source: IO[str], head: re.Match[str]) -> Entry:
    is_lookup, name = head[1] == "LookupParameter", head[2]
    d = tuple(int(size) for size in head[3].split(",") if size)
    array = _array(fname, name, source.readline(), d, is_lookup)
    gradient = _array(fname, name, source.readline(), d, is_lookup) if head[5] == "FULL_GRAD" else None
    return Entry(is_lookup, name, array, gradient)


def _array(fname: str, name: str, line: str, d: tuple[int, ...], is_lookup: bool) -> Array:
    size = int(np.prod(d, dtype=np.int64)) if d else 1
    try:
        numbers = np.array(line.split(), np.float64)
    except ValueError as failure:
        raise FileFormatError(f"{fname}: the values of {name} are no numbers: {failure}") from None
    if numbers.size != size:
        raise FileFormatError(f"{fname}: {name} has {numbers.size} values, expected {size}")
    if is_lookup:
        rows = numbers.reshape(d[-1], -1)
        return np.stack([row.reshape(d[:-1], order="F") for row in rows])
    return numbers.reshape(d, order="F")


def _is_below(name: str, key: str) -> bool:
    return not text(key, "key") or name.startswith(key if key.endswith("/") else key + "/")


def populate_collection(collection: ParameterCollection, fname: str, key: str) -> None:
    """Copy the entries of a file below a name into a collection; see `ParameterCollection.populate`."""
    waiting = [iter(collection.parameters_list()), iter(collection.lookup_parameters_list())]
    for entry in read(fname):
        if not _is_below(entry.name, key):
            continue
        target: Any = next(waiting[entry.is_lookup], None)
        if target is None:
            raise FileFormatError(f"Too many parameters to load in populated model at {entry.name} ({fname})")
        fill(target.storage, entry, fname)
    for each in waiting:
        missing: Any = next(each, None)
        if missing is not None:
            raise FileFormatError(f"{fname} holds no values for {missing.name()} {missing.shape()}")


def fill(storage: ParameterStorage, entry: Entry, fname: str) -> None:
    """Copy the value and the gradient of an entry into a parameter.

    Raises:
        FileFormatError: the shapes differ.
    """
    shape = tuple(storage.tensor.shape)
    if entry.array.shape != shape:
        given = _braced(shape, entry.is_lookup)
        raise FileFormatError(
            f"Dimensions of parameter {entry.name} looked up from file ({entry.dim}) do not match parameters to be"
            f" populated ({given}) ({fname})"
        )
    storage.tensor.copy_(torch.from_numpy(np.ascontiguousarray(entry.array)))
    storage.clear_gradient()
    if entry.gradient is not None:
        storage.set_gradient(torch.from_numpy(np.ascontiguousarray(entry.gradient)).to(storage.tensor))


def populate_one(storage: ParameterStorage, fname: str, key: str, is_lookup: bool) -> None:
    """Copy the entry of a name into a parameter."""
    fill(storage, find(fname, key, is_lookup), fname)


def find(fname: str, key: str, is_lookup: bool) -> Entry:
    """Return the entry of a name.

    Raises:
        FileFormatError: there is none.
    """
    for entry in read(fname):
        if entry.is_lookup == is_lookup and entry.name == key:
            return entry
    raise FileFormatError(f"Could not find key {key} in the model file {fname}")
