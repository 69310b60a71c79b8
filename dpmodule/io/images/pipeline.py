"""Decoding image records into batches, ahead of the consumer and in several threads."""

from __future__ import annotations

import os
import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..._files import likely_kind, regular_file
from ...base import ArgumentError, FileError, FileFormatError, MXNetError
from ...context import cpu
from ...ndarray import NDArray
from ...recordio import IRHeader, unpack
from ...recordio.files import load_index
from ...recordio.framing import RecordFile
from ..data_iter import Rounds
from ..desc import DataDesc
from ..iterator import DataBatch
from ..parsing import input_files
from ..std_random import StdRandom

if TYPE_CHECKING:
    from ..data_iter import OptionValues


_HEAD = struct.Struct("<4sII")
_KIND_SHIFT = 29


class RecordLocation(NamedTuple):
    """Location of a record: its file, its byte offset, and its number in the pass."""

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
        shuffle: if True, each pass has its own order.
        seed: seed of the orders.
    """

    def __init__(
        self, owner: str, path: str, index: str, parts: int, part: int, shuffle: bool, seed: int
    ) -> None:
        if not path:
            raise ArgumentError(f"{owner}: path_imgrec is required: path of the record file (.rec)")
        self.files = [RecordFile(file) for file in input_files(path)]
        if not any(file.size for file in self.files):
            raise FileFormatError(f"{owner}: {path}: {likely_kind(b'')}, expected records of images")
        if index and len(self.files) != 1:
            raise ArgumentError(f"{owner}: path_imgidx needs one record file, found {len(self.files)}")
        self.indexed = bool(index)
        self._parts, self._part = parts, part
        self._rng = StdRandom(seed) if shuffle else None
        self._before_round: dict[str, Any] | None = None
        self._offsets: list[int] | None = None
        if index:
            offsets = [offset for _, offset in load_index(index, self.files[0].path)]
            step = -(-len(offsets) // parts)
            self._offsets = offsets[part * step : (part + 1) * step]
        else:
            for file in self.files:
                next(file.offsets(), None)  # refuse a file of another format now

    def begin(self) -> Iterator[RecordLocation]:
        """Begin a pass over the records."""
        locations = self._in_order()
        if self._rng is None:
            return locations
        self._before_round = self._rng.state_dict()
        all_locations = list(locations)
        order = self._rng.shuffled(len(all_locations))
        return iter([all_locations[i]._replace(number=n) for n, i in enumerate(order)])

    def _in_order(self) -> Iterator[RecordLocation]:
        if self._offsets is not None:
            for number, offset in enumerate(self._offsets):
                yield RecordLocation(self.files[0], offset, number)
            return
        # without an index, parts are cut by bytes, which needs no counting
        step = -(-sum(file.size for file in self.files) // self._parts)
        low, high = self._part * step, (self._part + 1) * step
        number = base = 0
        for file in self.files:
            for offset in file.offsets():
                if base + offset >= high:
                    return
                if base + offset >= low:
                    yield RecordLocation(file, offset, number)
                    number += 1
            base += file.size

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the generator before the last pass; None without a generator."""
        return self._before_round

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Repeat the pass of a state in the next `begin`."""
        if self._rng is not None and state is not None:
            self._rng.load_state_dict(state)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that must agree with those in a state."""
        return {
            "bytes": [file.size for file in self.files],
            "indexed": self.indexed,
            "part": [self._part, self._parts],
            "shuffle": self._rng is not None,
        }

    def most_labels(self) -> int:
        """Return the largest number of labels that a record has."""
        return max((_label_count(location) for location in self._in_order()), default=0)


def _label_count(location: RecordLocation) -> int:
    """Read the number of labels from the header of a record."""
    head = location.file.head(location.offset, _HEAD.size)
    if len(head) < _HEAD.size:
        return 0
    _, word, flag = _HEAD.unpack(head)
    if word >> _KIND_SHIFT:  # the record is split, perhaps at the number
        flag = struct.unpack_from("<I", location.read().ljust(4, b"\0"))[0]
    return int(flag)


def image_list_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the nonempty lines of an image list with their numbers."""
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise FileError(error.errno, f"image list: {error.strerror}", path) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path}: byte {error.start}: the file is not text, but an image list is"
        ) from error


class ImageList:
    """Labels by image number, from a list of lines ``number, labels ..., path``.

    Args:
        width: number of labels of an image; -1 for any number.
    """

    def __init__(self, path: str, width: int) -> None:
        self.path = path
        self._labels: dict[int, np.ndarray[Any, Any]] = {}
        for number, line in image_list_lines(path):
            self._add(line, number, width)

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
        labels = self._labels.get(key)
        if labels is None:
            raise FileFormatError(f"{self.path} has no line for image {key}")
        return labels

    def most_labels(self) -> int:
        """Return the largest number of labels of an image."""
        return max(map(len, self._labels.values()), default=0)


class BatchMemory:
    """Reusable memory for tensors of one shape, since clearing new memory takes as long as decoding.

    Args:
        shape: shape of the tensors.
        most: largest number of unused blocks that are kept.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, most: int) -> None:
        self._shape, self._dtype, self._most = shape, dtype, most
        self._free: list[np.ndarray[Any, Any]] = []

    def lend(self) -> torch.Tensor:
        """Return an uninitialized tensor. Its memory is reused after it and all its views are deleted."""
        try:
            block = self._free.pop()
        except IndexError:
            block = torch.empty(self._shape, dtype=self._dtype).numpy()
        lent = block.view()  # all tensors that share the memory keep this view alive
        weakref.finalize(lent, _take_back, self._free, block, self._most).atexit = False
        return torch.from_numpy(lent)


def _take_back(free: list[np.ndarray[Any, Any]], block: np.ndarray[Any, Any], most: int) -> None:
    if len(free) < most:
        free.append(block)


Work = Callable[[IRHeader, bytes, int, torch.Tensor, torch.Tensor], None]
"""Function that decodes one image: (header, file, random seed, data, label)."""


@dataclass(slots=True)
class _Pending:
    """A batch whose images are being decoded."""

    data: torch.Tensor
    label: torch.Tensor
    index: np.ndarray[Any, Any]
    pad: int
    jobs: list[Future[None]]
    before: _Position


@dataclass(slots=True)
class _Position:
    """Position of a source: its pass, the generator of the order, and the number of images so far."""

    rounds: dict[str, Any]
    records: dict[str, Any] | None
    count: int


class ImageSource:
    """Batches of decoded images."""

    def __init__(
        self,
        records: RecordSource,
        work: Work,
        descs: tuple[DataDesc, DataDesc],
        dtype: torch.dtype,
        o: OptionValues,
    ) -> None:
        self.data_desc, self.label_desc = descs
        self._records, self._work, self._dtype = records, work, dtype
        self._threads = min(o.preprocess_threads, 4 * (os.cpu_count() or 1))
        self._ahead = max(1, o.prefetch_buffer)
        self._repeats = getattr(o, "seed_aug", None) is not None
        self._count = 0
        what = records.files[0].path
        self._what, self._wraps = what, o.round_batch
        self._rounds = Rounds(records.begin, self.data_desc.shape[0], o.round_batch, what)
        self._memory = BatchMemory(self.data_desc.shape, dtype, self._ahead + 1)
        self._pending: deque[_Pending] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def read(self) -> DataBatch | None:
        """Return the next batch."""
        self._fill()
        if not self._pending:
            return None
        batch = self._pending.popleft()
        self._submit()
        for job in batch.jobs:
            job.result()
        label = batch.label.squeeze(1) if len(self.label_desc.shape) == 1 else batch.label
        data = [NDArray(batch.data, cpu())]
        return DataBatch(data, [NDArray(label, cpu())], batch.pad, batch.index)

    def reset(self) -> None:
        """Begin a new epoch."""
        interrupted = bool(self._pending)
        self._drop()
        if interrupted:
            self._rounds.restart()
        else:
            self._rounds.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data; batches decoded ahead count as unread."""
        position = self._pending[0].before if self._pending else self._position()
        # the images of the last batch matter only without round_batch
        last = [] if self._wraps else position.rounds["last"]
        return {
            "records": self._records.facts,
            "wraps": self._wraps,
            "rounds": {**position.rounds, "last": [self._pack(location) for location in last]},
            "rng": position.records,
            "count": position.count,
            "ahead": bool(self._pending),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state_dict`."""
        here = {"records": self._records.facts, "wraps": self._wraps}
        wrong = [
            f"{name} is {state.get(name)!r}, here {value!r}"
            for name, value in here.items()
            if state.get(name) != value
        ]
        if wrong:
            raise ArgumentError(f"{self._what}: the state was saved for other records: {'; '.join(wrong)}")
        self._drop()
        self._records.load_state_dict(state["rng"])
        rounds = state["rounds"]
        self._rounds.load_state_dict(
            {**rounds, "last": [self._unpack(*numbers) for numbers in rounds["last"]]}
        )
        self._count = state["count"]
        if state["ahead"]:  # a reset depends on batches decoded ahead
            self._fill()

    def _position(self) -> _Position:
        return _Position(self._rounds.state_dict(), self._records.state_dict(), self._count)

    def _pack(self, location: RecordLocation) -> list[int]:
        return [self._records.files.index(location.file), location.offset, location.number]

    def _unpack(self, file: int, offset: int, number: int) -> RecordLocation:
        return RecordLocation(self._records.files[file], offset, number)

    def _fill(self) -> None:
        """Submit batches for decoding ahead."""
        if self._pid != os.getpid():
            self._start()
        while len(self._pending) < self._ahead and self._submit():
            pass

    def _drop(self) -> None:
        for batch in self._pending:
            for job in batch.jobs:
                job.cancel()
        self._pending.clear()

    def _start(self) -> None:
        """Start the threads; a forked child restarts its epoch if batches were pending."""
        if self._pending:
            self._pending.clear()
            self._rounds.restart()
        self._pool = ThreadPoolExecutor(self._threads, "ImageRecordIter")
        self._pid = os.getpid()
        weakref.finalize(self, _stop, self._pool, self._pid)

    def _submit(self) -> bool:
        """Submit the next batch for decoding; return False if there is none."""
        before = self._position()
        batch = self._rounds.next()
        if batch is None or self._pool is None:
            return False
        locations, pad = batch
        size = len(locations)
        data = self._memory.lend()
        label = torch.zeros((size, *(self.label_desc.shape[1:] or (1,))), dtype=torch.float32)
        index = np.zeros(size, np.uint64)
        jobs = []
        for slot, location in enumerate(locations):
            number = self._number(location, slot)
            arrays = data[slot], label[slot], index[slot : slot + 1]
            jobs.append(self._pool.submit(_run, self._work, location, number, *arrays))
        self._pending.append(_Pending(data, label, index, pad, jobs, before))
        return True

    def _number(self, location: RecordLocation, slot: int) -> int:
        """Return the random seed of an image: with `seed_aug` its position, as in MXNet."""
        if self._repeats:
            return slot if self._records.indexed else location.number
        self._count += 1
        return self._count - 1


def _run(
    work: Work,
    location: RecordLocation,
    number: int,
    data: torch.Tensor,
    label: torch.Tensor,
    index: np.ndarray[Any, Any],
) -> None:
    """Decode one record into its tensors."""
    try:
        header, body = unpack(location.read())
        index[0] = header.id
        work(header, body, number, data, label)
    except FileError:
        raise
    except MXNetError as error:
        text = str(error)
        raise type(error)(text if text.startswith(str(location)) else f"{location}: {text}") from error


def _stop(pool: ThreadPoolExecutor, pid: int) -> None:
    if pid == os.getpid():
        pool.shutdown(wait=False, cancel_futures=True)
