"""Reading files into batches: images against torch's DataLoader, text against NumPy, pandas and scikit-learn."""

from __future__ import annotations

import importlib.util
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from ..harness import Session, in_turns
from ..report import Section
from ..sides.data import COLUMNS, THREADS, write_pictures, write_text

__all__ = ["run"]

_ABOUT = """\
Milliseconds of wall time, as threads and processes are compared; the machine needs two free cores.

- Pictures: an epoch of JPEG files of 256 x 256 pixels, decoded by Pillow on both sides, cut at random to 224 x 224,
  mirrored by chance, normalized, in batches of 64. `ImageRecordIter(preprocess_threads=2)` against a DataLoader with
  two worker processes that stay, and a dataset in NumPy and torch. Before anything is timed, both have the same pixels.
- Text: making a `CSVIter` and a `LibSVMIter`, which read their files then, with `preprocess_threads=2`; against
  `np.loadtxt`, NumPy's quicker reader, and `sklearn.datasets.load_svmlight_file`. `np.genfromtxt` and
  `pandas.read_csv` are recorded, and so is one thread. Before anything is timed, all have the same numbers."""

_OTHERS = {
    "csv": {"np.loadtxt": (2.0, 5.0), "np.genfromtxt": None, "pandas.read_csv": None},
    "libsvm": {"sklearn": (2.0, 5.0)},
}
"""Sides by kind of file, and their targets."""


def run(session: Session) -> Section:
    """Measure every figure."""
    section = Section("Data", _ABOUT)
    with tempfile.TemporaryDirectory() as folder:
        _pictures(session, section, Path(folder))
        for kind in _OTHERS:
            _text(session, section, kind, Path(folder, f"numbers.{kind}"))
    return section


def _pictures(session: Session, section: Section, folder: Path) -> None:
    """Measure reading an epoch of images."""
    write_pictures(folder / "pictures", session.short(1024, 128))
    with session.sides(
        ours=("data", "ImageRecordIter", folder / "pictures"),
        theirs=("data", "DataLoader", folder / "pictures"),
    ) as sides:
        first = {name: Path(folder, f"{name}.npy") for name in sides}
        for name, side in sides.items():
            side.ask("check", path=str(first[name]))
        ours, theirs = (np.load(path) for path in first.values())
        apart = float(np.abs(ours - theirs).max())
        if apart > 1e-5:
            raise SystemExit(f"the pictures differ by {apart}")
        found = in_turns({name: partial(side.ask, "measure") for name, side in sides.items()}, session.rounds)
    section.compare(
        f"pictures, {THREADS} threads or workers",
        found["ours"],
        "torch DataLoader",
        found["theirs"],
        (1.0, 1.5),
        "wall",
    )


def _text(session: Session, section: Section, kind: str, path: Path) -> None:
    """Measure reading a file of numbers."""
    write_text(path, kind, session.short(100_000))
    others = {}
    for name, bounds in _OTHERS[kind].items():
        package = name.partition(".")[0]
        if package == "np" or importlib.util.find_spec(package):
            others[name] = bounds
        else:
            section.note(f"{package}: not compared, as it is not installed.")
    wanted = {"ours": ("data", "dpmodule", path), "one": ("data", "dpmodule", path, 1)}
    with session.sides(**wanted, **{name: ("data", name, path) for name in others}) as sides:
        sums = {name: side.ask("check") for name, side in sides.items()}
        if len(set(map(tuple, sums.values()))) != 1:
            raise SystemExit(f"they read something else: {sums}")
        found = in_turns({name: partial(side.ask, "measure") for name, side in sides.items()}, session.rounds)
    what = f"{kind}, {COLUMNS} numbers a line, {path.stat().st_size / 1e6:.0f} MB"
    for name, bounds in others.items():
        section.compare(what, found["ours"], name, found[name], bounds, "wall")
    section.compare(what, found["ours"], "one thread", found["one"])
