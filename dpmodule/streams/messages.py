"""Messages between processes: pickles with arrays and tensors in shared memory, sent through a socket."""

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

from .errors import RemoteTraceback, UnpicklableError, WorkerError, refused

_ALIGNMENT = 64
_SPILL_BYTES = 32 << 10
"""Contents of at least this size are stored in shared memory, so that the rest fits into an empty socket."""

_MAP_BYTES = 4 << 20
_HEADER = struct.Struct("<BxHIQ")
_SPILLED = 0x80
"""Flag in the kind of a message whose contents are in shared memory."""


@dataclass(slots=True)
class Message:
    """A message that is ready to be sent.

    Args:
        fds: descriptors sent with it; the last one is the shared memory, if there is any.
        owned: descriptors to close after sending.
        kept: objects to keep alive until then, such as the owners of the other descriptors.
    """

    kind: int
    header: bytes
    body: list[bytes | memoryview]
    fds: list[int] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)
    kept: Any = None

    def close(self) -> None:
        """Close the descriptors that belong to the message, and release the objects it keeps."""
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
    """Pickles by value; contents of arrays and tensors are passed to `buffer_callback` without a copy."""

    dispatch_table = {**copyreg.dispatch_table, torch.Tensor: _reduce_tensor}


def _pickle_by_value(value: Any, contents: list[pickle.PickleBuffer]) -> bytes:
    stream = io.BytesIO()
    try:
        _ValuePickler(stream, pickle.HIGHEST_PROTOCOL, buffer_callback=contents.append).dump(value)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise UnpicklableError(
            f"an argument or a result cannot be sent to another process: {error}. Define functions and classes at the"
            " top level of a module, and pass names instead of open files and connections"
        ) from error
    return stream.getvalue()


def pack(
    kind: int,
    value: Any,
    dumps: Callable[[Any], bytes] | None = None,
    fds: Sequence[int] = (),
) -> Message:
    """Return a message that is ready to be sent.

    Args:
        kind: meaning of the message, 0 to 127.
        dumps: function that pickles the value (default: by value, with arrays and tensors outside of the pickle).
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
        for part, padded in zip(parts, _padded_sizes(sizes)):
            message.body += [part, bytes(padded - part.nbytes)]
    length = sum(len(block) for block in message.body)
    kind |= _SPILLED if message.owned else 0
    message.header = _HEADER.pack(kind, len(message.fds), len(parts), length)
    return message


def _padded_sizes(sizes: Sequence[int]) -> list[int]:
    """Return the sizes of parts rounded up, so that each part starts aligned."""
    return [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]


def _spill(parts: list[memoryview]) -> int:
    """Write the parts into new shared memory and return its descriptor."""
    try:
        fd = os.memfd_create("dpmodule-message", os.MFD_CLOEXEC)
    except OSError as error:
        raise refused("shared memory for a message", error) from error
    try:
        offset = 0
        for part, padded in zip(parts, _padded_sizes([part.nbytes for part in parts])):
            _write_at(fd, part, offset)
            offset += padded
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
class ReceivedMessage:
    """A received message, unpickled by `value`.

    Args:
        fds: descriptors received with it; the receiver closes them.
    """

    kind: int
    parts: list[memoryview]
    fds: list[int]

    def value(self) -> Any:
        """Return the value; its arrays and tensors share the message's memory."""
        return pickle.loads(self.parts[0], buffers=self.parts[1:])

    def close(self) -> None:
        """Close the descriptors received with it."""
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


def _unpacked(kind: int, num_parts: int, body: bytearray, fds: list[int]) -> ReceivedMessage:
    """Return the message of a header's kind and number of parts, a body and descriptors."""
    sizes = struct.unpack_from(f"<{num_parts}Q", body)
    if kind >= _SPILLED:
        memory, start = _content(fds.pop(), sum(_padded_sizes(sizes))), 0
    else:
        memory, start = memoryview(body), 8 * num_parts
    parts = []
    for size, padded in zip(sizes, _padded_sizes(sizes)):
        parts.append(memory[start : start + size])
        start += padded
    return ReceivedMessage(kind & ~_SPILLED, parts, fds)


def _content(fd: int, size: int) -> memoryview:
    """Return the content of shared memory; small ones are copied, since a mapping holds a descriptor."""
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
    """One end of a socket pair that sends and receives messages without blocking in a system call.

    Args:
        sock: the socket, which this object then owns.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._data = bytearray()
        self._fds: deque[int] = deque()
        self.ended = False
        """True if the other end is closed and everything it sent has been received."""

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 when it is closed."""
        return self._sock.fileno()

    def send(self, message: Message, until_writable: Callable[[], None]) -> None:
        """Send a whole message.

        Args:
            message: the message, which is closed afterwards, even after an error.
            until_writable: called while the socket is full; returns when it is not, or raises.
        """
        try:
            self._send_all(message, until_writable)
        finally:
            message.close()

    def _send_all(self, message: Message, until_writable: Callable[[], None]) -> None:
        fds = message.fds
        # one system call sends at most 253 descriptors, and at least one byte
        chunks = [fds[i : i + _FDS_AT_ONCE] for i in range(0, len(fds), _FDS_AT_ONCE)] or [[]]
        data = memoryview(b"".join([message.header, *message.body]))
        while data:
            last = len(chunks) <= 1
            block = data if last else data[:1]
            try:
                sent = self._send_some(block, chunks[0] if chunks else [])
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

    def receive(self) -> list[ReceivedMessage]:
        """Return the messages that have arrived; `ended` is then True if no more can follow."""
        messages: list[ReceivedMessage] = []
        while not self.ended and self._read():
            while (message := self._take()) is not None:
                messages.append(message)
        return messages

    def _read(self) -> bool:
        ancillary_bytes = socket.CMSG_SPACE(4 * _FDS_AT_ONCE)
        try:
            data, rights, _, _ = self._sock.recvmsg(_READ_BYTES, ancillary_bytes, _RECEIVE_FLAGS)
        except BlockingIOError:
            return False
        except OSError:  # reset: the other end was closed with unread data
            self.ended = True
            return False
        for level, kind, content in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array("i", content[: len(content) // 4 * 4]))
        self.ended = not data
        self._data += data
        return bool(data)

    def _take(self) -> ReceivedMessage | None:
        if len(self._data) < _HEADER.size:
            return None
        kind, num_fds, num_parts, length = _HEADER.unpack_from(self._data)
        end = _HEADER.size + length
        if len(self._data) < end:
            return None
        body = self._data[_HEADER.size : end]
        del self._data[:end]
        fds = [self._fds.popleft() for _ in range(min(num_fds, len(self._fds)))]
        if len(fds) < num_fds:  # the system drops descriptors beyond the limit
            for fd in fds:
                os.close(fd)
            raise refused("a descriptor that came with a message", OSError(errno.EMFILE, "it was lost"))
        return _unpacked(kind, num_parts, body, fds)

    def close(self) -> None:
        """Close the socket and all received descriptors that were not taken."""
        self.ended = True
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An exception in a form that can always be sent.

    Args:
        pickled: the pickled exception; None if it cannot be pickled and unpickled.
    """

    pickled: bytes | None
    name: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, skip: int = 0) -> RemoteError:
        """Describe an exception.

        Args:
            skip: number of outermost calls to omit from the traceback.
        """
        trace = error.__traceback__
        for _ in range(skip):
            trace = trace.tb_next if trace is not None else None
        text = "".join(traceback.format_exception(type(error), error, trace))
        return cls(_pickled(error), type(error).__qualname__, _text(error), text)

    def restore(self, who: str) -> BaseException:
        """Return the exception with its traceback as cause; a WorkerError if it cannot be unpickled."""
        error: BaseException | None = None
        if self.pickled is not None:
            try:
                error = pickle.loads(self.pickled)
            except (
                Exception
            ):  # raised by its own code, for example because of modules that only the child has
                error = None
        if not isinstance(error, BaseException):
            error = WorkerError(f"{who} raised {self.name}, which cannot be pickled: {self.text}")
        error.__cause__ = RemoteTraceback(self.trace)
        return error


def _pickled(error: BaseException) -> bytes | None:
    """Return the pickle of an exception; None if it does not unpickle to the same class."""
    try:
        data = pickle.dumps(error)
        again = pickle.loads(data)
    except Exception:  # raised by its own code
        return None
    return data if type(again) is type(error) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # raised by its own code
        return "its __str__ failed"
