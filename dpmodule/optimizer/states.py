"""Optimizer states as pickles that are compatible with MXNet 1.9.1 and safe to load.

Loading never calls anything named in the bytes. Every object is first loaded as an inert `_Record` of its name,
arguments and attributes; only known names are then converted to arrays, optimizers and schedules.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from .._files import likely_kind
from ..base import ArgumentError, FileFormatError
from ..lr_scheduler import LRScheduler
from ..ndarray import NDArray
from ..ndarray.serial import read, write
from .base import Optimizer, registry
from .grouped import densified

_ARRAY = "mxnet.ndarray.ndarray NDArray"
_FOREIGN_OPTIMIZERS = "mxnet.optimizer.optimizer"
_FOREIGN_CONTRIB = "mxnet.optimizer.contrib"
_FOREIGN_SCHEDULES = "mxnet.lr_scheduler"
_HOME = __name__.partition(".")[0]

# header and trailer of a `.params` file around the record of one array
_PREFIX = struct.pack("<QQQ", 0x112, 0, 1)
_SUFFIX = bytes(8)


# --- writing


def dump_states(states: dict[Any, Any], optimizer: Optimizer | None = None) -> bytes:
    """Return the pickle of states and, if given, the optimizer.

    Classes are written under their names in MXNet, so that MXNet 1.9.1 can read the bytes.
    """
    out = bytearray(b"\x80\x04")
    _write(states if optimizer is None else (states, optimizer), out)
    return bytes(out + b".")


def _write(value: Any, out: bytearray) -> None:
    """Append the pickle operations that push a value."""
    if isinstance(value, NDArray):
        _write_array(value, out)
    elif isinstance(value, (Optimizer, LRScheduler)):
        _write_object(value, out)
    elif type(value) is dict:
        out += b"}("
        for key, item in value.items():
            _write(key, out)
            _write(item, out)
        out += b"u"
    elif type(value) in (tuple, list):
        out += b"("
        for item in value:
            _write(item, out)
        out += b"t" if type(value) is tuple else b"l"
    elif callable(value):
        raise ArgumentError(
            f"optimizer states: {value!r} is code, which cannot be stored; save without the optimizer"
        )
    else:
        out += pickle.dumps(value, protocol=3)[2:-1]  # its opcodes without header and stop


def _write_array(array: NDArray, out: bytearray) -> None:
    """Write ``NDArray(None)`` and its state, a dict with the bytes of the array."""
    file = io.BytesIO()
    write(file, [array])
    payload = file.getbuffer()[len(_PREFIX) : -len(_SUFFIX)]
    out += _global(_ARRAY) + b"(Nt" + b"R}" + pickle.dumps("handle", protocol=3)[2:-1]
    out += _global("builtins bytearray") + b"(\x8e" + struct.pack("<Q", len(payload))
    out += payload
    out += b"tRsb"


def _write_object(value: object, out: bytearray) -> None:
    """Write an optimizer or schedule as ``cls.__new__(cls)`` and its attributes."""
    kind = type(value)
    module = kind.__module__
    if module.startswith(_HOME + "."):
        module = _foreign_home(kind)
    out += _global(f"{module} {kind.__qualname__}") + b")\x81"
    _write(value.__getstate__() if isinstance(value, Optimizer) else dict(value.__dict__), out)
    out += b"b"


def _foreign_home(kind: type[Any]) -> str:
    """Return MXNet's module for a class of this package."""
    if not issubclass(kind, Optimizer):
        return _FOREIGN_SCHEDULES
    return _FOREIGN_CONTRIB if kind.__module__.endswith(".contrib") else _FOREIGN_OPTIMIZERS


def _global(origin: str) -> bytes:
    return b"c" + origin.replace(" ", "\n").encode() + b"\n"


# --- reading


def load_states(data: bytes) -> tuple[dict[Any, Any], Optimizer | None]:
    """Return the states, and the optimizer if it was included."""
    try:
        _check_memo(data)
        loaded = _Builder().build(_InertUnpickler(io.BytesIO(data), encoding="latin1").load())
    except FileFormatError:
        raise
    except Exception as error:  # damaged pickles raise many errors
        kind = "" if data[:1] == b"\x80" else likely_kind(data[:64])
        raise FileFormatError(f"these {len(data)} bytes are not optimizer states: {kind or error}") from error
    optimizer = None
    if isinstance(loaded, tuple) and len(loaded) == 2 and isinstance(loaded[1], Optimizer):
        loaded, optimizer = loaded
    if not isinstance(loaded, dict):
        raise FileFormatError(
            f"optimizer states are a {type(loaded).__name__}, expected a dict from index to state"
        )
    return loaded, optimizer


def _check_memo(data: bytes) -> None:
    """Check memo indices of a pickle, since Python allocates memory up to the largest index."""
    for count, (op, value, position) in enumerate(pickletools.genops(data)):
        if op.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(value or 0) > count:
            raise FileFormatError(
                f"optimizer states are damaged at byte {position}: memo index {value} after {count} opcodes"
            )


class _Record:
    """An inert object of a pickle: its origin, arguments and attributes."""

    origin: ClassVar[str] = ""
    args: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *args: Any) -> _Record:
        made = super().__new__(cls)
        made.args = args
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state


class _InertUnpickler(pickle.Unpickler):
    """Unpickler that returns a class of records for known names, and an error for others."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the record class for a name, never the named object."""
        origin = f"{module_name} {global_name}"
        if origin == "collections OrderedDict":
            return dict
        if origin not in _MAKERS and _class_of(origin) is None:
            raise FileFormatError(
                f"optimizer states name {module_name}.{global_name}, which is neither an array nor a registered "
                "optimizer or schedule; if it is your own class, import its module; otherwise do not trust the file"
            )
        return type("_Record", (_Record,), {"origin": origin})


class _Builder:
    """Converts records to arrays, optimizers and schedules, preserving shared objects."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._open: set[int] = set()

    def build(self, value: Any) -> Any:
        """Return a value with all its records converted."""
        if isinstance(value, type):
            return self._build_name(value)
        if not isinstance(value, (dict, list, tuple, _Record)):
            return value
        key = id(value)
        if key in self._open:
            raise FileFormatError("optimizer states contain themselves")
        if key not in self._made:
            self._open.add(key)
            self._made[key] = self._build_new(value)
            self._open.discard(key)
        return self._made[key]

    def _build_name(self, kind: type[Any]) -> None:
        """Accept a bare name only as NumPy writes it, as an argument without information."""
        if getattr(kind, "origin", None) != "numpy ndarray":
            raise FileFormatError("optimizer states hold a class, expected arrays and numbers")

    def _build_new(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.build(k): self.build(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.build(v) for v in value)
        args, state = self.build(value.args), self.build(value.state)
        maker = _MAKERS.get(value.origin)
        if maker is not None:
            return maker(args, state)
        instance = object.__new__(_class_of(value.origin))  # type: ignore[arg-type]  # find_class rejects other names
        attributes = _attributes(value.origin, state)
        if isinstance(instance, Optimizer):
            instance.__setstate__(attributes)
            _check_attributes(value.origin, vars(instance))
        else:
            instance.__dict__.update(attributes)
        return instance


def _attributes(origin: str, state: object) -> dict[str, Any]:
    if not (isinstance(state, dict) and all(isinstance(key, str) for key in state)):
        raise FileFormatError(f"{origin} has attributes {state!r}, expected a dict")
    return state


def _check_attributes(origin: str, found: dict[str, Any]) -> None:
    """Check that an optimizer has all common attributes, with the usual types."""
    for key, usual in vars(Optimizer()).items():
        kind = Real if isinstance(usual, Real) else dict if isinstance(usual, dict) else object
        if key == "lr" and found.get("lr_scheduler") is not None:  # the schedule sets it
            continue
        if not isinstance(found.get(key, None if kind is object else _Record), kind):
            raise FileFormatError(f"{origin} in the optimizer states has no valid {key}, such as {usual!r}")


def _class_of(origin: str) -> type[Any] | None:
    """Return the optimizer or schedule class of a name if it is known; nothing is imported."""
    module, name = origin.rsplit(" ", 1)
    if (
        module in (_FOREIGN_OPTIMIZERS, _FOREIGN_CONTRIB, "mxnet.optimizer")
        and name.lower() in registry.names()
    ):
        return registry.find(name)
    for kind in (*map(registry.find, registry.names()), *_subclasses(LRScheduler)):
        home = _FOREIGN_SCHEDULES if kind.__module__.startswith(_HOME + ".") else kind.__module__
        if kind.__qualname__ == name and module in (home, kind.__module__):
            return kind
    return None


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from _subclasses(sub)


def _make_array(args: tuple[Any, ...], state: object) -> NDArray:
    payload = state.get("handle") if isinstance(state, dict) else None
    if isinstance(payload, str):  # written by Python 2
        payload = payload.encode("latin1")
    if not isinstance(payload, (bytes, bytearray)):
        raise FileFormatError("an array in the optimizer states has no values")
    content = _PREFIX + payload + _SUFFIX
    (array,) = read(io.BytesIO(content), len(content), "optimizer states")
    if not isinstance(array, NDArray):
        raise FileFormatError("an array in the optimizer states has a name")
    return densified(array)


def _make_bytes(args: tuple[Any, ...], state: object) -> bytes:
    """Return the bytes of ``bytearray(b"...")``, ``bytearray("...", "latin-1")`` or ``encode("...", "latin1")``."""
    content = args[0] if args else b""
    if isinstance(content, str):
        return content.encode("latin1")
    if not isinstance(content, (bytes, bytearray)):
        raise FileFormatError(f"bytes in the optimizer states are made of {type(content).__name__}")
    return bytes(content)


def _make_dtype(args: tuple[Any, ...], state: object) -> np.dtype[Any]:
    dtype = np.dtype(str(args[0]))
    if dtype.kind not in "biufcSU":
        raise FileFormatError(
            f"NumPy values in the optimizer states have type {args[0]!r}, expected numbers or text"
        )
    return dtype.newbyteorder(">" if isinstance(state, tuple) and ">" in state else "<")


def _make_numpy(args: tuple[Any, ...], state: object) -> np.ndarray[Any, Any]:
    """Return an array from NumPy's pickle state: version, shape, dtype, order, values."""
    if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], np.dtype)):
        raise FileFormatError("a NumPy array in the optimizer states is damaged")
    _, shape, dtype, is_fortran, content = state
    raw = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if is_fortran else "C").copy()


def _make_from_buffer(args: tuple[Any, ...], state: object) -> np.ndarray[Any, Any]:
    """Return an array from NumPy's arguments in protocol 5."""
    content, dtype, shape, order = args
    return np.frombuffer(content, dtype).reshape(shape, order=order).copy()


def _make_number(args: tuple[Any, ...], state: object) -> Any:
    dtype, content = args
    raw = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(raw, dtype)[0]


_MAKERS: dict[str, Callable[[tuple[Any, ...], Any], Any]] = {
    _ARRAY: _make_array,
    "mxnet.ndarray NDArray": _make_array,
    "mxnet.ndarray.sparse RowSparseNDArray": _make_array,
    "builtins bytearray": _make_bytes,
    "__builtin__ bytearray": _make_bytes,
    "_codecs encode": _make_bytes,
    **{f"{home} set": lambda args, state: set(*args) for home in ("builtins", "__builtin__")},
    **{f"{home} frozenset": lambda args, state: frozenset(*args) for home in ("builtins", "__builtin__")},
    **{f"{home} complex": lambda args, state: complex(*args) for home in ("builtins", "__builtin__")},
    "numpy dtype": _make_dtype,
    "numpy ndarray": _make_numpy,
    **{f"{core}.multiarray _reconstruct": _make_numpy for core in ("numpy.core", "numpy._core")},
    **{f"{core}.numeric _frombuffer": _make_from_buffer for core in ("numpy.core", "numpy._core")},
    **{f"{core}.multiarray scalar": _make_number for core in ("numpy.core", "numpy._core")},
}
