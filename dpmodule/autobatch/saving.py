"""Saving several objects under one name, and loading them into a collection."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import IO, Any

from ..base import FileError, FileFormatError
from .builders import bidirectional, coupled, lstm, simple, sparse, tree
from .collection import ParameterCollection, as_collection
from .errors import ForeignValueError
from .expression import listed
from .given import file_name
from .parameters import LookupParameters, Parameters

__all__ = ["load", "load_generator", "save"]

_BUILDERS: dict[str, Any] = {
    each.__name__: each
    for each in (
        lstm.VanillaLSTMBuilder,
        lstm.CompactVanillaLSTMBuilder,
        coupled.CoupledLSTMBuilder,
        coupled.FastLSTMBuilder,
        simple.GRUBuilder,
        simple.SimpleRNNBuilder,
        sparse.SparseLSTMBuilder,
        bidirectional.BiRNNBuilder,
        tree.TreeLSTMBuilder,
    )
}
_BUILDERS["LSTMBuilder"] = lstm.VanillaLSTMBuilder


def save(basename: str, objects: Iterable[Any]) -> None:
    """Write parameters, tables and networks, in DyNet's form: `basename`.data and `basename`.meta.

    Args:
        basename: the files' name without its end.
        objects: parameters, lookup parameters, builders, and objects with `spec`, `from_spec` and `param_collection`.

    Raises:
        ForeignValueError: an object is none of these.
        FileError: a file cannot be written.
    """
    basename = file_name(basename, "save: basename")
    data = f"{basename}.data"
    with _opened(f"{basename}.meta", "wb") as meta, _opened(data, "wb"):
        for each in listed("save: objects", objects):
            if isinstance(each, (Parameters, LookupParameters)):
                each.save(data, append=True)
                meta.write(_pickled((type(each).__name__, each.name())))
            elif hasattr(each, "spec") and hasattr(each, "param_collection"):
                collection = each.param_collection()
                collection.save(data, collection.name(), append=True)
                meta.write(_pickled((type(each), each.spec, collection.name())))
            else:
                raise ForeignValueError(
                    f"cannot save {type(each).__name__}: parameters, lookup parameters, builders, or objects with spec"
                    " and param_collection are expected"
                )


def _pickled(value: Any) -> bytes:
    """Pickle tuples, plain values and classes; this package's builders under the names that DyNet has for them."""
    return b"\x80\x02" + _body(value) + b"."


def _body(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"(" + b"".join(_body(each) for each in value) + b"t"
    if isinstance(value, type):
        module = "_dynet" if _BUILDERS.get(value.__name__) is value else value.__module__
        return f"c{module}\n{value.__qualname__}\n".encode()
    return pickle.dumps(value, 2)[2:-1]


def _opened(name: str, mode: str) -> IO[Any]:
    try:
        return open(name, mode)
    except OSError as failure:
        what = "write" if "w" in mode else "read"
        raise FileError(failure.errno, f"cannot {what} model: {failure.strerror}", name) from failure


class _Unpickler(pickle.Unpickler):
    """Reads what `save` wrote; DyNet's own classes become those of this package."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("_dynet", "dynet", "_gdynet") and name in _BUILDERS:
            return _BUILDERS[name]
        if name in _BUILDERS and module.startswith(__package__ or ""):
            return _BUILDERS[name]
        found = super().find_class(module, name)
        if isinstance(found, type) and hasattr(found, "from_spec"):
            return found
        raise FileFormatError(f"the model names {module}.{name}, which is no network that can be loaded")


def load_generator(basename: str, params: ParameterCollection) -> Iterator[Any]:
    """Load what `save` wrote, one object after another.

    Args:
        basename: the files' name without its end.
        params: where new parameters go.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a file is damaged.
    """
    basename, params = file_name(basename, "load: basename"), as_collection(params, "load: params")
    data = f"{basename}.data"
    with _opened(f"{basename}.meta", "rb") as meta:
        while True:
            try:
                entry = _Unpickler(meta).load()
            except EOFError:
                return
            except (pickle.UnpicklingError, AttributeError, ModuleNotFoundError, ValueError) as failure:
                raise FileFormatError(f"{basename}.meta: {failure}") from failure
            yield _loaded(entry, data, params)


def _loaded(entry: Any, data: str, params: ParameterCollection) -> Any:
    if entry[0] == "Parameters":
        return params.load_param(data, entry[1])
    if entry[0] == "LookupParameters":
        return params.load_lookup_param(data, entry[1])
    kind, spec, name = entry
    found = kind.from_spec(spec, params)
    found.param_collection().populate(data, name)
    return found


def load(basename: str, params: ParameterCollection) -> list[Any]:
    """Load what `save` wrote; see `load_generator`."""
    return list(load_generator(basename, params))
