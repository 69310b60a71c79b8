"""Look at processes and at what they leave behind."""

import gc
import os
import threading
import time

__all__ = ["await_gone", "resident_bytes", "resources", "running", "until"]


def running(pid):
    """Say whether a process runs; one that only waits for its parent to notice its end does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def until(condition, timeout_s=5.0):
    """Wait for a condition; returns how many seconds it took, or fails."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout_s:
            raise AssertionError(f"not so within {timeout_s:g} s")
        time.sleep(0.002)
    return time.monotonic() - begin


def await_gone(pids, timeout_s=2.0):
    """Wait until processes are gone; returns how many seconds it took, or fails."""
    return until(lambda: not any(running(pid) for pid in pids), timeout_s)


def resources():
    """Return what may leak: open descriptors, threads, children, entries in shared memory."""
    gc.collect()
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    with open(children) as file:
        pids = file.read().split()
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(pids),
        "shm": sorted(os.listdir("/dev/shm")),
    }


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
