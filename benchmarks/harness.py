"""Measuring two programs fairly: each in a process of its own, in turns, by wall and CPU time.

The parent holds a `Worker` per side and asks it for one round after the other with lines of JSON; a side answers from
`side.serve`. So both see the same noise from the rest of the machine, and each one's peak memory is its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Spread", "Worker", "ratio"]

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
        settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = {**os.environ, **settings, "PYTHONPATH": path.rstrip(os.pathsep)}
        environment.pop(
            "PYTHONDONTWRITEBYTECODE", None
        )  # sides start from bytecode, as installed packages do
        self._child = subprocess.Popen(
            [python or sys.executable, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
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
