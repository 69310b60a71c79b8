"""Reading files: ours, or other libraries.

Run as ``python -m benchmarks.sides.data SYSTEM PATH [THREADS]``, one of the names in `_SYSTEMS`.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import dpmodule as mx

from .serve import Clock, serve

__all__ = ["COLUMNS", "THREADS", "prepare", "write_pictures", "write_text"]

THREADS = 2
COLUMNS = 20
_WIDE = 10_000  # columns of the sparse file
_EDGE, _SIZE, _BATCH = 256, 224, 64
_MEAN, _STD = (123.68, 116.78, 103.94), (58.4, 57.1, 57.4)


def write_text(path: Path, kind: str, rows: int) -> None:
    """Write float32 numbers, as short as they can be, with commas or as LibSVM does."""
    draws = np.random.default_rng(0)
    numbers = draws.standard_normal((rows, COLUMNS), np.float32)
    with open(path, "w", encoding="ascii") as file:
        for number, row in enumerate(numbers):
            words = list(map(str, row))
            if kind == "csv":
                file.write(",".join(words) + "\n")
                continue
            places = np.sort(draws.choice(_WIDE, COLUMNS, replace=False))
            pairs = " ".join(f"{place}:{word}" for place, word in zip(places, words, strict=True))
            file.write(f"{number % 2} {pairs}\n")


def write_pictures(path: Path, count: int) -> None:
    """Write a record file of JPEG pictures with its index."""
    image = importlib.import_module("PIL.Image")
    draws = np.random.default_rng(0)
    with mx.recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w") as record:
        for number in range(count):
            spots = image.fromarray(draws.integers(0, 256, (16, 16, 3), np.uint8))
            target = io.BytesIO()
            spots.resize((_EDGE, _EDGE), image.Resampling.BICUBIC).save(target, "JPEG", quality=90)
            header = mx.recordio.IRHeader(0, float(number % 10), number, 0)
            record.write_idx(number, mx.recordio.pack(header, target.getvalue()))


class Pictures:
    """`ImageRecordIter`.

    Args:
        path: the record file, without ".rec".
        drawn: True if order, place and mirroring are random.
    """

    def __init__(self, path: str, drawn: bool) -> None:
        colors = {f"mean_{c}": value for c, value in zip("rgb", _MEAN, strict=True)}
        colors |= {f"std_{c}": value for c, value in zip("rgb", _STD, strict=True)}
        self._data = mx.io.ImageRecordIter(
            path_imgrec=f"{path}.rec",
            path_imgidx=f"{path}.idx",
            data_shape=(3, _SIZE, _SIZE),
            batch_size=_BATCH,
            shuffle=drawn,
            rand_crop=drawn,
            rand_mirror=drawn,
            preprocess_threads=THREADS,
            verbose=False,
            **colors,
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        """Yield the pictures of every batch."""
        self._data.reset()
        for batch in self._data:
            yield batch.data[0].raw


class Example:
    """Conversion of a record in the DataLoader's dataset.

    Args:
        drawn: True if place and mirroring are random.
    """

    def __init__(self, drawn: bool) -> None:
        self._drawn = drawn
        self._image = importlib.import_module("PIL.Image")
        self._mean, self._std = (torch.tensor(each).view(3, 1, 1) for each in (_MEAN, _STD))

    def __call__(self, record: bytes) -> tuple[torch.Tensor, float]:
        """Return the picture and the class."""
        header, body = mx.recordio.unpack(record)
        pixels = np.array(self._image.open(io.BytesIO(body)).convert("RGB"))
        rest = _EDGE - _SIZE
        y, x = torch.randint(0, rest + 1, (2,)).tolist() if self._drawn else (rest // 2, rest // 2)
        picture = torch.from_numpy(pixels[y : y + _SIZE, x : x + _SIZE]).permute(2, 0, 1)
        if self._drawn and torch.rand(()) < 0.5:
            picture = picture.flip(2)
        return picture.float().sub_(self._mean).div_(self._std), header.label


class Loaded:
    """Torch's DataLoader with persistent workers.

    Args:
        path: the record file, without ".rec".
        drawn: True if order, place and mirroring are random.
    """

    def __init__(self, path: str, drawn: bool) -> None:
        dataset = mx.recordio.RecordDataset(f"{path}.rec", transform=Example(drawn))
        self._loader = DataLoader(
            dataset, _BATCH, shuffle=drawn, num_workers=THREADS, persistent_workers=True
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        """Yield the pictures of every batch."""
        for pictures, _ in self._loader:
            yield pictures


def _reading(reader: type[Pictures | Loaded], path: str) -> dict[str, Any]:
    data = reader(path, True)

    def measure() -> dict[str, float]:
        """Return the time of an epoch."""
        clock = Clock()
        if not sum(len(batch) for batch in data.epoch()):
            raise SystemExit("there are no pictures")
        return clock.read()

    def check(path: str, source: str = path) -> None:
        """Save the first batch without anything random."""
        np.save(path, next(iter(list(reader(source, False).epoch()))).numpy())

    return {"measure": measure, "check": check}


def _ours(path: str, threads: str = str(THREADS)) -> Any:
    """Make the iterator of a file of text."""
    options = {"batch_size": 1, "preprocess_threads": int(threads)}
    if path.endswith("csv"):
        return mx.io.CSVIter(data_csv=path, data_shape=(COLUMNS,), **options)
    return mx.io.LibSVMIter(data_libsvm=path, data_shape=(_WIDE,), **options)


def _loadtxt(path: str) -> Any:
    return np.loadtxt(path, np.float32, delimiter=",")


def _genfromtxt(path: str) -> Any:
    return np.genfromtxt(path, np.float32, delimiter=",")


def _pandas(path: str) -> Any:
    return importlib.import_module("pandas").read_csv(path, header=None, dtype=np.float32).to_numpy()


def _sklearn(path: str) -> Any:
    load = importlib.import_module("sklearn.datasets").load_svmlight_file
    return load(path, n_features=_WIDE, dtype=np.float32, zero_based=True)[0]


_SYSTEMS: dict[str, Callable[..., Any]] = {
    "dpmodule": _ours,
    "np.loadtxt": _loadtxt,
    "np.genfromtxt": _genfromtxt,
    "pandas.read_csv": _pandas,
    "sklearn": _sklearn,
}


def _numbers(found: Any) -> np.ndarray[Any, Any]:
    """Return the numbers of the first and the last line."""
    if isinstance(found, mx.io.MXDataIter):
        batches = [batch.data[0] for batch in found]
        parts = [batches[0], batches[-1]]
        return np.concatenate([part.asnumpy() for part in parts])
    rows = found[[0, -1]]
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())


def _parsing(read: Callable[..., Any], *given: str) -> dict[str, Any]:
    def measure() -> dict[str, float]:
        """Return the time of reading the file."""
        clock = Clock()
        read(*given)
        return clock.read()

    def check() -> list[float]:
        """Return the numbers of the first and the last line that are not 0."""
        numbers = _numbers(read(*given))
        found: list[float] = numbers[numbers != 0].tolist()
        return found

    return {"measure": measure, "check": check}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    system, *given = sys.argv[1:]
    if system in _SYSTEMS:
        return _parsing(_SYSTEMS[system], *given)
    return _reading(Pictures if system == "ImageRecordIter" else Loaded, *given)


if __name__ == "__main__":
    serve(prepare)
