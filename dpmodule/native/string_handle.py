"""StringHandle in Python, used without the extension, and the checks that the native one calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, DeviceError, DTypeError, StateError

_SHOWN = 16
"""Number of bytes that the repr of a handle shows."""


def tensor_memory(data: object) -> tuple[int, int]:
    """Return the address and the size in bytes of a tensor's memory for a StringHandle."""
    if not isinstance(data, torch.Tensor):
        hint = "; encode text first, data.encode()" if isinstance(data, str) else ""
        raise DTypeError(
            f"StringHandle: data is {type(data).__name__}, expected bytes, a contiguous buffer or a uint8 tensor{hint}"
        )
    if data.device.type != "cpu":
        raise DeviceError(f"StringHandle: data is a tensor of {data.device}; copy it to the CPU first")
    if data.dtype != torch.uint8:
        raise DTypeError(
            f"StringHandle: data is a tensor of {data.dtype}, expected torch.uint8; tensor.view(torch.uint8) shows "
            "its bytes"
        )
    if data.layout != torch.strided or not data.is_contiguous():
        raise ArgumentError("StringHandle: data is a tensor that is not contiguous; call contiguous() first")
    return data.data_ptr(), data.numel()


def _memory(data: Any) -> Any:
    """Return an object with a contiguous buffer over the bytes of `data`."""
    try:
        view = memoryview(data)
    except TypeError:
        tensor_memory(data)
        return memoryview(data.detach().reshape(-1).numpy())
    return view if view.ndim == 1 and view.format == "B" and view.contiguous else _as_bytes(view)


def _as_bytes(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise ArgumentError(f"StringHandle: data is a {type(view.obj).__name__} that is not contiguous")
    # a view with a zero in its shape cannot be cast
    return view.cast("B") if view.nbytes else memoryview(b"")


# Before Python 3.12 a class written in Python cannot define a buffer, but it can inherit one.
_Array: Any = np.ndarray


class StringHandle(_Array):  # type: ignore[misc]  # most array methods are replaced by those of bytes
    """Hold bytes of Python, C++ or a tensor without copying them, and share their ownership.

    A handle is a small object passed by value: its slices, its views and the functors that hold it keep the memory
    alive. It has a read-only buffer, so everything that reads buffers accepts it:
    ``memoryview(handle)``, ``socket.send``, ``numpy.frombuffer``, ``torch.frombuffer``, ``writer.writelines``. (The
    transports of asyncio accept only bytes, bytearray or memoryview: ``writer.write(memoryview(handle))``.)

    Like bytes it has ``len``, integer indices, iteration over integers, ``in``, ``==`` with bytes-likes and
    handles, and the hash of equal bytes. Slices copy nothing; a step other than 1 would, and is an error.

    Multiprocessing passes a handle over a tensor in shared memory without a copy. It copies other handles into shared
    memory, and those of up to 16 KiB into the message. Plain pickle copies the bytes.

    Args:
        data: bytes; another handle; a contiguous tensor of uint8 on the CPU, in shared memory or not; any other object
            with a contiguous buffer; or a C++ object that returns a capsule ``dpmodule.bytes.v1``.

    Attributes:
        source: the object that owns the memory; None for memory of C++.
        offset: beginning of the handle in that memory, in bytes.

    A handle over writable memory, such as a tensor's, shows later writes. Its hash changes with them, so do not use it
    as a key of a dict while you write. Do not call `share_memory_` or `resize_` on its tensor: they move the memory,
    and reading the handle then raises StateError.

    Example:
        >>> handle = StringHandle(b"key=value")
        >>> handle[4:]
        StringHandle(b'value')
        >>> memoryview(handle[4:]).obj is not None, handle[:3] == b"key"
        (True, True)
    """

    source: Any
    offset: int
    _address: int | None
    _memory: memoryview
    __module__ = "dpmodule.streams"
    __array_ufunc__ = None  # no arithmetic

    def __new__(cls, data: Any) -> StringHandle:
        """Return a handle over bytes, a contiguous buffer, a uint8 tensor or another handle."""
        if isinstance(data, StringHandle):
            data._check()
            return data
        tensor = data if isinstance(data, torch.Tensor) else None
        return cls._over(_memory(data), data, 0, None if tensor is None else tensor.data_ptr())

    @classmethod
    def _over(cls, memory: memoryview, source: Any, offset: int, address: int | None) -> StringHandle:
        self: StringHandle = super().__new__(cls, (len(memory),), np.uint8, memory)
        self.setflags(write=False)
        self.source, self.offset, self._address = source, offset, address
        self._memory = memory  # the array alone does not stop a bytearray from moving
        return self

    def __array_finalize__(self, other: Any) -> None:
        """Do nothing: slicing sets the attributes of a view."""

    def _check(self) -> None:
        if self._address is not None and self.source.data_ptr() != self._address:
            raise StateError(
                "StringHandle: its tensor's memory has moved since (share_memory_, resize_ or set_ was called); make "
                "the handle afterwards"
            )

    def _view(self) -> memoryview:
        self._check()
        return memoryview(self)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            try:
                return self._view()[key]
            except IndexError as error:
                raise BoundsError(f"StringHandle: index {key} is outside of its {len(self)} bytes") from error
        if key.step not in (None, 1):
            raise ArgumentError(
                f"StringHandle: a slice with step {key.step} would be a copy; write bytes(handle)[...] for one"
            )
        begin, end, _ = key.indices(len(self))
        self._check()
        return self._over(self._memory[begin:end], self.source, self.offset + begin, self._address)

    def __iter__(self) -> Iterator[int]:
        return iter(self._view())

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, item: Any) -> bool:
        if isinstance(item, int) and not 0 <= item < 256:
            raise ArgumentError("StringHandle: only integers from 0 to 255 can be bytes of it")
        return (item if isinstance(item, int) else bytes(item)) in bytes(self._view())

    def __eq__(self, other: Any) -> Any:
        try:
            return self._view() == memoryview(other).cast("B")
        except TypeError:
            return NotImplemented

    def __ne__(self, other: Any) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def _no_order(self, other: Any) -> Any:
        return NotImplemented

    __lt__ = __le__ = __gt__ = __ge__ = _no_order

    def __hash__(self) -> int:
        return hash(bytes(self._view()))

    def __repr__(self) -> str:
        head = bytes(self._view()[:_SHOWN])
        return (
            f"StringHandle({head!r})"
            if len(self) <= _SHOWN
            else f"<StringHandle {head!r}... of {len(self)} bytes>"
        )

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return StringHandle, (bytes(self._view()),)
