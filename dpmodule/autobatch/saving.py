"""Saving and loading of parameters and networks."""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from .._files import finish_commit, read_committed, write_set
from ..base import FileFormatError
from . import text_format
from .arguments import file_name
from .builders import composed, lstm, rnn
from .collection import ParameterCollection, as_collection
from .errors import ForeignValueError, user_line
from .expression import as_list
from .parameters import LookupParameters, Parameters

_BUILDERS: dict[str, Any] = {
    each.__name__: each
    for each in (
        lstm.VanillaLSTMBuilder,
        lstm.CompactVanillaLSTMBuilder,
        lstm.CoupledLSTMBuilder,
        lstm.FastLSTMBuilder,
        rnn.GRUBuilder,
        rnn.SimpleRNNBuilder,
        lstm.SparseLSTMBuilder,
        composed.BiRNNBuilder,
        composed.TreeLSTMBuilder,
    )
}
_BUILDERS["LSTMBuilder"] = lstm.VanillaLSTMBuilder


_DAMAGE: tuple[type[Exception], ...] = (pickle.UnpicklingError, AttributeError, EOFError, ImportError)
_DAMAGE += (LookupError, MemoryError, OverflowError, TypeError, ValueError)
"""Errors that unpickling damaged data may raise."""


def save(basename: str, objects: Iterable[Any]) -> None:
    """Save parameters, tables and networks in DyNet's files `basename`.data and `basename`.meta.

    Args:
        basename: path of the files without the extension.
        objects: parameters, lookup parameters, builders, and objects with `spec`, `from_spec` and `param_collection`.

    Raises:
        ForeignValueError: an object has another type, or a class that `load` could not import.
        FileError: a file cannot be written; then no file is changed.

    Source: DyNet's `save`.
    """
    basename = file_name(basename, "save: basename")
    data, meta = io.BytesIO(), io.BytesIO()
    for item in as_list("save: objects", objects):
        if isinstance(item, (Parameters, LookupParameters)):
            text_format.write_one(data, item.storage, item.name(), isinstance(item, LookupParameters))
            meta.write(_pickled((type(item).__name__, item.name())))
        elif hasattr(item, "spec") and hasattr(item, "param_collection"):
            collection = as_collection(
                item.param_collection(), f"save: param_collection() of {type(item).__name__}"
            )
            text_format.write_collection(data, collection, collection.name())
            meta.write(_pickled((type(item), item.spec, collection.name())))
        else:
            raise ForeignValueError(
                f"cannot save {type(item).__name__}: expected parameters, lookup parameters, builders, or objects"
                f" with spec and param_collection (at {user_line()})"
            )
    files = {f"{basename}.data": data.getvalue(), f"{basename}.meta": meta.getvalue()}
    write_set(files, os.path.basename(basename) or "model")


def _pickled(value: Any) -> bytes:
    """Pickle tuples, plain values and classes, with this package's builders under DyNet's names."""
    return b"\x80\x02" + _body(value) + b"."


def _body(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"(" + b"".join(_body(each) for each in value) + b"t"
    if isinstance(value, type):
        name, module = value.__qualname__, value.__module__
        if _BUILDERS.get(name) is value:
            module = "_dynet"
        elif getattr(sys.modules.get(module), name, None) is not value:
            raise ForeignValueError(
                f"save: class {name} is not at the top of module {module}, where load would look for it"
                f" (at {user_line()})"
            )
        return f"c{module}\n{name}\n".encode()
    try:
        return pickle.dumps(value, 2)[2:-1]
    except (pickle.PicklingError, AttributeError, TypeError) as failure:
        raise ForeignValueError(
            f"save: {value!r} cannot be pickled: {failure} (at {user_line()})"
        ) from failure


class _Unpickler(pickle.Unpickler):
    """Unpickler for files of `save`, which maps DyNet's classes to those of this package."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("_dynet", "dynet", "_gdynet") and name in _BUILDERS:
            return _BUILDERS[name]
        if name in _BUILDERS and module.startswith(__package__ or ""):
            return _BUILDERS[name]
        found = super().find_class(module, name)
        if isinstance(found, type) and hasattr(found, "from_spec"):
            return found
        raise FileFormatError(f"the model names {module}.{name}, which is not a network that can be loaded")


def load_generator(basename: str, params: ParameterCollection) -> Iterator[Any]:
    """Load the objects of a file one by one; see `save`.

    Args:
        basename: path of the files without the extension.
        params: collection that gets the new parameters.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a file is damaged.
    """
    basename, params = file_name(basename, "load: basename"), as_collection(params, "load: params")
    meta = io.BytesIO(read_committed(f"{basename}.meta"))
    finish_commit(f"{basename}.data")
    while meta.tell() < len(meta.getbuffer()):
        try:
            entry = _Unpickler(meta).load()
        except FileFormatError:
            raise
        except _DAMAGE as failure:
            raise FileFormatError(f"{basename}.meta: {failure}") from failure
        yield _loaded(entry, basename, params)


def _loaded(entry: Any, basename: str, params: ParameterCollection) -> Any:
    data = f"{basename}.data"
    match entry:
        case ("Parameters", str(name)):
            return params.load_param(data, name)
        case ("LookupParameters", str(name)):
            return params.load_lookup_param(data, name)
        case (type() as builder_class, spec, str(name)) if hasattr(builder_class, "from_spec"):
            found = builder_class.from_spec(spec, params)
            found.param_collection().populate(data, name)
            return found
    raise FileFormatError(f"{basename}.meta: {entry!r} is not a parameter, table or network")


def load(basename: str, params: ParameterCollection) -> list[Any]:
    """Load the objects of a file; see `save` and `load_generator`.

    Args:
        basename: path of the files without the extension.
        params: collection that gets the new parameters.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a file is damaged.
        ForeignValueError: `params` is not a collection.
    """
    return list(load_generator(basename, params))
