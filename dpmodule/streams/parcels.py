"""Any object to another process: its tensors and arrays through shared memory, the rest as one pickle.

A `ParcelSender` writes each object into a block of shared memory that nothing uses; a small one goes through the
socket. The blocks are anonymous files, whose descriptors are closed when both sides have mapped them. A block is free
again when the last large tensor of its object is gone. While the receiver keeps many objects, it copies further ones.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import socket
from array import array
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch

from .. import native
from .errors import refused
from .pipe import backend, control

_INLINE = 32 << 10
"""Bytes of the largest object that goes through the socket."""

_MOST_KEPT = 16
"""Number of blocks of one sender that the receiver may use at a time."""

_GRAIN = 1 << 16
_ONE_DESCRIPTOR = socket.CMSG_SPACE(4)
_PACKED = b"\x01"  # the first byte of a parcel; that of a pickle is `pickle.PROTO`


def are_native() -> bool:
    """Return True if this process can make parcels; other objects go in torch's way."""
    return backend.protocol() == control.NATIVE


class TorchSender:
    """Sends objects through a socket of type ``SOCK_STREAM`` in torch's way: a file for each tensor."""

    def __init__(self, end: socket.socket) -> None:
        self._connection = Connection(end.detach())
        self.send, self.close = self._connection.send, self._connection.close


class TorchReceiver:
    """Receives the objects of a `TorchSender`; its methods are those of `ParcelReceiver`."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._connection = Connection(os.dup(end.fileno()))
        self.receive = self._connection.recv

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
        self._connection.close()


class ParcelSender:
    """Sends objects through a socket of type ``SOCK_SEQPACKET``.

    Args:
        end: the socket, which this object owns.
        spare: number of blocks to keep that nothing uses.
    """

    def __init__(self, end: socket.socket, spare: int) -> None:
        core: Any = native.core
        self._socket = end
        self._spare = spare
        self._parcel = core.ParcelWriter(backend.table(), _reduce, _fetch, torch.UntypedStorage)
        self._blocks: dict[int, Any] = {}
        self._made = 0
        self._file = io.BytesIO()
        self._buffers: list[pickle.PickleBuffer] = []
        self._pickler: Any = None

    def send(self, item: Any) -> None:
        """Send an object; wait if the socket is full.

        Raises:
            OSError: the other end is closed.
            Exception: the object cannot be pickled, and nothing was sent.
        """
        if self._pickler is None:
            self._file = io.BytesIO()
            self._pickler = ForkingPickler(self._file, pickle.HIGHEST_PROTOCOL, True, self._buffers.append)
            self._pickler.reducer_override = self._parcel
        try:
            self._pickler.dump(item)
            size = self._file.tell()
            if not (self._parcel.tensors or self._buffers) and size <= _INLINE:
                self._socket.send(self._file.getbuffer())
            else:
                self._send_packed(self._parcel.pack(self._file.getbuffer(), self._buffers))
            self._pickler.clear_memo()
        except BaseException:
            self._pickler = None
            raise
        finally:
            self._parcel.clear()
            self._buffers.clear()
            self._file.seek(0)
            self._file.truncate()

    def _send_packed(self, size: int) -> None:
        if size <= _INLINE:
            self._socket.send(self._parcel.to_bytes())
            return
        free = sorted((block.size, number) for number, block in self._blocks.items() if block.is_free)
        fitting = [number for least, number in free if least >= size]
        fd = -1
        try:
            if fitting:
                number = fitting[0]
            else:
                number, fd = self._new_block(size)
            others = [each for _, each in free if each != number]
            # the smallest ones first: a new block was needed because they are too small
            gone = others[: max(0, len(others) + 1 - self._spare)]
            for each in gone:
                del self._blocks[each]
            block = self._blocks[number]
            self._parcel.write(block)
            head = array("q", [-1, number, block.size, *gone]).tobytes()
            if fd >= 0:
                socket.send_fds(self._socket, [head], [fd])
            else:
                self._socket.send(head)
        except BaseException:
            if fd >= 0:
                del self._blocks[number]  # the receiver does not know it
            raise
        finally:
            if fd >= 0:
                os.close(fd)

    def _new_block(self, size: int) -> tuple[int, int]:
        """Return the number of a new block, and the descriptor of its memory."""
        core: Any = native.core
        size = -(-size * 3 // (2 * _GRAIN)) * _GRAIN  # memory that is never written is not used
        fd = control.anonymous_file(size)
        self._made += 1
        self._blocks[self._made] = core.ParcelBlock(fd, size)
        return self._made, fd

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class ParcelReceiver:
    """Receives the objects of a `ParcelSender`.

    Args:
        end: the socket, which this object owns.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._blocks: dict[int, Any] = {}

    def receive(self) -> Any:
        """Return the next object, waiting for it.

        Raises:
            EOFError: the other end is closed.
        """
        data, sent, _, _ = self.socket.recvmsg(_INLINE, _ONE_DESCRIPTOR)
        if not data:
            raise EOFError
        if data[:1] == pickle.PROTO:
            return pickle.loads(data)
        core: Any = native.core
        if data[:1] == _PACKED:
            return _load(core.unpack_parcel(backend.table(), data, True))
        _, number, size, *gone = memoryview(data).cast("q").tolist()
        for each in gone:
            del self._blocks[each]
        for _, _, fds in sent:
            (fd,) = array("i", fds)
            try:
                self._blocks[number] = core.ParcelBlock(fd, size)
            finally:
                os.close(fd)
        if number not in self._blocks:
            raise refused("memory that a worker sent", OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        used = sum(not block.is_free for block in self._blocks.values())
        return _load(core.unpack_parcel(backend.table(), self._blocks[number], used > _MOST_KEPT))

    def close(self) -> None:
        """Close the socket; objects that were received stay valid."""
        self.socket.close()
        self._blocks.clear()


def _reduce(item: Any) -> Any:
    """Return how to pickle a tensor that a parcel does not take, or a storage."""
    is_plain = item.device.type == "cpu"
    if isinstance(item, torch.UntypedStorage):
        return (_storage_of, (torch.empty(0, dtype=torch.uint8).set_(item),)) if is_plain else NotImplemented
    is_plain = is_plain and item.layout is torch.strided and not item.is_nested
    if not is_plain or (item.requires_grad and not item.is_leaf):
        return NotImplemented  # torch's own reducer, and its errors
    if item.requires_grad or isinstance(item, torch.nn.Parameter):
        return _with_grad, (item.detach(), isinstance(item, torch.nn.Parameter), item.requires_grad)
    return item.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _fetch(number: int) -> NoReturn:
    """Represent a tensor of a parcel in its pickle; unpicklers find another function of this name."""
    raise pickle.UnpicklingError("the pickle of a parcel can be loaded only with the parcel's tensors")


class _ParcelUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, tensors: list[torch.Tensor], buffers: list[Any]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._fetch = tensors.__getitem__

    def find_class(self, module: str, name: str) -> Any:
        is_fetch = name == _fetch.__name__ and module == __name__
        return self._fetch if is_fetch else super().find_class(module, name)


def _load(parts: tuple[bytes, list[Any], list[Any], list[Any]]) -> Any:
    data, tensors, buffers, views = parts
    for number, base, dtype, offset, shape, strides in views:
        view = torch.empty(0, dtype=dtype)
        tensors[number] = view.set_(base.untyped_storage(), offset // dtype.itemsize, shape, strides)
    return _ParcelUnpickler(data, tensors, [each.numpy() for each in buffers]).load()


def _storage_of(data: torch.Tensor) -> torch.UntypedStorage:
    return data.untyped_storage()


def _with_grad(data: torch.Tensor, is_parameter: bool, requires_grad: bool) -> torch.Tensor:
    return torch.nn.Parameter(data, requires_grad) if is_parameter else data.requires_grad_(requires_grad)
