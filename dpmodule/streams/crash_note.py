"""What a child process is working on, and where it hangs, left where its parent can read it even after its death."""

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
"""What makes a child write its stack: a number that programs hardly use, where the system has some to spare."""

_PAGE = mmap.PAGESIZE
_STATE = struct.Struct("<BBxxxxxxq")
"""Whether the child can be asked for its stack; which text counts; a number."""
_TEXT_BYTES = 500
_TEXTS = (_STATE.size, _STATE.size + _TEXT_BYTES + 2)
_BOTTOM = f'{os.path.join("streams", "child.py")}"'
_SETTLE_S = 0.02
_STACK_LIMIT_BYTES = 64 << 10


class Note:
    """A page of memory that a child writes and its parent reads, and room behind it for the child's stack.

    It has no name in the file system and is gone with the last of the two.

    Args:
        fd: descriptor of the memory that the parent made (default: make it, as the parent does).
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous_file("dpmodule-note") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, _PAGE)
            # stacks are appended here by both processes' one file position
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
        """Write the Python stack behind the page when the parent asks for it, and when the process crashes."""
        faulthandler.register(STACK_SIGNAL, file=self.fd, all_threads=True, chain=False)
        faulthandler.enable(file=self.fd, all_threads=True)
        self._page[0] = 1

    def write(self, what: str, number: int = -1) -> None:
        """Note what is being worked on.

        Args:
            what: such as the name of a file; the same object as last time costs nothing.
            number: which record, batch or job of it; below 0: none.
        """
        if what is not self._what:
            text = what.encode(errors="replace")[:_TEXT_BYTES]
            slot = 1 - self._page[1]
            struct.pack_into(f"<H{len(text)}s", self._page, _TEXTS[slot], len(text), text)
            self._page[1] = slot  # only now: a child killed in the middle leaves the old text
            self._what = what
        struct.pack_into("<q", self._page, 8, number)

    # --- the parent's part

    def read(self) -> str:
        """Return what the child noted last, such as "file a.txt, 17"; empty if nothing."""
        _, slot, number = _STATE.unpack_from(self._page)
        (length,) = struct.unpack_from("<H", self._page, _TEXTS[slot & 1])
        start = _TEXTS[slot & 1] + 2
        text = self._page[start : start + min(length, _TEXT_BYTES)].decode(errors="replace")
        if number < 0:
            return text
        return f"{text} {number}" if text else str(number)

    def begun(self) -> bool:
        """Say whether the child has come so far that it can be asked for its stack."""
        return self._page[0] == 1

    def stacks(self) -> str:
        """Return the stacks that the child has written so far, down to the function that it was started for."""
        size = min(os.fstat(self.fd).st_size - _PAGE, _STACK_LIMIT_BYTES)
        kept, ours = [], False
        for line in os.pread(self.fd, max(size, 0), _PAGE).decode(errors="replace").splitlines():
            frame = line.startswith("  ")
            ours = frame and (ours or (_BOTTOM in line and line.endswith(" in run")))
            if line and not ours and not line.startswith("Extension modules:"):
                kept.append(line)
        return "\n".join(kept)

    def await_stack(self, timeout_s: float) -> str:
        """Wait until the child has written its stack, and return it; empty if it has not in `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        before = -1
        while time.monotonic() < deadline:
            size = os.fstat(self.fd).st_size
            if size > _PAGE and size == before:
                break
            before = size
            time.sleep(_SETTLE_S)
        return self.stacks()

    def close(self) -> None:
        """Give the memory back."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._page.close()
            os.close(fd)


def state_of(pid: int) -> str:
    """Return the letter that the system has for a process's state; empty if it does not say."""
    try:
        with open(os.path.join("/proc", str(pid), "stat"), "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def death(who: str, index: int, name: str, pid: int, code: int | None, note: Note) -> WorkerDied:
    """Return the error for a child that has ended without an exception of its own."""
    doing = note.read()
    text = f"{who} {_manner(code)}" + (f" while working on {doing}" if doing else "")
    if code == -signal.SIGKILL:
        text += "; if nobody killed it, the system did, for want of memory"
    elif not note.begun():
        text += " before it had begun; what it wrote to standard error may say why"
    if stacks := note.stacks():
        text += f"\n{stacks}"
    error = WorkerDied(text)
    error.index, error.name, error.pid, error.exitcode = index, name, pid, code
    return error


def hanging(who: str, how: str, doing: str, state: str, stack: str, begun: bool) -> WorkerStuck:
    """Return the error for a child that has been killed because it hung.

    Args:
        state: the system's letter for its state before it was asked for its stack.
    """
    text = f"{who} {how}" + (f", working on {doing}" if doing else "")
    if state == "T":
        text += "; it was stopped by a signal"
    if stack:
        shown = f"Its stack:\n{stack}"
    elif begun:
        shown = "It showed no stack"
    else:
        shown = "It had not begun yet: it was still starting and importing"
    return WorkerStuck(f"{text}; it has been killed. {shown}")


def _manner(code: int | None) -> str:
    """Say how a process ended."""
    if code is None:
        return "ended; other code took its exit status"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
