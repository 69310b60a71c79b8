"""Decoding image records into batches, in several threads and ahead of the consumer."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...base import FileError, MXNetError
from ...context import cpu
from ...ndarray import NDArray
from ...recordio import IRHeader, unpack
from ..data_iter import Rounds
from ..desc import DataDesc
from ..iterator import DataBatch
from .records import Place, Records

__all__ = ["ImageSource", "Work"]

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


class ImageSource:
    """Batches of decoded images.

    Args:
        records: what to read.
        work: decodes one image into its place.
        descs: descriptions of data and label.
        dtype: type of the data.
        o: the options; `round_batch`, `preprocess_threads` and `prefetch_buffer` count here.
    """

    def __init__(
        self, records: Records, work: Work, descs: tuple[DataDesc, DataDesc], dtype: torch.dtype, o: Any
    ) -> None:
        self.data_desc, self.label_desc = descs
        self._records, self._work, self._dtype = records, work, dtype
        self._threads = min(o.preprocess_threads, 4 * (os.cpu_count() or 1))
        self._ahead = max(1, o.prefetch_buffer)
        self._repeats = getattr(o, "seed_aug", None) is not None
        self._count = 0
        what = records.files[0].path
        self._rounds = Rounds(records.begin, self.data_desc.shape[0], o.round_batch, what)
        self._pending: deque[_Pending] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def read(self) -> DataBatch | None:
        """Return the next batch.

        Raises:
            MXNetError: an image cannot be decoded or does not fit; the text names file and byte offset. The
            batch is lost, the one after it comes next.
        """
        if self._pid != os.getpid():
            self._start()
        while len(self._pending) < self._ahead and self._submit():
            pass
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
        found = self._rounds.next()
        if found is None or self._pool is None:
            return False
        places, pad = found
        size = len(places)
        data = torch.zeros(self.data_desc.shape, dtype=self._dtype)
        label = torch.zeros((size, *(self.label_desc.shape[1:] or (1,))))
        index = np.zeros(size, np.uint64)
        jobs = []
        for slot, place in enumerate(places):
            number = self._number(place, slot)
            arrays = data[slot], label[slot], index[slot : slot + 1]
            jobs.append(self._pool.submit(_run, self._work, place, number, *arrays))
        self._pending.append(_Pending(data, label, index, pad, jobs))
        return True

    def _number(self, place: Place, slot: int) -> int:
        """Return what an image's draws depend on: under `seed_aug` its place, as in MXNet."""
        if self._repeats:
            return slot if self._records.indexed else place.number
        self._count += 1
        return self._count - 1


def _run(
    work: Work,
    place: Place,
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
