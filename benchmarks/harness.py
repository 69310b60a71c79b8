"""Fair measurement of programs: each in its own process, in turns, by wall and CPU time.

The parent has a `Worker` for each side and requests one round after the other with lines of JSON; a side answers from
`sides.serve`. So all sides see the same noise of the machine, and peak memory is measured for each.
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
        python: interpreter; None means this one.
        before: source of another revision of dpmodule for the side: an interpreter, or a folder for this
            interpreter; None means this revision.
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
            # only the benchmarks, without dpmodule in the same folder
            Path(self._apart.name, "benchmarks").symlink_to(_ROOT / "benchmarks")
            python, path = (sys.executable, [before]) if os.path.isdir(before) else (before, [])
            path = [self._apart.name, *map(os.path.abspath, path)]
        environment = setting.environment(os.environ)
        environment["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # compiling is never cached
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        # sides start from bytecode, like installed packages
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # the output of a side is only shown if it dies
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
            RuntimeError: the side died; the message contains the end of its output.
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
        """End the side by closing its input; kill it if it does not end."""
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
    """Settings of measurements.

    Attributes:
        rounds: measurements of each side.
        quick: True to only check that everything runs, on short epochs; targets are not checked.
        against: interpreters by package, one of `PACKAGES`; see `Worker` for "before".
        setting: instructions and threads of all sides.
        versions: versions of the requested packages; None if the interpreter lacks the package.
    """

    rounds: int = 7
    quick: bool = False
    against: Mapping[str, str] = field(default_factory=dict)
    setting: Setting = USUAL
    versions: dict[str, str | None] = field(default_factory=dict)

    @contextmanager
    def sides(self, **wanted: Sequence[Any]) -> Iterator[dict[str, Worker]]:
        """Run sides in a ``with`` block.

        Args:
            wanted: by name, (side, its arguments ...); a side whose name begins with a package of `PACKAGES` runs under
                the interpreter of that package, and is left out if there is none.
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
        """Return True if a side of this name can run."""
        package = name.partition("_")[0]
        if package not in PACKAGES:
            return True
        if package in UNLIMITED and self.setting.limits:
            return False
        return self.python(package) is not None and self.versions.get(package, "") is not None

    def python(self, package: str) -> str | None:
        """Return the interpreter of a package, or None."""
        if package in ("onnxruntime", "openvino", "jax") and importlib.util.find_spec(package):
            # this interpreter may also have it
            return self.against.get(package, sys.executable)
        return self.against.get(package)

    def look(self) -> None:
        """Find the versions of all packages, and print the missing ones, whose sides are left out."""
        for package in PACKAGES:
            python = self.python(package)
            if python is None or package == "before" or package in self.versions:
                continue
            self.versions[package] = _version(python, package)
            if self.versions[package] is None:
                text = (
                    f"--against {package}={python}: there is no Python with {package}; its rows are left out"
                )
                print(text, file=sys.stderr)

    @property
    def clock(self) -> str:
        """The compared clock."""
        return self.setting.clock

    @property
    def settles(self) -> bool:
        """True if turns must `settle`: there is more than one thread."""
        return self.setting.threads != "1"

    def short(self, count: int, least: int = 1) -> int:
        """Return a count, or a tenth of it in quick sessions."""
        return max(least, count // 10) if self.quick else count

    def repeated(self, count: int) -> int:
        """Return the number of measurements: a count, or the number of rounds if another revision is compared."""
        return max(count, self.rounds) if "before" in self.against else count


PACKAGES = ("mxnet", "lightning", "accelerate", "dynet", "paddle", "onnxruntime", "openvino", "jax", "before")
"""Packages to compare with, each with its interpreter; "before" is another revision of dpmodule."""
UNLIMITED = ("dynet", "onnxruntime", "openvino", "jax")
"""Packages that ignore limits of the instruction set."""
_DISTRIBUTIONS = {"dynet": "dyNET", "paddle": "paddlepaddle"}
"""Names of distributions, if they differ from the package."""
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
    """Return the version of a package of an interpreter, None if either is missing, without importing it."""
    name = _DISTRIBUTIONS.get(package, package)
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, package, name], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def with_before(wanted: Mapping[str, Sequence[Any]], *names: str) -> dict[str, Sequence[Any]]:
    """Return sides, with copies of the named ones for another revision, named "before_" and the name."""
    return {**wanted, **{f"before_{name}": wanted[name] for name in names}}


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of measurements."""

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
    """Check that another revision of dpmodule exists and differs.

    Raises:
        SystemExit: it does not.
    """
    homes = []
    for each in (None, before):
        with Worker("imports", before=each) as side:
            homes.append(side.ask("home"))
    if homes[1] is None or os.path.realpath(homes[0]) == os.path.realpath(homes[1]):
        raise SystemExit(f"before={before}: expected another revision of dpmodule, found {homes[1]}")


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Spread:
    """Summarize theirs / ours round by round, so that a slow phase of the machine affects both sides."""
    return Spread.of([a / b for a, b in zip(theirs, ours, strict=True)])


def in_turns(
    sides: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, warm: int = 1, settle: bool = False
) -> dict[str, Times]:
    """Return the times of every side, one per round; each round begins with another side.

    Args:
        sides: functions by name that make one measurement and return milliseconds by clock.
        rounds: measurements of each.
        warm: number of further rounds that come first and are dropped.
        settle: True to drop one more measurement in each turn, during which the spinning threads of the previous side
            go to sleep and those of this side wake up.
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
    """Train every side briefly from the same weights, and return the difference of the first one from the others.

    Args:
        sides: functions by name that train, save parameters (and "predictions") to an npz file, and return losses.
        first: first value of a parameter, from its name and shape.
        tolerance: maximum difference of parameters, as a fraction of their change by training.

    Raises:
        SystemExit: they differ by more.
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
        raise SystemExit(f"the results differ: {text}")
    return text
