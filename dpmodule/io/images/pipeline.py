"""Decoding image records into batches, in several threads and ahead of the consumer."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...base import ArgumentError, FileError, MXNetError
from ...context import cpu
from ...ndarray import NDArray
from ...recordio import IRHeader, unpack
from ..data_iter import Rounds
from ..desc import DataDesc
from ..iterator import DataBatch
from .memory import BatchMemory
from .records import RecordPlace, RecordSource

if TYPE_CHECKING:
    from ..options import OptionValues

Work = Callable[[IRHeader, bytes, int, torch.Tensor, torch.Tensor], None]
"""Fills one image's place: (header, file, number for draws, data, label)."""


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
    """Where a source stands: its rounds, the draws of their order, and the number of images so far."""

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
        """Return where the source stands, as plain data; batches that are decoded already count as unread."""
        position = self._pending[0].before if self._pending else self._position()
        # only without round_batch do the images of the last batch matter
        last = [] if self._wraps else position.rounds["last"]
        return {
            "records": self._records.facts,
            "wraps": self._wraps,
            "rounds": {**position.rounds, "last": [self._told(place) for place in last]},
            "draws": position.records,
            "count": position.count,
            "ahead": bool(self._pending),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        here = {"records": self._records.facts, "wraps": self._wraps}
        wrong = [
            f"{name} is {state.get(name)!r}, here {value!r}"
            for name, value in here.items()
            if state.get(name) != value
        ]
        if wrong:
            raise ArgumentError(f"{self._what}: the state was saved over other records: {'; '.join(wrong)}")
        self._drop()
        self._records.load_state_dict(state["draws"])
        rounds = state["rounds"]
        self._rounds.load_state_dict({**rounds, "last": [self._place(*told) for told in rounds["last"]]})
        self._count = state["count"]
        if state["ahead"]:  # what comes after a reset depends on whether an epoch is under way
            self._fill()

    def _position(self) -> _Position:
        return _Position(self._rounds.state_dict(), self._records.state_dict(), self._count)

    def _told(self, place: RecordPlace) -> list[int]:
        return [self._records.files.index(place.file), place.offset, place.number]

    def _place(self, file: int, offset: int, number: int) -> RecordPlace:
        return RecordPlace(self._records.files[file], offset, number)

    def _fill(self) -> None:
        """Have batches decoded ahead."""
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
        """Start the threads; a forked child starts its own, on the batches that lay ahead."""
        if self._pending:
            self._pending.clear()
            self._rounds.restart()
        self._pool = ThreadPoolExecutor(self._threads, "ImageRecordIter")
        self._pid = os.getpid()
        weakref.finalize(self, _stop, self._pool, self._pid)

    def _submit(self) -> bool:
        """Have the next batch decoded, and say whether there is one."""
        before = self._position()
        found = self._rounds.next()
        if found is None or self._pool is None:
            return False
        places, pad = found
        size = len(places)
        data = self._memory.lend()
        label = torch.zeros((size, *(self.label_desc.shape[1:] or (1,))))
        index = np.zeros(size, np.uint64)
        jobs = []
        for slot, place in enumerate(places):
            number = self._number(place, slot)
            arrays = data[slot], label[slot], index[slot : slot + 1]
            jobs.append(self._pool.submit(_run, self._work, place, number, *arrays))
        self._pending.append(_Pending(data, label, index, pad, jobs, before))
        return True

    def _number(self, place: RecordPlace, slot: int) -> int:
        """Return what an image's draws depend on: under `seed_aug` its place, as in MXNet."""
        if self._repeats:
            return slot if self._records.indexed else place.number
        self._count += 1
        return self._count - 1


def _run(
    work: Work,
    place: RecordPlace,
    number: int,
    data: torch.Tensor,
    label: torch.Tensor,
    index: np.ndarray[Any, Any],
) -> None:
    """Decode one record into its place."""
    try:
        header, body = unpack(place.read())
        index[0] = header.id
        work(header, body, number, data, label)
    except FileError:
        raise
    except MXNetError as error:
        text = str(error)
        raise type(error)(text if text.startswith(str(place)) else f"{place}: {text}") from error


def _stop(pool: ThreadPoolExecutor, pid: int) -> None:
    if pid == os.getpid():
        pool.shutdown(wait=False, cancel_futures=True)
