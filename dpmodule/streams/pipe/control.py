"""The shared block by which the two ends of a pipe know of each other: who is there, what was sent, what is free.

64-bit words in lines of 8, so that the two sides do not write to one cache line::

    line 0   magic number, protocol (`NATIVE` or `PYTHON`), slots
    line 1   writer: pid, start time of its process, state, 1 while it sleeps, failures sent
    line 2   reader: the same, failures received
    line 3   messages published          line 4   messages taken
    line 8   the ring of messages, `RING` words
    after it one line per slot: 0 = free, 1 = sent or in use by the reader

A message is a word: kind in bits 0-7, slot in 8-15, how many frames were sent before it in 32-63.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import tempfile

from ..errors import refused

__all__ = ["Control", "Signal", "anonymous_file"]

MAGIC = 0x6470_7069_7065_0001
PYTHON, NATIVE = 1, 2
SIDES = ("writer", "reader")
WRITER, READER = 0, 1
PID, START, STATE, SLEEPS, FAILURES = range(5)
OPEN, CLOSED, DROPPED = 0, 1, 2
HEAD, TAIL = 24, 32
RING_AT, RING = 64, 256
SLOTS_AT = RING_AT + RING
MAX_SLOTS = 64
SIZE = 8 * (SLOTS_AT + 8 * MAX_SLOTS)

DATA, FAILURE, OBJECT = 1, 2, 3
"""Kinds of messages: tensors in a slot; an exception; a pickled structure."""


def anonymous_file(size: int) -> int:
    """Return the descriptor of shared memory without a name, of `size` bytes, all 0.

    Raises:
        FileError: the system has no descriptor or no memory left.
    """
    try:
        fd = _open_anonymous()
    except OSError as error:
        raise refused("shared memory for a pipe", error) from error
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        os.close(fd)
        raise refused(f"shared memory of {size} bytes for a pipe", error) from error
    return fd


def _open_anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dpmodule-pipe", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="dpmodule-pipe")
    os.unlink(path)
    return fd


def process_start(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 where that cannot be told, -1 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return -1 if os.path.isdir("/proc/self") else 0
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


class Control:
    """The shared block, mapped into this process.

    Args:
        fd: its descriptor, which stays the caller's.
    """

    def __init__(self, fd: int) -> None:
        self.words = memoryview(mmap.mmap(fd, SIZE)).cast("Q")

    @staticmethod
    def create(protocol: int, slots: int) -> int:
        """Return the descriptor of a fresh block."""
        fd = anonymous_file(SIZE)
        try:
            words = Control(fd).words
        except OSError:
            os.close(fd)
            raise
        words[1], words[2] = protocol, slots
        words[0] = MAGIC
        return fd

    @property
    def protocol(self) -> int:
        """`NATIVE` or `PYTHON`: what the end that made the pipe speaks."""
        return self.words[1]

    @property
    def slots(self) -> int:
        """How many messages may be on the way or in use."""
        return self.words[2]

    def get(self, side: int, field: int) -> int:
        """Read a field of one side."""
        return self.words[8 + 8 * side + field]

    def put(self, side: int, field: int, value: int) -> None:
        """Write a field of one side."""
        self.words[8 + 8 * side + field] = value

    def claim(self, side: int) -> bool:
        """Enter this process as the owner of a side; False if another one is."""
        owner = self.get(side, PID)
        if owner == 0:
            self.put(side, START, max(process_start(os.getpid()), 0))
            self.put(side, PID, os.getpid())
        return owner in (0, os.getpid())


class Signal:
    """A descriptor that becomes readable when the other side has news: an eventfd, or a pipe where there is none.

    Args:
        read: the descriptor to watch.
        write: the one to write to; the same for an eventfd.
    """

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write

    @classmethod
    def create(cls) -> Signal:
        """Open a fresh one."""
        if hasattr(os, "eventfd"):
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(fd, fd)
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        return cls(read, write)

    def copy(self) -> Signal:
        """Return one with descriptors of its own."""
        read = os.dup(self.read)
        return Signal(read, read if self.read == self.write else os.dup(self.write))

    def give(self) -> None:
        """Wake whoever watches it."""
        with contextlib.suppress(BlockingIOError):  # it is readable already
            os.write(self.write, b"\1\0\0\0\0\0\0\0")

    def drain(self) -> None:
        """Make it unreadable until the next wake-up."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read, 4096)

    def close(self) -> None:
        """Close the descriptors."""
        for fd in {self.read, self.write}:
            os.close(fd)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that do not block."""
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    return pair
