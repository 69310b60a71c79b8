"""Small switches and wrappers that code written for MXNet expects under `mx.util`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

import torch

from ._core import lazy, mode
from ._devices.malloc import keep_large_blocks
from ._devices.precision import is_tf32, set_tf32
from .base import ArgumentError, MXNetError
from .context import Context, gpu_memory_info, num_gpus

_F = TypeVar("_F", bound=Callable[..., Any])


def is_np_shape() -> bool:
    """Return True if NumPy's meaning of shapes is on in this thread (see `np_shape`)."""
    return mode.is_np_shape()


def set_np_shape(active: bool) -> bool:
    """Set the flag of `np_shape` and return its former value.

    Args:
        active: True if () is the shape of a scalar, and -1 an unknown length.
    """
    return mode.set_np_shape(active)


class np_shape:
    """Give shapes their NumPy meaning inside a ``with`` block.

    Symbols read a 0 in a shape as an unknown dimension and () as an unknown shape unless this is on; inside the
    block -1 is an unknown dimension, None an unknown shape, 0 an axis without elements and () a scalar. Arrays may
    be 0-dimensional or empty in both cases. Files record the flag: `nd.save` writes V3 records.

    Args:
        active: the flag's value inside the block.

    Example:
        >>> with np_shape():
        ...     mx.nd.save("scalars.nd", [mx.nd.array(3.0)])
    """

    def __init__(self, active: bool = True) -> None:
        self._active = bool(active)
        self._outer: list[bool] = []

    def __enter__(self) -> np_shape:
        self._outer.append(mode.set_np_shape(self._active))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mode.set_np_shape(self._outer.pop())


def use_np_shape(func: _F) -> _F:
    """Decorate a function, or all methods and properties of a class, so that they run inside `np_shape`.

    Args:
        func: a function or a class.

    Raises:
        ArgumentError: `func` is not callable.
    """
    return _inside(np_shape, "use_np_shape", func)


def _inside(scope: Callable[[], AbstractContextManager[Any]], what: str, target: _F) -> _F:
    """Return a function or class decorated to run inside a scope."""
    if isinstance(target, type):
        for name in {name for cls in target.__mro__[:-1] for name in vars(cls)}:
            member = inspect.getattr_static(target, name)
            if isinstance(member, (staticmethod, classmethod)):
                setattr(target, name, type(member)(_inside(scope, what, member.__func__)))
            elif isinstance(member, property):
                parts: list[Any] = [member.fget, member.fset, member.fdel]
                get, put, delete = (part and _inside(scope, what, part) for part in parts)
                setattr(target, name, property(get, put, delete, member.__doc__))
            elif inspect.isfunction(member):
                setattr(target, name, _inside(scope, what, member))
        return target
    if not callable(target):
        raise ArgumentError(f"{what}: got {target!r}, expected a function or a class")

    @functools.wraps(target)
    def inner(*args: Any, **kwargs: Any) -> Any:
        with scope():
            return target(*args, **kwargs)

    return inner  # type: ignore[return-value]


def is_np_array() -> bool:
    """Return True if `mx.np` arrays are the default: always False, as this package has none."""
    return False


class np_array:
    """MXNet's switch to `mx.np` arrays, which this package lacks: it can only be off.

    Args:
        active: the flag's value inside the ``with`` block.

    Raises:
        MXNetError: the block is entered with `active` set.
    """

    def __init__(self, active: bool = True) -> None:
        self._active = bool(active)

    def __enter__(self) -> np_array:
        if self._active:
            raise MXNetError(
                "this package has no mx.np arrays; use mx.nd, whose arrays may be 0-dimensional too"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def use_np_array(func: _F) -> _F:
    """Decorate a function or class that needs `mx.np` arrays: calling it, or a method, raises, see `np_array`.

    Args:
        func: a function or a class.

    Raises:
        ArgumentError: `func` is not callable.
    """
    return _inside(np_array, "use_np_array", func)


def use_np(func: _F) -> _F:
    """Decorate a function or class that needs `mx.np` arrays and shapes: calling it, or a method, raises.

    Args:
        func: a function or a class.

    Raises:
        ArgumentError: `func` is not callable.
    """
    return use_np_shape(use_np_array(func))


def set_np(shape: bool = True, array: bool = True) -> None:
    """Set the flag of `np_shape`; `array` can only be False.

    Args:
        shape: True if () is the shape of a scalar from now on.
        array: False.

    Raises:
        MXNetError: `array` is set, see `np_array`.
    """
    with np_array(array):
        mode.set_np_shape(shape)


def reset_np() -> None:
    """Turn the flag of `np_shape` off."""
    mode.set_np_shape(False)


def set_module(module: str | None) -> Callable[[_F], _F]:
    """Return a decorator that writes `module` into ``__module__``; None leaves it.

    Args:
        module: such as ``"dpmodule"``.
    """

    def decorate(func: _F) -> _F:
        if module is not None:
            func.__module__ = module
        return func

    return decorate


def get_cuda_compute_capability(ctx: Context) -> int:
    """Return a GPU's compute capability as one number, such as 90 for 9.0.

    Args:
        ctx: a GPU context.

    Raises:
        ArgumentError: it is not a GPU.
        DeviceError: the GPU does not exist here.
    """
    if ctx.device_type != "gpu":
        raise ArgumentError(f"ctx is {ctx}, expected a GPU")
    major, minor = torch.cuda.get_device_capability(ctx.check().torch_device)
    return major * 10 + minor


def get_gpu_count() -> int:
    """Return the number of GPUs that torch sees."""
    return num_gpus()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """Return (free, total) memory of a GPU in bytes.

    Args:
        gpu_dev_id: number of the GPU, counted from 0.
    """
    return gpu_memory_info(gpu_dev_id)


def getenv(name: str) -> str | None:
    """Return an environment variable, None if it is not set.

    Args:
        name: name of the variable.
    """
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it.

    Args:
        name: name of the variable.
        value: its text.
    """
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


__all__ = [*lazy.own_names(vars()), "is_tf32", "keep_large_blocks", "set_tf32"]
lazy.publish(__name__, __all__)
