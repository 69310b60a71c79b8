"""Measuring programs fairly: each in a process of its own, in turns, by wall and CPU time.

The parent holds a `Worker` per side and asks it for one round after the other with lines of JSON; a side answers from
`sides.serve`. So all see the same noise from the rest of the machine, and each one's peak memory is its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .settings import USUAL, Setting

__all__ = [
    "PACKAGES",
    "Session",
    "Spread",
    "Times",
    "Worker",
    "agreement",
    "check_before",
    "in_turns",
    "ratio",
    "with_before",
]

Times = dict[str, list[float]]
"""Milliseconds by clock, "cpu" and "wall", one per round."""


class Worker:
    """A side running in a child process.

    Args:
        side: name of a module of `benchmarks.sides`.
        arguments: its command line.
        python: interpreter; None = this one.
        before: what has another revision of dpmodule, which the side is to run: an interpreter, or a folder for this
            interpreter; None = it runs what is here.
        setting: instructions and threads.
    """

    def __init__(
        self,
        side: str,
        arguments: Sequence[Any] = (),
        python: str | None = None,
        before: str | None = None,
        setting: Setting = USUAL,
    ) -> None:
        self.side = side
        self._apart = tempfile.TemporaryDirectory()
        python, path = python or sys.executable, [str(_ROOT), os.environ.get("PYTHONPATH", "")]
        if before is not None:
            # the benchmarks alone, since dpmodule lies beside them here
            Path(self._apart.name, "benchmarks").symlink_to(_ROOT / "benchmarks")
            python, path = (sys.executable, [before]) if os.path.isdir(before) else (before, [])
            path = [self._apart.name, *map(os.path.abspath, path)]
        environment = setting.environment(os.environ)
        environment["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # compiling takes as long as the first time
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        # sides start from bytecode, as installed packages do
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # what a side prints is of interest only when it dies
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by close
        self._child = subprocess.Popen(
            [python, "-m", f"benchmarks.sides.{side}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=None if before is None else self._apart.name,
        )

    def ask(self, what: str, **options: Any) -> Any:
        """Send a request and wait for the answer.

        Raises:
            RuntimeError: the side has died; the end of what it printed is in the text.
        """
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise RuntimeError(f"{self.side} was started without pipes")
        try:
            stdin.write(json.dumps({"what": what, **options}) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self._child.wait()
            self._errors.seek(0)
            raise RuntimeError(
                f"{self.side} ended with status {status} when asked for {what!r}:\n{self._errors.read()[-2000:]}"
            )
        return json.loads(answer)

    @property
    def pid(self) -> int:
        """Number of the child process."""
        return self._child.pid

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
        self._errors.close()
        self._apart.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Session:
    """How to measure.

    Attributes:
        rounds: measurements of each side.
        quick: True if only to see that everything runs, on short epochs; targets are then not held.
        against: interpreters by the package that they have, one of `PACKAGES`; see `Worker` for "before".
        setting: instructions and threads of all sides.
        versions: of the packages that were looked for; None = their interpreter has none.
    """

    rounds: int = 7
    quick: bool = False
    against: Mapping[str, str] = field(default_factory=dict)
    setting: Setting = USUAL
    versions: dict[str, str | None] = field(default_factory=dict)

    @contextmanager
    def sides(self, **wanted: Sequence[Any]) -> Iterator[dict[str, Worker]]:
        """Start sides and end them again.

        Args:
            wanted: by name, (side, its arguments ...); a side whose name begins with a package of `PACKAGES` runs under
                the interpreter given for that, and is left out where there is none.
        """
        started: dict[str, Worker] = {}
        try:
            for name, (side, *arguments) in wanted.items():
                package = name.partition("_")[0]
                if self.has(name):
                    kind = "before" if package == "before" else "python"
                    where = {kind: self.python(package)}
                    started[name] = Worker(side, arguments, setting=self.setting, **where)
            yield dict(started)
        finally:
            for worker in started.values():
                worker.close()

    def has(self, name: str) -> bool:
        """Return whether a side of this name can be run."""
        package = name.partition("_")[0]
        if package not in PACKAGES:
            return True
        if package in UNLIMITED and self.setting.limits:
            return False
        return self.python(package) is not None and self.versions.get(package, "") is not None

    def python(self, package: str) -> str | None:
        """Return the interpreter that has a package, None where none is given."""
        if package == "onnxruntime" and importlib.util.find_spec(package):  # this one may have it, too
            return self.against.get(package, sys.executable)
        return self.against.get(package)

    def look(self) -> None:
        """Find out the versions of all packages, and say of which there is none: those sides are left out."""
        for package in PACKAGES:
            python = self.python(package)
            if python is None or package == "before" or package in self.versions:
                continue
            self.versions[package] = _version(python, package)
            if self.versions[package] is None:
                text = (
                    f"--against {package}={python}: no Python with {package} is there; its rows are left out"
                )
                print(text, file=sys.stderr)

    @property
    def clock(self) -> str:
        """The clock that counts."""
        return self.setting.clock

    @property
    def settles(self) -> bool:
        """True if turns have to `settle`: there are threads besides the one that works."""
        return self.setting.threads != "1"

    def short(self, count: int, least: int = 1) -> int:
        """Return a count, or a tenth of it in quick sessions."""
        return max(least, count // 10) if self.quick else count

    def repeated(self, count: int) -> int:
        """Return how often to measure: a count, or as many rounds as there are if another revision is compared."""
        return max(count, self.rounds) if "before" in self.against else count


PACKAGES = ("mxnet", "lightning", "accelerate", "dynet", "paddle", "onnxruntime", "before")
"""What one may compare against with an interpreter of its own; "before" is another revision of dpmodule."""
UNLIMITED = ("dynet", "onnxruntime")
"""Those that no setting keeps from using all of the processor's instructions."""
_DISTRIBUTIONS = {"dynet": "dyNET", "paddle": "paddlepaddle"}
"""Names under which packages are installed, where they are others."""
_PROBE = """
import importlib.util, sys
from importlib import metadata
if importlib.util.find_spec(sys.argv[1]) is None:
    sys.exit(1)
try:
    print(metadata.version(sys.argv[2]))
except metadata.PackageNotFoundError:
    print("of unknown version")
"""

_ROOT = Path(__file__).parents[1]


def _version(python: str, package: str) -> str | None:
    """Return the version of a package of an interpreter, None if either is missing; nothing is imported."""
    name = _DISTRIBUTIONS.get(package, package)
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, package, name], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def with_before(wanted: Mapping[str, Sequence[Any]], *names: str) -> dict[str, Sequence[Any]]:
    """Return sides, and those of the names given again for another revision, called "before_" and the name."""
    return {**wanted, **{f"before_{name}": wanted[name] for name in names}}


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


def check_before(before: str) -> None:
    """Make sure that another revision of dpmodule is found, and is another.

    Raises:
        SystemExit: it is not.
    """
    homes = []
    for each in (None, before):
        with Worker("imports", before=each) as side:
            homes.append(side.ask("home"))
    if homes[1] is None or os.path.realpath(homes[0]) == os.path.realpath(homes[1]):
        raise SystemExit(f"before={before}: expected another revision of dpmodule, found {homes[1]}")


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Spread:
    """Summarize theirs / ours round by round, so that a slow phase of the machine counts on both sides."""
    return Spread.of([a / b for a, b in zip(theirs, ours, strict=True)])


def in_turns(
    sides: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, warm: int = 1, settle: bool = False
) -> dict[str, Times]:
    """Return the times of every side, one per round; each round begins with another side.

    Args:
        sides: by name, what makes one measurement and returns milliseconds by clock, and may be more.
        rounds: measurements of each.
        warm: number of further rounds that come first and are dropped.
        settle: True if one more is dropped in each turn, while which threads of the side before come to rest, that
            looked out for more work, and this side's wake up.
    """
    found: dict[str, Times] = {name: {"wall": [], "cpu": []} for name in sides}
    names = list(sides)
    for number in range(rounds + warm):
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            if settle:
                sides[name]()
            answer = sides[name]()
            for clock, values in found[name].items():
                if number >= warm and clock in answer:
                    values.append(answer[clock])
    return found


def agreement(
    sides: Mapping[str, Callable[[str], Sequence[float]]],
    first: Callable[[str, tuple[int, ...]], np.ndarray],
    tolerance: float,
) -> str:
    """Let every side train a little from the same weights, and say how far the first one is from the others.

    Args:
        sides: by name, what trains, saves parameters (and "predictions") as an npz file of the name given, and returns
            losses.
        first: first value of a parameter, from its name and shape.
        tolerance: how far parameters may be apart, as a share of how far training has moved them.

    Raises:
        SystemExit: they are further apart.
    """
    losses, values = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, check in sides.items():
            path = str(Path(folder) / "values.npz")
            losses[name] = np.array(check(path))
            with np.load(path) as saved:
                values[name] = dict(saved)
    own, *others = values
    predicted = {name: each.pop("predictions", np.zeros(1)) for name, each in values.items()}
    if any(set(values[name]) != set(values[own]) for name in others):
        raise SystemExit(f"sides have different parameters: { {k: sorted(v) for k, v in values.items()} }")
    moved = sum(float(np.square(v - first(k, v.shape)).sum()) for k, v in values[own].items())
    apart = {
        name: sum(float(np.square(v - values[name][k]).sum()) for k, v in values[own].items())
        for name in others
    }
    by_loss = max((float(np.abs(losses[own] / losses[n] - 1).max(initial=0)) for n in others), default=0.0)
    by_value = max((float(np.sqrt(each / max(moved, 1e-30))) for each in apart.values()), default=0.0)
    by_output = max((float(np.abs(predicted[own] - predicted[n]).max()) for n in others), default=0.0)
    text = f"{own} against {', '.join(others)}: predictions agree to {by_output:.1g}"
    if len(losses[own]):
        text += f"; after {len(losses[own])} batches losses to {by_loss:.1g}, parameters to {by_value:.1g}"
    if not (by_loss <= 1e-4 and by_value <= tolerance and by_output <= 1e-4):
        raise SystemExit(f"they compute something else: {text}")
    return text
