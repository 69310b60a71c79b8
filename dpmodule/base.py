"""Errors and number types that every other file uses.

The error family; what stands in brackets is the built-in type that MXNet 1.9.1 raised in the same place, so
that handlers written for it keep working::

    MXNetError [RuntimeError]
    ├── ArgumentError [ValueError]        a value, name or combination that a call does not take
    │   ├── OpError                       an operator's attribute or input
    │   └── BoundsError [IndexError]      an index outside an array
    ├── ShapeError [ValueError]           shapes that contradict each other or cannot be inferred
    ├── DTypeError [TypeError]            an unknown or unfitting element type
    ├── StateError [AssertionError]       a call that comes before the one it needs
    │   └── NotSupportedError [NotImplementedError] a call that an object of this kind never takes
    ├── DeviceError                       a device that does not exist here
    ├── FileError [OSError]               a file that cannot be opened, read or written
    ├── FileFormatError [ValueError]      a damaged, truncated or foreign file
    ├── MissingPackageError [ImportError] an optional package that is not installed
    ├── OutOfMemoryError [MemoryError]    an array for which there is no memory, often of an absurd shape
    ├── NodeError                         an operator failed inside a graph; names the node
    ├── LostWorkerError [ConnectionError] a process that trains with this one is gone or does not answer
    ├── NonFiniteError [ArithmeticError]  NaN or infinity where a number is needed
    ├── NotImplementedForSymbol           an NDArray call on a Symbol
    └── NotSupportedForSparseNDArray      a call on a sparse array that only dense ones have
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ._core import lazy

__all__ = [
    "ArgumentError",
    "BoundsError",
    "DTypeError",
    "DeviceError",
    "FileError",
    "FileFormatError",
    "LostWorkerError",
    "MXNetError",
    "MissingPackageError",
    "NDArrayHandle",
    "NodeError",
    "NonFiniteError",
    "NotImplementedForSymbol",
    "NotSupportedError",
    "NotSupportedForSparseNDArray",
    "OpError",
    "OutOfMemoryError",
    "Shape",
    "ShapeError",
    "SignatureError",
    "StateError",
    "data_dir",
    "data_dir_default",
    "did_you_mean",
    "dtype_code",
    "dtype_from_code",
    "dtype_name",
    "integer_types",
    "mx_real_t",
    "np_dtype",
    "numeric_types",
    "plain",
    "py_str",
    "string_types",
]

lazy.publish(__name__, __all__)


class MXNetError(RuntimeError):
    """Base of every error raised by this package."""


class ArgumentError(MXNetError, ValueError):
    """A value, name or combination of arguments that the call does not take."""


class SignatureError(ArgumentError, TypeError):
    """An argument that there is none of, or one that is missing, where Python itself raises TypeError."""


class OpError(ArgumentError):
    """An operator's attribute or input that does not fit its declaration."""


class BoundsError(ArgumentError, IndexError):
    """An index outside an array, or more indices than it has axes."""


class ShapeError(MXNetError, ValueError):
    """Shapes that contradict each other or cannot be inferred."""


class DTypeError(MXNetError, TypeError):
    """An unknown element type, or one that does not fit."""


class StateError(MXNetError, AssertionError):
    """A call that comes before the call it depends on, such as `forward` before `bind`."""


class NotSupportedError(StateError, NotImplementedError):
    """A call that an object of this kind never takes, though others of its family do."""


class DeviceError(MXNetError):
    """A device that does not exist on this machine."""


class FileError(OSError, MXNetError):
    """A file that cannot be opened, read or written; `errno` and `filename` are set as in any OSError."""


class FileFormatError(MXNetError, ValueError):
    """A damaged, truncated or foreign file; the text names the file and the byte offset."""


class MissingPackageError(MXNetError, ImportError):
    """An optional package is not installed; the message says how to get it."""


class OutOfMemoryError(MXNetError, MemoryError):
    """An array for which there is no memory; the text has its shape."""

    @classmethod
    def of(cls, what: str, error: BaseException) -> OutOfMemoryError:
        """Return the error for an array.

        Args:
            what: the array, such as "an array of shape (2, 3)".
            error: what Python, NumPy or torch raised.
        """
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return cls(f"there is no memory for {what}: {reason}")


class NodeError(MXNetError):
    """An operator failed inside a graph; the text names the node, its inputs and the line that made it."""


class LostWorkerError(ConnectionError, MXNetError):
    """A process that trains together with this one has ended, or does not answer; the text names its rank."""


class NonFiniteError(MXNetError, ArithmeticError):
    """NaN or infinity where a finite number is needed."""


class NotImplementedForSymbol(MXNetError):
    """A call that needs values, made on a Symbol, which has none before it is bound.

    Args:
        function: what was called, or its name.
        alias: what to call instead; None if there is nothing.
        *args: what it was called with; taken as in MXNet, not shown.
    """

    def __init__(self, function: Any, alias: str | None = None, *args: Any) -> None:
        name = function if isinstance(function, str) else function.__name__
        text = f"Symbol.{name} is not available: a Symbol has no values until it is bound"
        super().__init__(f"{text}; use {alias} instead" if alias else text)


class NotSupportedForSparseNDArray(MXNetError):
    """A call on a sparse array that needs the memory of a dense one.

    Args:
        function: what was called, or its name.
        alias: the name to show instead of the function's own.
        *args: what it was called with; taken as in MXNet, not shown.
    """

    def __init__(self, function: Any, alias: str | None = None, *args: Any) -> None:
        name = function if isinstance(function, str) else function.__name__
        text = f"sparse arrays have no {alias or name}; convert with tostype('default') first"
        super().__init__(text)


Shape = tuple[int, ...] | None
"""A shape during inference: None = unknown rank, 0 = unknown dimension."""

mx_real_t = np.float32
NDArrayHandle = ctypes.c_void_p
"""What code written for MXNet casts the array to that a monitor gave it, before it makes an `NDArray` of that."""

string_types = (str,)
integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)

# position = MXNet's type number in .params files and in `__dtype__`
_DTYPES = (
    "float32",
    "float64",
    "float16",
    "uint8",
    "int32",
    "int8",
    "int64",
    "bool",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
)
_CODES = {name: code for code, name in enumerate(_DTYPES)}


def dtype_name(dtype: Any) -> str:
    """Return the plain name ("float32") of a dtype given as NumPy type, torch dtype, name or None.

    Args:
        dtype: what stands for the type; None means ``"float32"``.

    Raises:
        DTypeError: `dtype` is none of these.
    """
    if dtype is None:
        return "float32"
    text = dtype if isinstance(dtype, str) else str(dtype)
    text = text.removeprefix("torch.")
    if text in _CODES:
        return text
    own = None if isinstance(dtype, type) else getattr(dtype, "dtype", None)
    is_foreign = own is not None and not isinstance(own, np.dtype)  # an array, whose type NumPy 1 would take
    try:
        found = np.dtype(object if is_foreign else dtype)
        name: str = "bfloat16" if found.names == ("bfloat16",) else found.name  # MXNet's stand-in is a record
    except (SyntaxError, TypeError, ValueError):  # the last of tensors, the first of "(1,"
        name = text
    if name not in _CODES:
        raise DTypeError(f"unknown dtype {dtype!r}; expected one of {', '.join(_DTYPES)}")
    return name


def np_dtype(name: str) -> Any:
    """Return the NumPy scalar type of a dtype name; "bfloat16", which NumPy lacks, stays a name.

    Args:
        name: such as ``"float32"``.
    """
    return name if name == "bfloat16" else np.dtype(name).type


def dtype_code(name: str) -> int:
    """Return MXNet's type number of a dtype name.

    Args:
        name: such as ``"float32"``.
    """
    return _CODES[name]


def dtype_from_code(code: int) -> str:
    """Return the dtype name of MXNet's type number.

    Args:
        code: as files and MXNet's C interface have it; 0 is ``"float32"``.

    Raises:
        DTypeError: the number stands for no type.
    """
    if not 0 <= code < len(_DTYPES):
        raise DTypeError(f"unknown type number {code}; expected 0 to {len(_DTYPES) - 1}")
    return _DTYPES[code]


def did_you_mean(
    name: str, known: Iterable[str], *more: str, synonyms: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the end of a message about unknown names, which offers what may have been meant; "" where nothing may.

    Args:
        name: what was asked for.
        synonyms: what names of other systems are called here.

    Example:
        >>> from dpmodule.base import did_you_mean
        >>> did_you_mean("fc_weigth", ["data", "fc_bias", "fc_weight"])
        '; did you mean fc_weight?'
    """
    import difflib  # few programs misspell

    names = list(known)
    found = [
        [synonyms[each]] if each in synonyms else difflib.get_close_matches(each, names)
        for each in (name, *more)
    ]
    near = [each for part in found for each in part]
    return f"; did you mean {', '.join(near)}?" if near else ""


def plain(value: Any) -> Any:
    """Return `value` with NumPy numbers, types and arrays turned into plain Python ones, recursively.

    NumPy 2 prints ``np.int64(4)`` where attribute text needs ``4``.

    Args:
        value: what to convert; tuples and lists are walked through, everything else stays as it is.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, type) and issubclass(value, np.generic) or isinstance(value, np.dtype):
        return dtype_name(value)
    return value


def data_dir_default() -> str:
    """Return where MXNet keeps what it downloads if `MXNET_HOME` does not say otherwise."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("APPDATA", os.path.expanduser("~")), "mxnet")
    return os.path.join(os.path.expanduser("~"), ".mxnet")


def data_dir() -> str:
    """Return the folder for downloaded data: the environment variable `MXNET_HOME`, else the default."""
    return os.getenv("MXNET_HOME") or data_dir_default()


def py_str(value: bytes | str) -> str:
    """Decode bytes as UTF-8 (kept for code that imports it from MXNet).

    Args:
        value: encoded text; a str is returned as it is.
    """
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _as_list(obj: Any) -> list[Any]:
    """Wrap anything that is neither list nor tuple in a list (MXNet's helper of this name)."""
    return list(obj) if isinstance(obj, Sequence) and not isinstance(obj, (str, bytes)) else [obj]
