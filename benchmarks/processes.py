"""CPU time and memory of a process and its descendants."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from types import TracebackType

__all__ = ["PeakMemory", "cpu_s", "family", "memory_mb"]


def family(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    parents: dict[int, int] = {}
    for each in filter(str.isdigit, os.listdir("/proc")):
        text = _read(f"/proc/{each}/stat")
        if text:
            parents[int(each)] = int(text.rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:  # grows in the loop
        found += [child for child, its in parents.items() if its == parent]
    return found


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU time of all threads of a process and its living descendants."""
    found = 0.0
    for each in family(pid):
        clock = (~each << 3) | 2  # number of the process's clock, as in clock_getcpuclockid
        with contextlib.suppress(OSError):  # the process has ended
            found += time.clock_gettime(clock)
    return found


def memory_mb(pid: int) -> float:
    """Return the current memory of a process and its descendants in MB.

    Shared pages count once: each process has a fraction of a page of anonymous or shared memory. Mapped files, which
    are libraries, count as in the process with most of them, since other processes map them as well.
    """
    own, mapped = 0, 0
    for each in family(pid):
        found = dict(line.split(":", 1) for line in _read(f"/proc/{each}/smaps_rollup").splitlines()[1:])
        status = dict(line.split(":", 1) for line in _read(f"/proc/{each}/status").splitlines())
        own += sum(int(found.get(name, "0 kB").split()[0]) for name in ("Pss_Anon", "Pss_Shmem"))
        mapped = max(mapped, int(status.get("RssFile", "0 kB").split()[0]))
    return (own + mapped) / 1024


def _read(path: str) -> str:
    """Return the content of a file of /proc, empty if its process has ended."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class PeakMemory:
    """Peak memory of a process and its descendants within a block, in MB.

    Args:
        pid: the process.
        every_s: polling interval in seconds.

    Attributes:
        mb: the maximum.
    """

    def __init__(self, pid: int, every_s: float = 0.02) -> None:
        self.mb = 0.0
        self._pid, self._every_s = pid, every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while True:
            self.mb = max(self.mb, memory_mb(self._pid))
            if self._done.wait(self._every_s):
                return

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
