"""Look at processes and at what they leave behind."""

import contextlib
import gc
import os
import threading
import time
from pathlib import Path

SOON_S = 10.0
"""What takes a second at most may take as long as this where processes wait for each other; what hangs takes longer."""


def running(pid):
    """Say whether a process runs; one that only waits for its parent to notice its end does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ended = file.read().rpartition(b")")[2].split()[0] == b"Z"
        # its other threads may end after the first one, and keep its files open until then
        return not ended or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def descendants():
    """Return the ids of the processes that this one has started, and these in turn."""
    found, left = set(), {"self"}
    while left:
        threads = Path("/proc", left.pop(), "task").glob("*/children")
        with contextlib.suppress(OSError):  # one has ended meanwhile
            children = {child for thread in threads for child in thread.read_text().split()}
            left |= children
            found |= set(map(int, children))
    return found


def until(condition, timeout_s=SOON_S):
    """Wait for a condition; returns how many seconds it took, or fails."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout_s:
            raise AssertionError(f"not so within {timeout_s:g} s")
        time.sleep(0.002)
    return time.monotonic() - begin


def await_gone(pids, timeout_s=SOON_S):
    """Wait until processes are gone; returns how many seconds it took, or fails."""
    return until(lambda: not any(running(pid) for pid in pids), timeout_s)


def mostly_within(goal_s, times):
    """Check times, in seconds, against a goal; a busy machine may miss it now and then, but never by much."""
    late = sorted(took for took in times if took > goal_s)
    assert len(late) <= len(times) // 20, f"{len(late)} of {len(times)} took longer than {goal_s:g} s: {late}"
    assert max(times) < SOON_S


def is_others(name):
    """Say whether shared memory belongs to a process that runs, and is neither this one nor below it."""
    numbers = [part for part in name.split("_") if part.isdigit()]
    if name.startswith(
        "sem."
    ):  # of queues and pools of other libraries, perhaps in tests that run at the same time
        return True
    if not name.startswith("torch_") or not numbers or not running(numbers[0]):
        return False
    pid = int(numbers[0])
    while pid not in (0, os.getpid()):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return True
    return pid == 0


def shared_files():
    """Return the names of shared memory that may be this process's."""
    folder = "/dev/shm"
    return {name for name in os.listdir(folder) if not is_others(name)} if os.path.isdir(folder) else set()


def resources():
    """Return what may leak: open descriptors, threads, children, entries in shared memory."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("QueueFeederThread"):  # of a queue of indices that was closed just now
            thread.join(1.0)
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    with open(children) as file:
        pids = file.read().split()
    return {
        "fds": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(), "children": len(pids),
        "shm": sorted(shared_files()),
    }  # fmt: skip


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
