"""Which records an image iterator reads, in which order."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base import ArgumentError, FileError, FileFormatError
from ...files import likely_kind, regular_file
from ...recordio.files import load_index
from ...recordio.framing import RecordFile
from ..parsing import input_files
from ..std_random import StandardDraws

_HEAD = struct.Struct("<4sII")
_KIND_SHIFT = 29


class RecordPlace(NamedTuple):
    """Where a record stands: which file, the byte offset there, and its number in the round."""

    file: RecordFile
    offset: int
    number: int

    def read(self) -> bytes:
        """Return the record."""
        return self.file.read_at(self.offset)

    def __str__(self) -> str:
        return f"{self.file.path}: byte {self.offset}"


class RecordSource:
    """The records of one or several files, or of a part of them.

    Args:
        shuffle: whether each round has an order of its own.
        seed: seed of these orders.
    """

    def __init__(
        self, owner: str, path: str, index: str, parts: int, part: int, shuffle: bool, seed: int
    ) -> None:
        if not path:
            raise ArgumentError(f"{owner}: path_imgrec is required: path of the record file (.rec)")
        self.files = [RecordFile(each) for each in input_files(path)]
        if not any(file.size for file in self.files):
            raise FileFormatError(f"{owner}: {path}: {likely_kind(b'')}, expected records of images")
        if index and len(self.files) != 1:
            raise ArgumentError(f"{owner}: path_imgidx goes with one record file, not {len(self.files)}")
        self.indexed = bool(index)
        self._parts, self._part = parts, part
        self._draws = StandardDraws(seed) if shuffle else None
        self._before_round: dict[str, Any] | None = None
        self._offsets: list[int] | None = None
        if index:
            offsets = [offset for _, offset in load_index(index, self.files[0].path)]
            step = -(-len(offsets) // parts)
            self._offsets = offsets[part * step : (part + 1) * step]
        else:
            for file in self.files:
                next(file.offsets(), None)  # a foreign file is refused now

    def begin(self) -> Iterator[RecordPlace]:
        """Start a round over the records."""
        places = self._in_order()
        if self._draws is None:
            return places
        self._before_round = self._draws.state_dict()
        known = list(places)
        order = self._draws.shuffled(len(known))
        return iter([known[i]._replace(number=n) for n, i in enumerate(order)])

    def _in_order(self) -> Iterator[RecordPlace]:
        if self._offsets is not None:
            for number, offset in enumerate(self._offsets):
                yield RecordPlace(self.files[0], offset, number)
            return
        # without an index, parts are cut by bytes, so that nothing has to be counted
        step = -(-sum(file.size for file in self.files) // self._parts)
        low, high = self._part * step, (self._part + 1) * step
        number = base = 0
        for file in self.files:
            for offset in file.offsets():
                if base + offset >= high:
                    return
                if base + offset >= low:
                    yield RecordPlace(file, offset, number)
                    number += 1
            base += file.size

    def state_dict(self) -> dict[str, Any] | None:
        """Return where the draws stood before the round was begun that was begun last; None if there are none."""
        return self._before_round

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Let the next round be the one that `state_dict` told of."""
        if self._draws is not None and state is not None:
            self._draws.load_state_dict(state)

    @property
    def facts(self) -> dict[str, Any]:
        """What the records have to be like for a state of others to fit."""
        return {
            "bytes": [file.size for file in self.files],
            "indexed": self.indexed,
            "part": [self._part, self._parts],
            "shuffle": self._draws is not None,
        }

    def most_labels(self) -> int:
        """Return the largest number of labels that a record has."""
        return max((_label_count(place) for place in self._in_order()), default=0)


def _label_count(place: RecordPlace) -> int:
    """Read the number of labels from the head of a record."""
    head = place.file.head(place.offset, _HEAD.size)
    if len(head) < _HEAD.size:
        return 0
    _, word, flag = _HEAD.unpack(head)
    if word >> _KIND_SHIFT:  # in parts: the number may be anywhere
        flag = struct.unpack_from("<I", place.read().ljust(4, b"\0"))[0]
    return int(flag)


class ImageList:
    """Labels by image number, from a list of lines ``number, labels ..., path``.

    Args:
        width: number of labels of an image; -1 for any number.
    """

    def __init__(self, path: str, width: int) -> None:
        self.path = path
        self._labels: dict[int, np.ndarray[Any, Any]] = {}
        try:
            with open(path, encoding="utf-8", opener=regular_file) as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        self._add(line, number, width)
        except OSError as error:
            raise FileError(error.errno, f"image list: {error.strerror}", path) from error
        except UnicodeDecodeError as error:
            raise FileFormatError(
                f"{path}: byte {error.start}: no text, but an image list is text"
            ) from error

    def _add(self, line: str, number: int, width: int) -> None:
        fields = line.rstrip("\n").split("\t") if "\t" in line else line.split()
        try:
            key = int(fields[0])
            labels = np.array(fields[1 : width + 1] if width > 0 else fields[1:-1], np.float32)
        except ValueError:
            labels = np.empty(0, np.float32)
        if not len(labels) or (width > 0 and len(labels) != width):
            expected = f"{width} labels" if width > 0 else "labels"
            raise FileFormatError(
                f"{self.path}: line {number}: {line.strip()[:60]!r}, expected number, {expected} and path"
            )
        self._labels[key] = labels

    def find(self, key: int) -> np.ndarray[Any, Any]:
        """Return the labels of an image."""
        found = self._labels.get(key)
        if found is None:
            raise FileFormatError(f"{self.path} has no line for image {key}")
        return found

    def most_labels(self) -> int:
        """Return the largest number of labels of an image."""
        return max(map(len, self._labels.values()), default=0)
