"""Errors and element types that every other module uses.

The errors; brackets hold the built-in type that MXNet 1.9.1 raised in the same place, so that handlers written for it
keep working::

    MXNetError [RuntimeError]
    ├── ArgumentError [ValueError]        a value, name or combination that a call does not accept
    │   ├── OpError                       an operator's attribute or input
    │   └── BoundsError [IndexError]      an index outside an array
    ├── ShapeError [ValueError]           shapes that contradict each other or cannot be inferred
    ├── DTypeError [TypeError]            an unknown or unsupported element type
    ├── StateError [AssertionError]       a call that comes before the one it needs
    │   └── NotSupportedError [NotImplementedError] a call that this type does not support
    ├── DeviceError                       a device that does not exist here
    ├── FileError [OSError]               a file that cannot be opened, read or written
    ├── FileFormatError [ValueError]      a damaged, truncated or foreign file
    ├── MissingPackageError [ImportError] an optional package that is not installed
    ├── OutOfMemoryError [MemoryError]    an array for which there is no memory, often of an absurd shape
    ├── NodeError                         an operator failed inside a graph; names the node
    ├── LostWorkerError [ConnectionError] another process of a distributed training ended or does not answer
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


class MXNetError(RuntimeError):
    """Base of every error raised by this package."""


class ArgumentError(MXNetError, ValueError):
    """A value, name or combination of arguments that the call does not accept."""


class SignatureError(ArgumentError, TypeError):
    """An unknown or missing argument, or one of a wrong type, for which Python raises TypeError."""


class UnknownNameError(ArgumentError, KeyError):
    """A name or key that does not exist, for which Python raises KeyError."""

    __str__ = Exception.__str__  # that of KeyError adds quotes


class OpError(ArgumentError):
    """An attribute or input that does not match the declaration of its operator."""


class BoundsError(ArgumentError, IndexError):
    """An index outside an array, or more indices than it has axes."""


class ShapeError(MXNetError, ValueError):
    """Shapes that contradict each other or cannot be inferred."""


class DTypeError(MXNetError, TypeError):
    """An unknown element type, or one that the call does not support."""


class StateError(MXNetError, AssertionError):
    """A call that comes before the call it depends on, such as `forward` before `bind`."""


class NotSupportedError(StateError, NotImplementedError):
    """A call that this type does not support, although related types do."""


class DeviceError(MXNetError):
    """A device that does not exist on this machine."""


class FileError(OSError, MXNetError):
    """A file that cannot be opened, read or written; `errno` and `filename` are set as in any OSError."""


class FileFormatError(MXNetError, ValueError):
    """A damaged, truncated or foreign file; the message names the file and the byte offset."""


class MissingPackageError(MXNetError, ImportError):
    """An optional package is not installed; the message explains how to install it."""


class OutOfMemoryError(MXNetError, MemoryError):
    """An array for which there is not enough memory; the message contains its shape."""

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
    """An operator failed inside a graph; the message names the node, its inputs and the line that created it."""


class LostWorkerError(ConnectionError, MXNetError):
    """Another process of a distributed training ended or does not answer; the message names its rank."""


class NonFiniteError(MXNetError, ArithmeticError):
    """NaN or infinity where a finite number is needed."""


class NotImplementedForSymbol(MXNetError):
    """A call on a Symbol that needs values, which a Symbol lacks before it is bound.

    Args:
        function: the function that was called, or its name.
        alias: name of an alternative, or None.
        *args: arguments of the call; accepted as in MXNet, not shown.
    """

    def __init__(self, function: Any, alias: str | None = None, *args: Any) -> None:
        name = function if isinstance(function, str) else function.__name__
        text = f"Symbol.{name} is not available: a Symbol has no values until it is bound"
        super().__init__(f"{text}; use {alias} instead" if alias else text)


class NotSupportedForSparseNDArray(MXNetError):
    """A call on a sparse array that needs the memory of a dense one.

    Args:
        function: the function that was called, or its name.
        alias: name to show instead of the function's own.
        *args: arguments of the call; accepted as in MXNet, not shown.
    """

    def __init__(self, function: Any, alias: str | None = None, *args: Any) -> None:
        name = function if isinstance(function, str) else function.__name__
        text = f"sparse arrays have no {alias or name}; convert with tostype('default') first"
        super().__init__(text)


Shape = tuple[int, ...] | None
"""A shape during inference: None = unknown rank, 0 = unknown dimension."""

mx_real_t = np.float32
NDArrayHandle = ctypes.c_void_p
"""Type to which MXNet programs cast the array passed to a monitor before they make an `NDArray` of it."""

string_types = (str,)
integer_types = (int, np.int32, np.int64)
numeric_types = (float, int, np.generic)

# position = MXNet's type number in .params files and in `__dtype__`
DTYPES = (
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
_CODES = {name: code for code, name in enumerate(DTYPES)}


def dtype_name(dtype: Any) -> str:
    """Return the name ("float32") of a NumPy type, torch dtype, name or None.

    Args:
        dtype: the type; None means ``"float32"``.

    Raises:
        DTypeError: `dtype` is not one of these.
    """
    if dtype is None:
        return "float32"
    text = dtype if isinstance(dtype, str) else str(dtype)
    text = text.removeprefix("torch.")
    if text in _CODES:
        return text
    own = None if isinstance(dtype, type) else getattr(dtype, "dtype", None)
    is_foreign = own is not None and not isinstance(own, np.dtype)  # an array: NumPy 1 would use its type
    try:
        numpy_type = np.dtype(object if is_foreign else dtype)
        is_bfloat16 = numpy_type.names == ("bfloat16",)  # MXNet stores it as a record type
        name: str = "bfloat16" if is_bfloat16 else numpy_type.name
    except (SyntaxError, TypeError, ValueError):  # ValueError for tensors, SyntaxError for "(1,"
        name = text
    if name not in _CODES:
        raise DTypeError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    return name


def np_dtype(name: str) -> Any:
    """Return the NumPy scalar type of a dtype name; "bfloat16" stays a name, since NumPy lacks it.

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
        code: number in files and MXNet's C interface; 0 is ``"float32"``.

    Raises:
        DTypeError: there is no type with this number.
    """
    if not 0 <= code < len(DTYPES):
        raise DTypeError(f"unknown type number {code}; expected 0 to {len(DTYPES) - 1}")
    return DTYPES[code]


def did_you_mean(
    name: str, known: Iterable[str], *more: str, synonyms: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the end of a message about unknown names that suggests similar ones; "" if there are none.

    Args:
        name: the unknown name.
        known: the known names.
        *more: further unknown names.
        synonyms: names of other systems, and their names here.

    Example:
        >>> from dpmodule.base import did_you_mean
        >>> did_you_mean("fc_weigth", ["data", "fc_bias", "fc_weight"])
        '; did you mean fc_weight?'
    """
    import difflib  # few programs misspell

    names = list(known)
    matches = [
        [synonyms[unknown]] if unknown in synonyms else difflib.get_close_matches(unknown, names)
        for unknown in (name, *more)
    ]
    similar = [match for group in matches for match in group]
    return f"; did you mean {', '.join(similar)}?" if similar else ""


def plain(value: Any) -> Any:
    """Return `value` with NumPy numbers, types and arrays turned into plain Python ones, recursively.

    NumPy 2 prints ``np.int64(4)`` where attribute text needs ``4``.

    Args:
        value: value to convert; tuples and lists are converted recursively, other types are returned unchanged.
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
    """Return MXNet's default folder of downloads, used unless `MXNET_HOME` is set."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("APPDATA", os.path.expanduser("~")), "mxnet")
    return os.path.join(os.path.expanduser("~"), ".mxnet")


def data_dir() -> str:
    """Return the folder of downloaded data: the environment variable `MXNET_HOME`, else the default."""
    return os.getenv("MXNET_HOME") or data_dir_default()


def py_str(value: bytes | str) -> str:
    """Decode bytes as UTF-8 (for programs that import it from MXNet).

    Args:
        value: encoded text; a str is returned unchanged.
    """
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _as_list(obj: Any) -> list[Any]:
    """Return a sequence as a list, anything else as a list of one (MXNet's helper of this name)."""
    return list(obj) if isinstance(obj, Sequence) and not isinstance(obj, (str, bytes)) else [obj]


__all__ = [
    *lazy.own_names(vars()),
    "NDArrayHandle",
    "Shape",
    "integer_types",
    "mx_real_t",
    "numeric_types",
    "string_types",
]
lazy.publish(__name__, __all__)
