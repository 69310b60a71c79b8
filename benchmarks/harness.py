"""Measuring two programs fairly: each in a process of its own, in turns, by wall and CPU time.

The parent holds a `Worker` per side and asks it for one round after the other with lines of JSON; a side answers from
`serve`. So both see the same noise from the rest of the machine, and each one's peak memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Clock", "Spread", "Worker", "peak_rss_mb", "ratio", "requests", "serve"]

HERE = Path(__file__).resolve().parent


class Worker:
    """A side running in a child process.

    Args:
        script: file name of the side, in this folder.
        python: interpreter; None = this one.
        arguments: command line of the side.

    Example:
        >>> with Worker("ours.py", arguments=["mlp", "200"]) as side:
        ...     side.ask("round", metric=True)
    """

    def __init__(self, script: str, python: str | None = None, arguments: Sequence[str] = ()) -> None:
        self.script = script
        path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._child = subprocess.Popen(
            [python or sys.executable, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads, "PYTHONPATH": path.rstrip(os.pathsep)},
        )

    def ask(self, what: str, **options: Any) -> Any:
        """Send a request and wait for the answer.

        Raises:
            RuntimeError: the side has died; its own error stands above, on stderr.
        """
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise RuntimeError(f"{self.script} was started without pipes")
        try:
            stdin.write(json.dumps({"what": what, **options}) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(
                f"{self.script} ended with status {self._child.wait()} when asked for {what!r}"
            )
        return json.loads(answer)

    def close(self) -> None:
        """End the side by closing its input; kill it if it does not listen."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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


@dataclass(frozen=True)
class Spread:
    """The middle and the quartiles of some measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarize one value or more."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(statistics.median(values), low, high)

    def __str__(self) -> str:
        digits = 3 if self.median < 1 else 2 if self.median < 10 else 1
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Summarize ours / theirs round by round, so that a slow phase of the machine counts on both sides."""
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
