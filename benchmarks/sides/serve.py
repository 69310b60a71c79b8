"""Request loop of a side of a comparison; few imports, since its memory is measured.

This file also runs under Python 3.8, with MXNet 1.9.1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ..settings import OWN_THREADS

__all__ = ["Clock", "limit_threads", "peak_rss_mb", "requests", "rss_mb", "serve", "time_of"]


def requests() -> Any:
    """Yield (request, function that sends the answer); what else the process prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for line in sys.stdin:
        yield json.loads(line), send


def serve(prepare: Callable[[], dict[str, Callable[..., Any]]]) -> None:
    """Answer requests until the input is closed; "memory" is answered for every side.

    Args:
        prepare: called at the first request, when nothing that it prints can be taken for an answer; returns functions
            by name, which take the request's options as keywords and return what JSON can hold.
    """
    known: dict[str, Callable[..., Any]] = {}
    for request, send in requests():
        known = known or {"memory": peak_rss_mb, **prepare()}
        send(known[request.pop("what")](**request))


def limit_threads(torch: Any) -> None:
    """Let torch compute with one thread, unless the session leaves the number to it."""
    if os.environ.get(OWN_THREADS) != "default":
        torch.set_num_threads(1)


class Clock:
    """Wall and CPU time since it was made; CPU counts all threads of the process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self, count: int = 1) -> dict[str, float]:
        """Return the milliseconds of one of `count` equal parts of the time so far."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return {"wall": wall * 1e3 / count, "cpu": cpu * 1e3 / count}


def time_of(call: Callable[[], Any], least_s: float) -> dict[str, float]:
    """Return the milliseconds of a call, from calls over some seconds."""
    count, clock, begin = 0, Clock(), time.perf_counter()
    while not count or time.perf_counter() - begin < least_s:
        call()
        count += 1
    return clock.read(count)


def peak_rss_mb() -> float:
    """Return the most memory this process has held so far, in MB; `ru_maxrss` begins with that of its parent."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = next(line for line in file if line.startswith("VmHWM:"))
    return int(found.split()[1]) / 1024


def rss_mb() -> float:
    """Return the memory this process holds now, in MB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
