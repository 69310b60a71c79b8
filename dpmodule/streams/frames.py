"""One end of a socket that carries messages and open descriptors between two processes."""

from __future__ import annotations

import errno
import os
import socket
from array import array
from collections import deque
from collections.abc import Callable

from .errors import refused
from .messages import HEADER_BYTES, Message, MessageHeader, Received

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
        if len(self._data) < HEADER_BYTES:
            return None
        header = MessageHeader.read(self._data)
        end = HEADER_BYTES + header.length
        if len(self._data) < end:
            return None
        body = self._data[HEADER_BYTES:end]
        del self._data[:end]
        fds = [self._fds.popleft() for _ in range(min(header.num_fds, len(self._fds)))]
        if len(fds) < header.num_fds:  # the system drops what it finds no room for
            for fd in fds:
                os.close(fd)
            raise refused("a descriptor that came with a message", OSError(errno.EMFILE, "it was lost"))
        return header.receive(body, fds)

    def close(self) -> None:
        """Close the socket and every descriptor that came and was not taken."""
        self.ended = True
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())
