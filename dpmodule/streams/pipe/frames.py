"""Rare news between the ends of a pipe: fixed frames over a unix socket, each with a descriptor or without."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from typing import NamedTuple

from ..errors import PipeBroken, refused

__all__ = ["PipeFrame", "PipeFrames"]

LAYOUT, SHARE, FORGET, PAYLOAD = 1, 2, 3, 4
"""New memory for a slot; a shared block, and the end of its use; bytes that a message carries."""

_FORM = struct.Struct("=IIQ")
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class PipeFrame(NamedTuple):
    """One piece of news; `number` is a slot or a shared block, `size` its bytes, `fd` a descriptor or -1."""

    kind: int
    number: int
    size: int
    fd: int


class PipeFrames:
    """One end of the socket.

    Args:
        end: a connected socket that does not block; belongs to this object from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.ended = False
        self.count = 0
        self._waiting: deque[PipeFrame] = deque()
        self._part = b""
        self._fds: deque[int] = deque()

    def send(self, kind: int, number: int, size: int, fd: int = -1) -> None:
        """Send one frame; waits while the socket is full, which bounded use of it prevents.

        Raises:
            OSError: nobody is at the other end.
        """
        data = _FORM.pack(kind, number, size)
        while True:
            try:
                if fd < 0:
                    self.socket.send(data)
                else:
                    socket.send_fds(self.socket, [data], [fd])
                break
            except BlockingIOError:
                select.select([], [self.socket], [], 1.0)
        self.count = (self.count + 1) & 0xFFFF_FFFF

    def fill(self) -> None:
        """Read what has come, without waiting.

        Raises:
            FileError: there is no descriptor left for those that have come; they come with the next call.
        """
        while not self.ended:
            try:
                self._check_room()
                data, fds, _, _ = socket.recv_fds(self.socket, 64 * _FORM.size, 64, _CLOEXEC)
            except BlockingIOError:
                return
            except ConnectionError:
                data, fds = b"", []
            self._fds.extend(fds)
            self.ended = not data
            self._part += data
            self._cut()

    def _check_room(self) -> None:
        """See that there is a descriptor for what comes: the system drops what it finds no room for."""
        try:
            os.close(os.dup(self.socket.fileno()))
        except OSError as error:
            if not self.socket.recv(1, socket.MSG_PEEK):
                return  # all that comes is the end
            raise refused("a descriptor that the other end of a tensor pipe sent", error) from error

    def _cut(self) -> None:
        while len(self._part) >= _FORM.size:
            kind, number, size = _FORM.unpack_from(self._part)
            self._part = self._part[_FORM.size :]
            if kind != FORGET and not self._fds:
                raise PipeBroken("a descriptor that the other end of a tensor pipe sent was lost on its way")
            self._waiting.append(PipeFrame(kind, number, size, -1 if kind == FORGET else self._fds.popleft()))

    def take(self) -> PipeFrame | None:
        """Return the next frame, None if it has not come; its descriptor belongs to the caller."""
        if not self._waiting:
            self.fill()
        if not self._waiting:
            return None
        self.count = (self.count + 1) & 0xFFFF_FFFF
        return self._waiting.popleft()

    def put_back(self, frame: PipeFrame) -> None:
        """Have `take` return a frame again, with its descriptor."""
        self._waiting.appendleft(frame)
        self.count = (self.count - 1) & 0xFFFF_FFFF

    def close(self) -> None:
        """Close the socket and the descriptors that nobody took."""
        self.socket.close()
        for fd in [*self._fds, *(frame.fd for frame in self._waiting if frame.fd >= 0)]:
            os.close(fd)
        self._fds.clear()
        self._waiting.clear()
