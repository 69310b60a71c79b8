"""`Buckets`: the modules of a bucketing module, made on first use."""

from __future__ import annotations

import io
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import read_committed
from ..base import ArgumentError, FileFormatError
from ..checkpoint import load_params as load_params
from ..checkpoint import save_checkpoint
from ..name import NameManager
from ..ndarray import NDArray, array, serial
from ..ops.attrs import literal
from ..symbol import Symbol, load_json
from .module import Module

if TYPE_CHECKING:
    from .types import BucketKey

SymGen = Callable[[Any], tuple[Symbol, Sequence[str], Sequence[str] | None]]
"""Function from a bucket key to symbol, names of inputs, and names of labels."""


class Buckets(OrderedDict[Any, Module]):
    """Modules by bucket key, the least recently used first.

    Args:
        options: arguments of every new `Module`; may be changed later.
        max_buckets: number of modules to keep; None = all.
    """

    def __init__(self, sym_gen: SymGen, options: Mapping[str, Any], max_buckets: int | None) -> None:
        super().__init__()
        if max_buckets is not None and max_buckets < 1:
            raise ArgumentError(f"max_buckets is {max_buckets}, expected None or an integer of at least 1")
        self._sym_gen = sym_gen
        self._options = options
        self.max_buckets = max_buckets

    def __reduce__(self) -> tuple[Any, ...]:
        return Buckets, (self._sym_gen, self._options, self.max_buckets), None, None, iter(self.items())

    def make(self, key: BucketKey) -> Module:
        """Make the module of a bucket and keep it."""
        try:
            with NameManager():  # unnamed layers then have the same parameters in every bucket
                generated = self._sym_gen(key)
        except (KeyError, IndexError) as error:
            raise ArgumentError(f"bucket key {key!r}: sym_gen has no symbol for it ({error!r})") from error
        if not (isinstance(generated, tuple) and len(generated) == 3 and isinstance(generated[0], Symbol)):
            raise ArgumentError(
                f"bucket key {key!r}: sym_gen returned {generated!r}, expected (symbol, data_names, label_names)"
            )
        symbol, data_names, label_names = generated
        module = self[key] = Module(symbol, data_names, label_names, **self._options)
        return module

    def drop_others(self, key: BucketKey) -> None:
        """Drop all buckets but one."""
        for other in [k for k in self if k != key]:
            del self[other]

    def evict(self, needed: Collection[Any]) -> None:
        """Drop the least recently used buckets until at most `max_buckets` are left."""
        if self.max_buckets is None:
            return
        for key in list(self):
            if len(self) <= self.max_buckets:
                return
            if key not in needed:
                del self[key]

    def contents(self) -> dict[Any, tuple[Symbol, list[str], list[str]]]:
        """Return symbol, names of inputs and names of labels by bucket key."""
        return {key: (m.symbol, m.data_names, m.label_names) for key, m in self.items()}


def with_symbols(sym_gen: SymGen, change: Callable[[Any, Symbol], Symbol]) -> SymGen:
    """Return a `sym_gen` that changes the symbols of another one.

    Args:
        change: ``(bucket_key, symbol) -> symbol``.
    """

    def generate(key: BucketKey) -> tuple[Symbol, Sequence[str], Sequence[str] | None]:
        symbol, data_names, label_names = sym_gen(key)
        return change(key, symbol), data_names, label_names

    return generate


Bucket = tuple[Symbol, list[str], list[str]]


def _symbol_file(prefix: str, key: BucketKey) -> str:
    """Return the file of a bucket's graph."""
    if os.path.basename(text := str(key)) != text or "\0" in text:
        raise ArgumentError(f"bucket key {key!r} is part of a file name and must not contain slashes")
    return f"{prefix}-{key}-symbol.json"


def _list_file(prefix: str) -> str:
    return f"{prefix}-buckets.json"


def save(
    prefix: str,
    epoch: int,
    buckets: Mapping[Any, Bucket],
    default: BucketKey,
    params: tuple[Mapping[str, NDArray], Mapping[str, NDArray]],
    states: bytes | None,
    remove_amp_cast: bool,
    format: str = "params",
) -> None:
    """Write all files as one set, so that a killed process leaves either the old or the new set.

    Args:
        epoch: number of the epoch.
        buckets: (symbol, data names, label names) by key.
        default: key of the default bucket.
        states: the optimizer's states, or None.

    Shape:
        params[0][name], params[1][name]: that of the parameter or state.
    """
    files: dict[str, bytes] = {}
    rows = []
    for key, (symbol, data_names, label_names) in buckets.items():
        if _read_key(repr(key)) != key:
            raise ArgumentError(f"bucket key {key!r} cannot be saved; use numbers, strings or tuples of them")
        files[_symbol_file(prefix, key)] = symbol.tojson(remove_amp_cast).encode("utf-8")
        rows.append({"key": repr(key), "data_names": list(data_names), "label_names": list(label_names)})
    text = json.dumps({"default_bucket_key": repr(default), "buckets": rows}, indent=1)
    files[_list_file(prefix)] = text.encode("utf-8")
    if all(isinstance(key, (int, np.integer)) for key in buckets):
        buffer = io.BytesIO()
        serial.write(buffer, [array(list(buckets), dtype="int32")])
        files[f"{prefix}.buckets"] = buffer.getvalue()
    save_checkpoint(prefix, epoch, None, *params, states=states, more=files, format=format)


def _read_key(text: str) -> Any:
    try:
        return literal(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def load(prefix: str) -> tuple[dict[Any, Bucket], Any]:
    """Return the saved buckets by key, and the default bucket's key; both empty for files that MXNet wrote."""
    path = _list_file(prefix)
    if not os.path.exists(path):
        return {}, None
    try:
        content = json.loads(read_committed(path))
        rows = [
            (literal(r["key"]), list(r["data_names"]), list(r["label_names"])) for r in content["buckets"]
        ]
        default = literal(content["default_bucket_key"])
        return {key: (_symbol(prefix, key), data, label) for key, data, label in rows}, default
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise FileFormatError(
            f"{path}: not the list of buckets that save_checkpoint writes ({error!r})"
        ) from error


def _symbol(prefix: str, key: BucketKey) -> Symbol:
    return load_json(read_committed(_symbol_file(prefix, key)).decode("utf-8"))


def as_sym_gen(saved: Mapping[Any, Bucket], sym_gen: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a `sym_gen` over saved buckets that falls back to another one.

    Args:
        sym_gen: makes the other buckets; None if there are none.
    """

    def generate(key: BucketKey) -> tuple[Symbol, Sequence[str], Sequence[str] | None]:
        if key in saved:
            return saved[key]
        if sym_gen is None:
            keys = ", ".join(map(repr, saved))
            raise ArgumentError(
                f"bucket key {key!r} is not in the checkpoint, which has {keys}; "
                "pass sym_gen to load() for other keys"
            )
        generated: tuple[Symbol, Sequence[str], Sequence[str] | None] = sym_gen(key)
        return generated

    return generate
