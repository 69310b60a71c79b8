"""Shared state of the two ends of a pipe (a block of memory, signals, a socket), and the process at the other end.

The block records the owners, the messages sent and the free slots. It holds 64-bit words in lines of 8, so that the two
sides do not write to the same cache line::

    line 0   magic number, protocol (`NATIVE` or `PYTHON`), slots
    line 1   writer: pid, start time of its process, state, 1 while it sleeps, failures sent
    line 2   reader: the same, failures received
    line 3   messages published          line 4   messages taken
    line 8   the ring of messages, `RING` words
    after it one line per slot: 0 = free, 1 = sent or in use by the reader

A message is a word: kind in bits 0-7, slot in 8-15, number of frames sent before it in 32-63.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...base import FileError
from .. import synchronization
from ..errors import LoopClosedError, PipeBroken, refused
from ..synchronization import Signal as Signal

# return values of both cores, in Python and in the extension

SENT, FULL, UNFIT, FOREIGN, CHECK = 0, 1, 2, 3, 4
"""Return values of `send`: sent; no slot is free; the structure fits no free slot; a tensor is on a device; the caller
must check the reader."""

READY, NEWS, ENDED = 1, 2, 4
"""Flags that `wait` returns: there is work or a wake-up; the socket is readable; the other process has ended."""

# the shared block

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
    """Return the descriptor of `size` bytes of anonymous shared memory, all 0."""
    try:
        fd = synchronization.anonymous_file("dpmodule-pipe")
    except OSError as error:
        raise refused("shared memory for a pipe", error) from error
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        os.close(fd)
        raise refused(f"shared memory of {size} bytes for a pipe", error) from error
    return fd


def process_start(pid: int) -> int:
    """Return the start time of a process in ticks since boot; 0 if it is unknown, -1 if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return -1 if os.path.isdir("/proc/self") else 0
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


class Control:
    """The shared block, mapped into this process."""

    def __init__(self, fd: int) -> None:
        self.words = memoryview(mmap.mmap(fd, SIZE)).cast("Q")

    @staticmethod
    def create(protocol: int, slots: int) -> int:
        """Return the descriptor of a new block."""
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
        """Protocol of the process that made the pipe: `NATIVE` or `PYTHON`."""
        return self.words[1]

    @property
    def slots(self) -> int:
        """Number of messages that may be in transit or in use."""
        return self.words[2]

    def get(self, side: int, field: int) -> int:
        """Return a field of one side."""
        return self.words[8 + 8 * side + field]

    def put(self, side: int, field: int, value: int) -> None:
        """Write a field of one side."""
        self.words[8 + 8 * side + field] = value

    def claim(self, side: int) -> bool:
        """Make this process the owner of a side; return False if another process owns it."""
        owner = self.get(side, PID)
        if owner == 0:
            self.put(side, START, max(process_start(os.getpid()), 0))
            self.put(side, PID, os.getpid())
        return owner in (0, os.getpid())


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected nonblocking sockets."""
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    return pair


# rare events: frames of a fixed size over a unix socket, with or without a descriptor

LAYOUT, SHARE, FORGET, PAYLOAD = 1, 2, 3, 4
"""Kinds of frames: new memory for a slot; a new shared block; a released shared block; the bytes of a message."""

_FORM = struct.Struct("=IIQ")
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class PipeFrame(NamedTuple):
    """One event; `number` is a slot or a shared block, `size` its bytes, `fd` a descriptor or -1."""

    kind: int
    number: int
    size: int
    fd: int


class PipeFrames:
    """One end of the socket.

    Args:
        end: a connected nonblocking socket; this object owns it from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.ended = False
        self.count = 0
        self._waiting: deque[PipeFrame] = deque()
        self._part = b""
        self._fds: deque[int] = deque()

    def send(self, kind: int, number: int, size: int, fd: int = -1) -> None:
        """Send one frame; wait while the socket is full, which is rare because its use is bounded."""
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
        """Read the available frames without waiting."""
        while not self.ended:
            try:
                self._check_descriptors()
                data, fds, _, _ = socket.recv_fds(self.socket, 64 * _FORM.size, 64, _CLOEXEC)
            except BlockingIOError:
                return
            except ConnectionError:
                data, fds = b"", []
            self._fds.extend(fds)
            self.ended = not data
            self._part += data
            self._cut()

    def _check_descriptors(self) -> None:
        """Raise if this process has no free descriptor: the system would drop the descriptor of the next frame."""
        try:
            os.close(os.dup(self.socket.fileno()))
        except OSError as error:
            if not self.socket.recv(1, socket.MSG_PEEK):
                return  # the socket was closed: no descriptor follows
            raise refused("a descriptor that the other end of a tensor pipe sent", error) from error

    def _cut(self) -> None:
        while len(self._part) >= _FORM.size:
            kind, number, size = _FORM.unpack_from(self._part)
            self._part = self._part[_FORM.size :]
            if kind != FORGET and not self._fds:
                raise PipeBroken("a descriptor that the other end of a tensor pipe sent was lost in transit")
            self._waiting.append(PipeFrame(kind, number, size, -1 if kind == FORGET else self._fds.popleft()))

    def take(self) -> PipeFrame | None:
        """Return the next frame, None if it has not arrived; the caller owns its descriptor."""
        if not self._waiting:
            self.fill()
        if not self._waiting:
            return None
        self.count = (self.count + 1) & 0xFFFF_FFFF
        return self._waiting.popleft()

    def put_back(self, frame: PipeFrame) -> None:
        """Return a frame and its descriptor to the front of the queue."""
        self._waiting.appendleft(frame)
        self.count = (self.count - 1) & 0xFFFF_FFFF

    def close(self) -> None:
        """Close the socket and the descriptors of frames that were not taken."""
        self.socket.close()
        for fd in [*self._fds, *(frame.fd for frame in self._waiting if frame.fd >= 0)]:
            os.close(fd)
        self._fds.clear()
        self._waiting.clear()


# the process at the other end

POLL_S = 0.25
"""Polling interval in seconds where the system cannot signal the end of a process."""


class Peer:
    """The process that has claimed the other side, if any."""

    def __init__(self, control: Control, side: int) -> None:
        self._control, self.side = control, side
        self.pid = 0
        self.fd = -1
        self.dead = False
        self._start = 0

    def look(self) -> bool:
        """Return True if the other side has been claimed; start watching its process the first time."""
        if self.pid == 0:
            pid = self._control.get(self.side, PID)
            if pid not in (0, os.getpid()):
                self._start = self._control.get(self.side, START)
                self._watch(pid)
            self.pid = pid  # last: after a Ctrl-C before this line, the next call watches the process
        return self.pid != 0

    def _watch(self, pid: int) -> None:
        if self.fd < 0 and hasattr(os, "pidfd_open"):
            try:
                self.fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self.dead = True
            except OSError:
                self.fd = -1  # an old kernel, or a sandbox
        start = process_start(pid)
        self.dead = self.dead or start < 0 or bool(start and self._start and start != self._start)

    @property
    def remote(self) -> bool:
        """True if the other side is known to belong to another process."""
        return self.pid not in (0, os.getpid())

    @property
    def polled(self) -> bool:
        """True if the process must be polled."""
        return self.remote and self.fd < 0 and not self.dead

    def check(self) -> bool:
        """Return True if the process that `look` found has ended."""
        if self.dead or not self.remote:
            return self.dead
        if self.fd >= 0:
            self.dead = self._readable()
        else:
            self.dead = process_start(self.pid) != self._start if self._start else not _exists(self.pid)
        return self.dead

    def _readable(self) -> bool:
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Stop watching."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# the descriptors of one end in an event loop


class LoopWatcher:
    """Watcher of an end's signal, socket and process in the running event loop; it moves if the end changes loops.

    The loop keeps these alive, but not the end.
    """

    def __init__(self, signal: Signal, frames: PipeFrames, peer: Peer) -> None:
        self._signal, self._frames, self._peer = signal, frames, peer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fds: list[int] = []
        self._waiter: asyncio.Future[None] | None = None

    def attach(self) -> None:
        """Start watching in the running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise LoopClosedError("no event loop is running; use send() and recv() outside of one") from error
        if loop is self._loop:
            return
        self.detach()
        self._loop = loop
        try:
            self._add(self._signal.read, self._on_signal)
            if not self._frames.ended:
                self._add(self._frames.socket.fileno(), self._on_socket)
            if self._peer.fd >= 0 and not self._peer.dead:
                self._add(self._peer.fd, self._on_process)
        except RuntimeError as error:
            self.detach()
            raise LoopClosedError(f"the event loop cannot watch a pipe: {error}") from error

    def _add(self, fd: int, react: Callable[[int], None]) -> None:
        if self._loop is not None:
            self._loop.add_reader(fd, react, fd)
            self._fds.append(fd)

    def peer(self, fd: int) -> None:
        """Also watch the process of the other side, which was unknown before."""
        if self._loop is None or fd < 0 or fd in self._fds:
            return
        if self._loop.is_closed():
            self.detach()  # the next loop will watch the process too
        else:
            self._add(fd, self._on_process)

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor."""
        if self._loop is not None and fd in self._fds:
            self._fds.remove(fd)
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)

    def detach(self) -> None:
        """Leave the loop and wake the waiting call."""
        self.wake()
        for fd in list(self._fds):
            with contextlib.suppress(RuntimeError):  # the loop is being closed in another thread
                self.forget(fd)
        self._loop, self._fds = None, []

    def abandon(self) -> None:
        """Forget the loop without changing it: it belongs to the parent of this forked process."""
        self._loop, self._fds, self._waiter = None, [], None

    def stale(self) -> bool:
        """Return True if the waiting call waits forever because its loop is closed."""
        return self._waiter is not None and self._waiter.get_loop().is_closed()

    async def wait(self, limit_s: float | None) -> None:
        """Wait until one of the descriptors is readable, at most `limit_s` seconds."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if limit_s is None else loop.call_later(limit_s, self.wake)
        try:
            await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Wake the waiting call."""
        waiter = self._waiter
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)

    def _on_signal(self, fd: int) -> None:
        self._signal.drain()
        self.wake()

    def _on_socket(self, fd: int) -> None:
        try:
            self._frames.fill()
        except FileError:  # receiving the message of this frame raises the error again
            self.detach()
            return
        if self._frames.ended:
            self.forget(fd)
        self.wake()

    def _on_process(self, fd: int) -> None:
        self._peer.dead = True
        self.forget(fd)
        self.wake()
