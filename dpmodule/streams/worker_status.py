"""Shared memory in which a child process records its work and its stack, readable after its death."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import time

from .errors import WorkerDied, WorkerStuck
from .synchronization import anonymous_file

_FIRST_FREE: int | None = getattr(signal, "SIGRTMIN", None)
STACK_SIGNAL = int(signal.SIGUSR2 if _FIRST_FREE is None else _FIRST_FREE + 7)
"""Signal that makes a child write its stack: a real-time signal that programs rarely use."""

_PAGE = mmap.PAGESIZE
_STATE = struct.Struct("<BBxxxxxxq")
"""1 if the child can write its stack, index of the current text, and a number."""
_TEXT_BYTES = 500
_TEXTS = (_STATE.size, _STATE.size + _TEXT_BYTES + 2)
_BOTTOM = f'{os.path.join("streams", "child.py")}"'
_POLL_S = 0.02
_STACK_LIMIT_BYTES = 64 << 10


class WorkerStatus:
    """A page of memory that a child writes and its parent reads, followed by space for the child's stack.

    It has no name in the file system and exists until both processes close it.

    Args:
        fd: descriptor of the memory that the parent made (default: new memory).
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous_file("dpmodule-note") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, _PAGE)
            # both processes share the file position, where stacks are appended
            os.lseek(self.fd, _PAGE, os.SEEK_SET)
        try:
            self._page = mmap.mmap(self.fd, _PAGE)
        except OSError:
            os.close(self.fd)
            raise
        if fd is None:
            _STATE.pack_into(self._page, 0, 0, 0, -1)
        self._what: str | None = None

    # --- the child's part

    def watch_stack(self) -> None:
        """Write the Python stack after the page when the parent requests it, and when the process crashes."""
        faulthandler.register(STACK_SIGNAL, file=self.fd, all_threads=True, chain=False)
        faulthandler.enable(file=self.fd, all_threads=True)
        self._page[0] = 1

    def write(self, what: str, number: int = -1) -> None:
        """Record the current work.

        Args:
            what: name of the work, such as a file; passing the same object again costs nothing.
            number: number of the record, batch or job; negative for none.
        """
        if what is not self._what:
            text = what.encode(errors="replace")[:_TEXT_BYTES]
            slot = 1 - self._page[1]
            struct.pack_into(f"<H{len(text)}s", self._page, _TEXTS[slot], len(text), text)
            self._page[1] = slot  # last: a child killed before this leaves the old text
            self._what = what
        struct.pack_into("<q", self._page, 8, number)

    # --- the parent's part

    def read(self) -> str:
        """Return the child's latest record, such as "file a.txt, 17"; empty if there is none."""
        _, slot, number = _STATE.unpack_from(self._page)
        (length,) = struct.unpack_from("<H", self._page, _TEXTS[slot & 1])
        start = _TEXTS[slot & 1] + 2
        text = self._page[start : start + min(length, _TEXT_BYTES)].decode(errors="replace")
        if number < 0:
            return text
        return f"{text} {number}" if text else str(number)

    def begun(self) -> bool:
        """Return True if the child can be asked for its stack."""
        return self._page[0] == 1

    def stacks(self) -> str:
        """Return the stacks that the child has written, down to the function it runs."""
        size = min(os.fstat(self.fd).st_size - _PAGE, _STACK_LIMIT_BYTES)
        lines, internal = [], False
        for line in os.pread(self.fd, max(size, 0), _PAGE).decode(errors="replace").splitlines():
            frame = line.startswith("  ")
            internal = frame and (internal or (_BOTTOM in line and line.endswith(" in run")))
            if line and not internal and not line.startswith("Extension modules:"):
                lines.append(line)
        return "\n".join(lines)

    def await_stack(self, timeout_s: float) -> str:
        """Wait until the child has written its stack, and return it; empty after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        before = -1
        while time.monotonic() < deadline:
            size = os.fstat(self.fd).st_size
            if size > _PAGE and size == before:
                break
            before = size
            time.sleep(_POLL_S)
        return self.stacks()

    def close(self) -> None:
        """Release the memory."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._page.close()
            os.close(fd)


def process_state(pid: int) -> str:
    """Return the system's letter for the state of a process; empty if it is unknown."""
    try:
        with open(os.path.join("/proc", str(pid), "stat"), "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def died_error(
    who: str, index: int, name: str, pid: int, code: int | None, status: WorkerStatus
) -> WorkerDied:
    """Return the error for a child that ended without raising an exception."""
    doing = status.read()
    text = f"{who} {how_it_ended(code)}" + (f" while working on {doing}" if doing else "")
    if code == -signal.SIGKILL:
        text += "; unless someone killed it, the system did, because memory ran out"
    elif not status.begun():
        text += " before it had begun; its standard error may show why"
    if stacks := status.stacks():
        text += f"\n{stacks}"
    error = WorkerDied(text)
    error.index, error.name, error.pid, error.exitcode = index, name, pid, code
    return error


def stuck_error(who: str, how: str, doing: str, state: str, stack: str, begun: bool) -> WorkerStuck:
    """Return the error for a child that was killed because it hung.

    Args:
        state: the system's letter for its state before the request for its stack.
    """
    text = f"{who} {how}" + (f", working on {doing}" if doing else "")
    if state == "T":
        text += "; it was stopped by a signal"
    if stack:
        shown = f"Its stack:\n{stack}"
    elif begun:
        shown = "It did not write its stack"
    else:
        shown = "It had not begun yet: it was still starting and importing"
    return WorkerStuck(f"{text}; it has been killed. {shown}")


def how_it_ended(code: int | None) -> str:
    """Describe how a process ended."""
    if code is None:
        return "ended; other code has already read its exit status"
    if code >= 0:
        return f"ended on its own with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
