"""Hogwild training straight from files: rates, scaling, reading, memory and start, against PaddlePaddle."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ..harness import Session, Spread, Times, Worker, in_turns, ratio
from ..hogwild_data import lines, write
from ..hogwild_tasks import TASKS, Task, area, first_weight, predict
from ..processes import PeakMemory, cpu_s
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
An epoch over eight text files, reading and parsing included, batches of 128, by one worker and by two. CPU time is that
of all processes of a side. Paddle is `train_from_dataset` of a `QueueDataset`, its successor of AsyncExecutor.

- Bow net: 90,000 words, documents of about 228, sum of 128 wide rows, tanh, layers of 128 and 96 with tanh, softmax.
- Wide & deep: 13 numbers and 26 slots of one value, tables of a million rows, 16 wide for layers of 128 and 64, and 1
  wide for the sum.
- Native: threads of C++. Process: worker processes over shared parameters, which run any graph as `fit` does.
- Reading: files to batches by `FileBatches`, against `MultiSlotFunctor` on each file's bytes, both in one thread.
- Peak memory: of all processes while two workers train for two epochs by AdaGrad; what processes share counts once.
- Start: the first call with two workers on two files of one line, of a module that is bound, and the second one,
  against importing torch in a new process."""

FILES, HELD_OUT = 8, 2000
SCALING = {"native": (1.75, 1.9), "process": (1.6, 1.8)}
START = {"native": (0.1, 0.02), "process": (1.5, 1.0)}
SECOND = (0.02, 0.005)
AGREE = 0.02
"""Maximum difference of areas under the curve."""
CHECKED, APART = 512, 0.01
"""Number of lines, and maximum difference of one worker's parameters after them, relative to their change."""


class Measurement:
    """Context of all measurements.

    Args:
        session: settings.
        section: section of the figures.
        folder: folder for files.
    """

    def __init__(self, session: Session, section: Section, folder: Path) -> None:
        self.session, self.section, self.folder = session, section, folder

    def count(self, task: Task) -> int:
        """Return the number of lines of an epoch."""
        return 128 * FILES if self.session.quick else task.examples

    def files(self, task: Task) -> list[str]:
        """Return the files of an epoch."""
        folder = self.folder / task.net
        if not folder.exists():
            write(folder, task, self.count(task), FILES)
        return sorted(map(str, folder.iterdir()))

    def wanted(self, name: str, engines: Sequence[str], counts: Sequence[int]) -> dict[str, Sequence[str]]:
        """Return sides by engine and number of workers, including Paddle's."""
        found: dict[str, Sequence[str]] = {}
        for count in counts:
            found.update({f"{engine}_{count}": ("hogwild", name, engine) for engine in engines})
            found[f"paddle_{count}"] = ("paddle", name)
        return found


def run(session: Session) -> Section:
    """Measure everything."""
    section = Section("Hogwild training from files", _ABOUT)
    if not session.has("paddle"):
        section.note("Paddle: not compared; give --against paddle=PYTHON.")
    with tempfile.TemporaryDirectory() as folder:
        measurement = Measurement(session, section, Path(folder))
        for name in TASKS:
            _agree(measurement, name)
        for name, task in TASKS.items():
            _train(measurement, name, ("native", "process") if task.generic else ("native",))
        _read(measurement)
        _memory(measurement)
        _start(measurement)
    return section


def _workers(side: str) -> int:
    return int(side.rpartition("_")[2])


def _agree(measurement: Measurement, name: str) -> None:
    """Check that all sides learn the same from the same weights.

    Raises:
        SystemExit: they do not.
    """
    task, engines = TASKS[name], ("native", "process")
    few = write(measurement.folder / f"few-{task.net}", task, CHECKED, 1)
    alone = _weights(measurement, measurement.wanted(name, engines, [1]), few, 1)
    first = {key: first_weight(key, value.shape) for key, value in alone["native_1"].items()}
    moved = _distance(alone["native_1"], first)
    apart = max((_distance(alone["native_1"], each) / moved for each in alone.values()), default=0.0)
    text = f"{task.title}: after {CHECKED} lines parameters are {apart:.1g} of their way apart"
    if not apart <= APART:
        raise SystemExit(f"{text}, more than {APART}")
    if task.optimizer != "sgd":  # its areas vary from epoch to epoch
        text += f"; held-out areas {_areas(measurement, name, measurement.files(task))}"
    measurement.section.note(text)


def _areas(measurement: Measurement, name: str, files: Sequence[str]) -> str:
    """Return the areas under the curves of all sides after two epochs; not compared in quick sessions."""
    task = TASKS[name]
    held_out = lines(task, HELD_OUT, 1000)
    wanted = measurement.wanted(name, ("native", "process"), [2] if measurement.session.quick else [1, 2])
    trained = _weights(measurement, wanted, files, 2)
    labels = held_out["label"][0]
    found = {side: area(predict(task, weights, held_out), labels) for side, weights in trained.items()}
    text = ", ".join(f"{side.replace('_', ' ')}: {value:.3f}" for side, value in found.items())
    if not measurement.session.quick and max(found.values()) - min(found.values()) > AGREE:
        raise SystemExit(f"{task.title}: areas under the curve are more than {AGREE} apart: {text}")
    return text


def _weights(
    measurement: Measurement, wanted: dict[str, Sequence[str]], files: Sequence[str], epochs: int
) -> dict[str, dict[str, np.ndarray]]:
    """Return the trained parameters by side, running one side after the other."""
    found = {}
    path = str(measurement.folder / "weights.npz")
    for name, each in wanted.items():
        with measurement.session.sides(**{name: each}) as sides:
            for side in sides.values():
                side.ask("check", path=path, files=files, workers=_workers(name), epochs=epochs)
                with np.load(path) as saved:
                    found[name] = dict(saved)
    return found


def _distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    return sum(float(np.square(a[key] - b[key]).sum()) for key in a) ** 0.5


def _epoch(side: Worker, files: Sequence[str], workers: int) -> dict[str, float]:
    """Return the time of an epoch; CPU time is that of all processes."""
    begin = cpu_s(side.pid)
    found: dict[str, float] = side.ask("train", files=files, workers=workers)
    return {"wall": found["wall"], "cpu": (cpu_s(side.pid) - begin) * 1e3}


def _train(measurement: Measurement, name: str, engines: Sequence[str]) -> None:
    """Measure epochs of a task."""
    task, session = TASKS[name], measurement.session
    files, count = measurement.files(task), measurement.count(task)
    with session.sides(**measurement.wanted(name, engines, [1, 2])) as sides:
        asked = {each: partial(_epoch, side, files, _workers(each)) for each, side in sides.items()}
        found = in_turns(asked, session.rounds)
    for engine in engines:
        bounds = task.targets if engine == "native" else task.generic
        for workers in (1, 2):
            what = f"{task.title}, {engine}, {workers} worker{'s' * (workers > 1)}"
            _compare(
                measurement.section,
                what,
                count,
                found[f"{engine}_{workers}"],
                found.get(f"paddle_{workers}"),
                bounds,
            )
    for engine in (*engines, "paddle"):
        if f"{engine}_1" in found:
            share = ratio(found[f"{engine}_1"]["wall"], found[f"{engine}_2"]["wall"])
            what = f"{task.title}, {engine}, 1 to 2 workers"
            verdict = measurement.section.hold(what, share.median, SCALING.get(engine))
            measurement.section.row("1 to 2 workers", what=what, times_faster=share, target=verdict)


def _rate(count: int, times: Times, clock: str) -> Spread:
    return Spread.of([count * 1e3 / each for each in times[clock]])


def _compare(
    section: Section,
    what: str,
    count: int,
    ours: Times,
    theirs: Times | None,
    bounds: tuple[float, float] | None,
) -> None:
    """Add a row with examples a second."""
    cells: dict[str, object] = {
        "Paddle": "",
        "Paddle_a_CPU_second": "",
        "ratio": "",
        "ratio_CPU": "",
        "target": "",
    }
    if theirs is not None:
        by = {clock: ratio(theirs[clock], ours[clock]) for clock in ("wall", "cpu")}
        verdict = section.hold(f"{what}, against Paddle", by["wall"].median, bounds)
        rates = (_rate(count, theirs, "wall"), _rate(count, theirs, "cpu"))
        cells = dict(zip(cells, (*rates, by["wall"], by["cpu"], verdict)))
    own = {"ours": _rate(count, ours, "wall"), "a_CPU_second": _rate(count, ours, "cpu")}
    section.row("Training, examples a second", what=what, **own, **cells)


def _read(measurement: Measurement) -> None:
    """Measure reading files into batches."""
    task, section = TASKS["bow-adagrad"], measurement.section
    files = measurement.files(task)
    megabytes = sum(Path(path).stat().st_size for path in files) / 1e6
    with measurement.session.sides(ours=("hogwild", "bow-adagrad", "serial")) as sides:
        asked = {
            kind: partial(sides["ours"].ask, "read", kind=kind, files=files) for kind in ("batches", "parsed")
        }
        if len({each()["lines"] for each in asked.values()}) > 1:
            raise SystemExit("reading: FileBatches and MultiSlotFunctor find different numbers of lines")
        found = in_turns(asked, measurement.session.rounds)
    share = ratio(found["parsed"]["wall"], found["batches"]["wall"])
    what = "files to batches, against bare MultiSlotFunctor"
    rates = {
        name: Spread.of([megabytes * 1e3 / each for each in times["wall"]]) for name, times in found.items()
    }
    verdict = section.hold(what, share.median, (0.7, 0.9))
    section.row("Reading, MB/s", what=what, **rates, ratio=share, target=verdict)


def _memory(measurement: Measurement) -> None:
    """Measure the memory of training with two workers."""
    name, section = "bow-adagrad", measurement.section
    files = measurement.files(TASKS[name])
    wanted = measurement.wanted(name, ("native", "process"), [2])
    found: dict[str, list[float]] = {}
    for _ in range(measurement.session.short(3)):
        for each, line in wanted.items():
            with measurement.session.sides(**{each: line}) as sides:
                for side in sides.values():
                    with PeakMemory(side.pid) as peak:
                        for _ in range(2):
                            side.ask("train", files=files, workers=2)
                    found.setdefault(each, []).append(peak.mb)
    theirs = Spread.of(found["paddle_2"]) if "paddle_2" in found else None
    for engine in ("native", "process"):
        ours = Spread.of(found[f"{engine}_2"])
        what, share, verdict = f"peak memory, {engine}, ours / Paddle", "", ""
        if theirs is not None:
            share = f"{ours.median / theirs.median:.2f}"
            bounds = (1.0, 0.7) if engine == "native" else None
            verdict = section.hold(what, ours.median / theirs.median, bounds, at_most=True)
        section.row("Peak memory, MB", what=what, ours=ours, Paddle=theirs or "", share=share, target=verdict)


def _start(measurement: Measurement) -> None:
    """Measure the first and the second call of two workers, in new processes."""
    name, session, section = "bow-adagrad", measurement.session, measurement.section
    files = write(measurement.folder / "short", TASKS[name], 2, 2)
    second: dict[str, list[float]] = {}

    def measure(engine: str) -> dict[str, float]:
        wanted = ("imports",) if engine == "torch" else ("hogwild", name, engine)
        with session.sides(ours=wanted) as sides:
            if engine == "torch":
                times: dict[str, float] = sides["ours"].ask("torch")
                return times
            times = sides["ours"].ask("begin", files=files)
            second.setdefault(engine, []).append(sides["ours"].ask("train", files=files, workers=2)["wall"])
            return times

    asked = {each: partial(measure, each) for each in ("torch", *START)}
    found = in_turns(asked, session.short(5, 2))
    imported = found["torch"]["wall"]
    for engine, bounds in START.items():
        calls = {"first": found[engine]["wall"], "second": second[engine][1:]}  # without the warm-up round
        for call, held in (("first", bounds), ("second", SECOND)):
            share = ratio(calls[call], imported)
            what = f"start of 2 workers, {engine}, {call} call over import of torch"
            verdict = section.hold(what, share.median, held, at_most=True)
            times = {"call": Spread.of(calls[call]), "import_of_torch": Spread.of(imported)}
            section.row("Start, ms", what=what, **times, ratio=share, target=verdict)
