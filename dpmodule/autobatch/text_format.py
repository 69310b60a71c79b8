"""DyNet's text format for parameters.

A parameter is a line ``#Parameter# /name {3,4} 193 ZERO_GRAD`` and a line of numbers, the first dimension running
fastest. The dimensions of a table have the rows last. ``FULL_GRAD`` means that a line of gradients follows. The number
in the first line counts the bytes of the lines that follow, including their ends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .._devices.single_thread import single_thread
from .._files import naming_errors, regular_file, write_atomically
from ..base import FileError, FileFormatError
from .arguments import file_name, flag, single_line_text, text
from .storage import ParameterStorage

Array = NDArray[Any]
_HEAD = re.compile(r"#(Parameter|LookupParameter)# (.+) \{([\d,]*)\} (\d+) (ZERO_GRAD|FULL_GRAD)", re.ASCII)
_LONGEST = 1 << 20  # maximal length of a header line, in bytes


class TextEntry:
    """A parameter in a file.

    Shape:
        array, gradient: (*d), or (rows, *d) for a table.

    Args:
        gradient: the gradient, None if it is zero.
    """

    __slots__ = ("array", "gradient", "is_lookup", "name")

    def __init__(self, is_lookup: bool, name: str, array: Array, gradient: Array | None) -> None:
        self.is_lookup, self.name, self.array, self.gradient = is_lookup, name, array, gradient

    @property
    def dim(self) -> str:
        """The dimensions in DyNet's format."""
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


def write_one(target: IO[bytes], storage: ParameterStorage, name: str, is_lookup: bool) -> None:
    """Write a parameter or a table to an open file.

    Source: DyNet's text format.
    """
    tensor, gradient = storage.whole(), storage.gradient
    kind = "LookupParameter" if is_lookup else "Parameter"
    text = "".join(_numbers(each, is_lookup) for each in (tensor, gradient) if each is not None)
    state = "ZERO_GRAD" if gradient is None else "FULL_GRAD"
    shape = _braced(tuple(tensor.shape), is_lookup)
    target.write(f"#{kind}# {name} {shape} {len(text)} {state}\n{text}".encode())


def _save(fname: str, append: bool, write: Callable[[IO[bytes]], object]) -> None:
    """Replace a file atomically, or append to it."""
    path = file_name(fname, "fname")
    if not flag(append, "append"):
        write_atomically(path, write)
        return
    with naming_errors(path), open(path, "ab") as target:
        write(target)


class StoredParameter(Protocol):
    """A parameter or a table."""

    @property
    def storage(self) -> ParameterStorage:
        """The storage."""

    def name(self) -> str:
        """Return the full name."""

    def shape(self) -> tuple[int, ...]:
        """Return the dimensions."""


class Collection(Protocol):
    """Interface of parameter collections for files."""

    def name(self) -> str:
        """Return the full name."""

    def parameters_list(self) -> Sequence[StoredParameter]:
        """Return all parameters, in order of creation."""

    def lookup_parameters_list(self) -> Sequence[StoredParameter]:
        """Return all tables, in order of creation."""


def save_collection(collection: Collection, fname: str, name: str, append: bool) -> None:
    """Write all parameters of a collection, then all its tables; see `ParameterCollection.save`."""
    single_line_text(name, "name")
    _save(fname, append, lambda target: write_collection(target, collection, name))


def write_collection(target: IO[bytes], collection: Collection, name: str) -> None:
    """Write a collection to an open file; see `save_collection`."""
    own = collection.name()
    prefix = own if not name else (name if name.endswith("/") else name + "/")
    for each in collection.parameters_list():
        write_one(target, each.storage, prefix + each.storage.name[len(own) :], False)
    for table in collection.lookup_parameters_list():
        write_one(target, table.storage, prefix + table.storage.name[len(own) :], True)


def save_one(storage: ParameterStorage, fname: str, key: str, append: bool, is_lookup: bool) -> None:
    """Write one parameter, named `key` if given."""
    name = single_line_text(key, "key") or storage.name
    _save(fname, append, lambda target: write_one(target, storage, name, is_lookup))


def read(fname: str) -> Iterator[TextEntry]:
    """Yield the entries of a file."""
    try:
        with open(file_name(fname, "fname"), "rb", opener=regular_file) as source:
            yield from _entries(fname, source)
    except OSError as failure:
        raise FileError(
            failure.errno or 0, f"Could not read model from {fname}: {failure.strerror}", fname
        ) from failure


def _entries(fname: str, source: IO[bytes]) -> Iterator[TextEntry]:
    while True:
        at = source.tell()
        head = source.readline(_LONGEST).decode("utf-8", "backslashreplace")
        if not head:
            return
        if not head.strip():
            continue
        found = _HEAD.match(head)
        if found is None:
            raise FileFormatError(
                f"{fname}, byte {at}: expected the header of a parameter, got {head[:60]!r}"
            )
        yield _entry(fname, source, found)


def _entry(fname: str, source: IO[bytes], head: re.Match[str]) -> TextEntry:
    is_lookup, name = head[1] == "LookupParameter", head[2]
    d = tuple(int(size) for size in head[3].split(",") if size)
    if 0 in d or (is_lookup and not d):
        raise FileFormatError(f"{fname}: {name} has the dimensions {{{head[3]}}}, expected positive ones")
    lines = [source.readline() for _ in range(2 if head[5] == "FULL_GRAD" else 1)]
    array, *gradient = (_array(fname, name, line, d, is_lookup) for line in lines)
    size, length = sum(map(len, lines)), int(head[4])
    if length not in (size, len(lines[0])):  # older files do not count the gradient
        raise FileFormatError(f"{fname}: the numbers of {name} have {size} bytes, expected {length}")
    return TextEntry(is_lookup, name, array, gradient[0] if gradient else None)


def _array(fname: str, name: str, line: bytes, d: tuple[int, ...], is_lookup: bool) -> Array:
    size = math.prod(d)
    try:
        numbers = np.array(line.decode("ascii").split(), np.float64)
    except ValueError as failure:
        raise FileFormatError(f"{fname}: the values of {name} are not numbers: {failure}") from None
    if numbers.size != size:
        raise FileFormatError(f"{fname}: {name} has {numbers.size} values, expected {size}")
    if is_lookup:
        rows = numbers.reshape(d[-1], -1)
        return np.stack([row.reshape(d[:-1], order="F") for row in rows])
    return numbers.reshape(d, order="F")


def populate_collection(collection: Collection, fname: str, key: str) -> None:
    """Copy the entries below a name into a collection; see `ParameterCollection.populate`."""
    waiting = [iter(collection.parameters_list()), iter(collection.lookup_parameters_list())]
    targets: list[
        tuple[ParameterStorage, TextEntry]
    ] = []  # validate all entries before changing any parameter
    for entry in read(fname):
        if text(key, "key") and not entry.name.startswith(key if key.endswith("/") else key + "/"):
            continue
        target: Any = next(waiting[entry.is_lookup], None)
        if target is None:
            raise FileFormatError(f"Too many parameters to load in populated model at {entry.name} ({fname})")
        _check_shape(target.storage, entry, fname)
        targets.append((target.storage, entry))
    for each in waiting:
        missing: Any = next(each, None)
        if missing is not None:
            raise FileFormatError(f"{fname} has no values for {missing.name()} {missing.shape()}")
    with single_thread():
        for storage, entry in targets:
            fill(storage, entry, fname)


def _check_shape(storage: ParameterStorage, entry: TextEntry, fname: str) -> None:
    shape = tuple(storage.shape)
    if entry.array.shape != shape:
        given = _braced(shape, entry.is_lookup)
        raise FileFormatError(
            f"Dimensions of parameter {entry.name} looked up from file ({entry.dim}) do not match parameters to be"
            f" populated ({given}) ({fname})"
        )


def fill(storage: ParameterStorage, entry: TextEntry, fname: str) -> None:
    """Copy the value and the gradient of an entry into a parameter."""
    _check_shape(storage, entry, fname)
    storage.whole().copy_(torch.from_numpy(np.ascontiguousarray(entry.array)))
    storage.clear_gradient()
    if entry.gradient is not None:
        storage.set_gradient(torch.from_numpy(np.ascontiguousarray(entry.gradient)).to(storage.whole()))


def populate_one(storage: ParameterStorage, fname: str, key: str, is_lookup: bool) -> None:
    """Copy the named entry of a file into a parameter."""
    with single_thread():
        fill(storage, find(fname, key, is_lookup), fname)


def find(fname: str, key: str, is_lookup: bool) -> TextEntry:
    """Return the named entry of a file."""
    for entry in read(fname):
        if entry.is_lookup == is_lookup and entry.name == key:
            return entry
    raise FileFormatError(f"Could not find key {key} in the model file {fname}")
