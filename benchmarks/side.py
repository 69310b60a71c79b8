"""What a side of a comparison needs to answer its parent; few imports, since its memory is measured."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Clock", "peak_rss_mb", "requests", "serve"]


def requests() -> Any:
    """Yield (request, function that sends the answer); what else the process prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for line in sys.stdin:
        yield json.loads(line), send


def serve(commands: dict[str, Callable[..., Any]]) -> None:
    """Answer requests until the input is closed; "memory" is answered for every side.

    Args:
        commands: functions by name; they take the request's options as keywords and return what JSON can hold.
    """
    known = {"memory": peak_rss_mb, **commands}
    for request, send in requests():
        send(known[request.pop("what")](**request))


class Clock:
    """Wall and CPU time since it was made; CPU counts all threads of the process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self, count: int = 1) -> dict[str, float]:
        """Return the milliseconds of one of `count` equal parts of the time so far."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return {"wall": wall * 1e3 / count, "cpu": cpu * 1e3 / count}


def peak_rss_mb() -> float:
    """Return the most memory this process has held so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
