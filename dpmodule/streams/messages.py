"""Messages between processes: pickles whose arrays and tensors travel in shared memory, and the socket they go by."""

from __future__ import annotations

import copyreg
import errno
import io
import mmap
import os
import pickle
import socket
import struct
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .errors import RemoteTraceback, WorkerError, refused

_ALIGNMENT = 64
_SPILL_BYTES = 32 << 10
"""From this size on the contents are put into shared memory: what is left always fits into an empty socket."""

_MAP_BYTES = 4 << 20
_HEADER = struct.Struct("<BxHIQ")
_SPILLED = 0x80
"""Marks the kind of a message whose contents lie in shared memory."""


@dataclass(slots=True)
class Message:
    """A message that is ready to be sent.

    Args:
        fds: descriptors that go with it; the last one is the shared memory, if there is any.
        owned: those of them to be closed once it is sent.
        kept: what has to live until then, such as the memory behind the others.
    """

    kind: int
    header: bytes
    body: list[bytes | memoryview]
    fds: list[int] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)
    kept: Any = None

    def close(self) -> None:
        """Close the descriptors that belong to the message, and let go of what it keeps."""
        for fd in self.owned:
            os.close(fd)
        self.owned.clear()
        self.kept = None


def _rebuild_tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not len(buffer):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).view(shape)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        reduced: Any = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        return reduced
    flat = tensor.contiguous().view(-1)
    content: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return _rebuild_tensor, (pickle.PickleBuffer(content), tensor.dtype, tuple(tensor.shape))


class _ValuePickler(pickle.Pickler):
    """Pickles by value; contents of arrays and tensors are handed to `buffer_callback` without a copy."""

    dispatch_table = {**copyreg.dispatch_table, torch.Tensor: _reduce_tensor}


def _pickle_by_value(value: Any, contents: list[pickle.PickleBuffer]) -> bytes:
    stream = io.BytesIO()
    _ValuePickler(stream, pickle.HIGHEST_PROTOCOL, buffer_callback=contents.append).dump(value)
    return stream.getvalue()


def pack(
    kind: int,
    value: Any,
    dumps: Callable[[Any], bytes] | None = None,
    fds: Sequence[int] = (),
) -> Message:
    """Make a message.

    Args:
        kind: number that tells its meaning, 0 to 255.
        dumps: pickles the value (default: by value, with the contents of arrays and tensors beside the pickle).
    """
    contents: list[pickle.PickleBuffer] = []
    data = _pickle_by_value(value, contents) if dumps is None else dumps(value)
    parts = [memoryview(data), *(content.raw() for content in contents)]
    sizes = [part.nbytes for part in parts]
    message = Message(kind, b"", [struct.pack(f"<{len(sizes)}Q", *sizes)], list(fds))
    if sum(sizes) >= _SPILL_BYTES and hasattr(os, "memfd_create"):
        memory = _spill(parts)
        message.fds.append(memory)
        message.owned.append(memory)
    else:
        for part, room in zip(parts, _rooms(sizes)):
            message.body += [part, bytes(room - part.nbytes)]
    length = sum(len(each) for each in message.body)
    kind |= _SPILLED if message.owned else 0
    message.header = _HEADER.pack(kind, len(message.fds), len(parts), length)
    return message


def _rooms(sizes: Sequence[int]) -> list[int]:
    """Return how many bytes each part takes, so that all begin aligned."""
    return [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]


def _spill(parts: list[memoryview]) -> int:
    """Write the parts into new shared memory and return its descriptor."""
    try:
        fd = os.memfd_create("dpmodule-message", os.MFD_CLOEXEC)
    except OSError as error:
        raise refused("shared memory for a message", error) from error
    try:
        offset = 0
        for part, room in zip(parts, _rooms([part.nbytes for part in parts])):
            _write_at(fd, part, offset)
            offset += room
        os.ftruncate(fd, offset)
    except OSError as error:
        os.close(fd)
        raise refused("shared memory for a message", error) from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write_at(fd: int, part: memoryview, offset: int) -> None:
    part = part.cast("B") if part.nbytes else part
    while part.nbytes:
        written = os.pwrite(fd, part, offset)
        part, offset = part[written:], offset + written


@dataclass(slots=True)
class Received:
    """A message as it came: its value is unpickled when it is asked for.

    Args:
        fds: descriptors that came with it; whoever takes the message closes them.
    """

    kind: int
    parts: list[memoryview]
    fds: list[int]

    def value(self) -> Any:
        """Return the value; its arrays and tensors lie in the message's own memory."""
        return pickle.loads(self.parts[0], buffers=self.parts[1:])

    def close(self) -> None:
        """Close the descriptors that came with it."""
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


def _unpacked(kind: int, num_parts: int, body: bytearray, fds: list[int]) -> Received:
    """Make a message from the kind and the number of parts in its header, its body and its descriptors."""
    sizes = struct.unpack_from(f"<{num_parts}Q", body)
    if kind >= _SPILLED:
        memory, start = _content(fds.pop(), sum(_rooms(sizes))), 0
    else:
        memory, start = memoryview(body), 8 * num_parts
    parts = []
    for size, room in zip(sizes, _rooms(sizes)):
        parts.append(memory[start : start + size])
        start += room
    return Received(kind & ~_SPILLED, parts, fds)


def _content(fd: int, size: int) -> memoryview:
    """Return the content of shared memory: a copy if it is small, since a mapping takes a descriptor while it lives."""
    try:
        if size >= _MAP_BYTES or not hasattr(os, "preadv"):
            return memoryview(mmap.mmap(fd, size))
        content = memoryview(bytearray(size))
        done = 0
        while done < size:
            done += os.preadv(fd, [content[done:]], done)
        return content
    finally:
        os.close(fd)


_READ_BYTES = 64 << 10
_FDS_AT_ONCE = 200
_SEND_FLAGS = getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_NOSIGNAL", 0)
_RECEIVE_FLAGS = getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class MessageFrames:
    """Sends and receives messages over one end of a socket pair, without ever blocking in a system call.

    Args:
        sock: the end; it belongs to this object from now on.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._data = bytearray()
        self._fds: deque[int] = deque()
        self.ended = False
        """Whether the other end is closed and everything it sent has been received."""

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 when it is closed."""
        return self._sock.fileno()

    def send(self, message: Message, until_writable: Callable[[], None]) -> None:
        """Send a whole message.

        Args:
            message: is closed afterwards, also if this fails.
            until_writable: called when the socket is full; returns when it is not, or raises.
        """
        try:
            self._send_all(message, until_writable)
        finally:
            message.close()

    def _send_all(self, message: Message, until_writable: Callable[[], None]) -> None:
        fds = message.fds
        # one message to the system takes no more than 253 descriptors, and at least one byte
        chunks = [fds[i : i + _FDS_AT_ONCE] for i in range(0, len(fds), _FDS_AT_ONCE)] or [[]]
        data = memoryview(b"".join([message.header, *message.body]))
        while data:
            last = len(chunks) <= 1
            piece = data if last else data[:1]
            try:
                sent = self._send_some(piece, chunks[0] if chunks else [])
            except BlockingIOError:
                until_writable()
                continue
            chunks = chunks[1:]
            data = data[sent:]

    def _send_some(self, data: memoryview, fds: list[int]) -> int:
        if not fds:
            return self._sock.send(data, _SEND_FLAGS)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))
        return self._sock.sendmsg([data], [rights], _SEND_FLAGS)

    def receive(self) -> list[Received]:
        """Return the messages that have come; `ended` tells afterwards whether more can come."""
        found: list[Received] = []
        while not self.ended and self._read():
            while (message := self._take()) is not None:
                found.append(message)
        return found

    def _read(self) -> bool:
        room = socket.CMSG_SPACE(4 * _FDS_AT_ONCE)
        try:
            data, rights, _, _ = self._sock.recvmsg(_READ_BYTES, room, _RECEIVE_FLAGS)
        except BlockingIOError:
            return False
        except OSError:  # reset: the other end was closed with something unread
            self.ended = True
            return False
        for level, kind, content in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array("i", content[: len(content) // 4 * 4]))
        self.ended = not data
        self._data += data
        return bool(data)

    def _take(self) -> Received | None:
        if len(self._data) < _HEADER.size:
            return None
        kind, num_fds, num_parts, length = _HEADER.unpack_from(self._data)
        end = _HEADER.size + length
        if len(self._data) < end:
            return None
        body = self._data[_HEADER.size : end]
        del self._data[:end]
        fds = [self._fds.popleft() for _ in range(min(num_fds, len(self._fds)))]
        if len(fds) < num_fds:  # the system drops what it finds no room for
            for fd in fds:
                os.close(fd)
            raise refused("a descriptor that came with a message", OSError(errno.EMFILE, "it was lost"))
        return _unpacked(kind, num_parts, body, fds)

    def close(self) -> None:
        """Close the socket and every descriptor that came and was not taken."""
        self.ended = True
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An exception in a form that always can be sent.

    Args:
        pickled: the exception, None if it cannot be pickled and read again.
    """

    pickled: bytes | None
    name: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, skip: int = 0) -> RemoteError:
        """Describe an exception.

        Args:
            skip: how many outermost calls to leave out of the traceback.
        """
        trace = error.__traceback__
        for _ in range(skip):
            trace = trace.tb_next if trace is not None else None
        text = "".join(traceback.format_exception(type(error), error, trace))
        return cls(_pickled(error), type(error).__qualname__, _text(error), text)

    def restore(self, who: str) -> BaseException:
        """Return the exception, its cause being the traceback it had; a WorkerError where that is impossible."""
        error: BaseException | None = None
        if self.pickled is not None:
            try:
                error = pickle.loads(self.pickled)
            except Exception:  # of its own code, which may depend on modules that only the child has
                error = None
        if not isinstance(error, BaseException):
            error = WorkerError(f"{who} raised {self.name}, which cannot be pickled: {self.text}")
        error.__cause__ = RemoteTraceback(self.trace)
        return error


def _pickled(error: BaseException) -> bytes | None:
    """Return the pickle of an exception if it gives the exception again."""
    try:
        data = pickle.dumps(error)
        again = pickle.loads(data)
    except Exception:  # whatever its own code raises
        return None
    return data if type(again) is type(error) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # whatever its own code raises
        return "its text cannot be made"
