"""Bytes and messages of spread tables in up to 256 processes, counted in one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch

from dpmodule.context import cpu
from dpmodule.kvstore.row_exchange import RowExchange, ShardedTable
from dpmodule.ndarray.row_sparse import RowSparseNDArray
from dpmodule.ops.sparse import all_rows

from ..harness import Session
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
The exchange of dpmodule itself, in a group of threads that counts instead of sending. Each process looks up the rows of
64 examples of 10 words in a table of 4,000,000 rows, and sends their gradients. Words are uniform, or follow Zipf's law
with the exponent given. *KB*: sent by a process to others in a step; *busiest*: the largest received by a process, over
the mean. *Announced*: the part of the KB that announcements take, whatever the words are. *Rows served*: rows that the
busiest process looks up, over the mean, as rows are spread (i mod n), and if they were spread by their frequencies.
*Cached*: KB if every process held the 100 most frequent rows, and their gradients were summed by an all-reduce."""

ROWS, WORDS, CACHED = 4_000_000, 640, 100


class _CountingGroup:
    """A group of threads with the exchanges of `RowExchange`, which counts what they send."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = np.zeros((size, size), np.int64)
        self.messages = np.zeros((size, size), np.int64)
        self._barrier = threading.Barrier(size)
        self._parts: list[Any] = [None] * size

    def exchange(self, rank: int) -> RowExchange:
        """Return the exchange of a process."""
        return RowExchange(
            rank, self.size, self._gather, partial(self._all_to_all, rank), lambda number, wait: []
        )

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        raise NotImplementedError("a step gathers nothing")

    def _all_to_all(
        self, rank: int, tensor: torch.Tensor, sent: list[int], received: list[int]
    ) -> torch.Tensor:
        self._parts[rank] = torch.split(tensor, sent)
        width = tensor.element_size()
        self.sent[rank] += np.array(sent) * width
        self.messages[rank] += np.array(sent) > 0
        self._barrier.wait()
        found = torch.cat([parts[rank] for parts in self._parts])
        self._barrier.wait()
        return found


def run(session: Session) -> Section:
    """Count steps of several numbers of processes, widths and skews."""
    section = Section("Spread tables in many processes", _ABOUT)
    sizes = (1, 4, 16) if session.quick else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    random = np.random.default_rng(session.short(0, 1))
    for skew in (0.0, 1.05):
        draw = _words(skew, random)
        for width in (16, 64):
            for size in sizes:
                drawn = [draw() for _ in range(size)]
                section.row(
                    "A step",
                    words=f"Zipf {skew}" if skew else "uniform",
                    width=width,
                    processes=size,
                    **_counted(drawn, width),
                )
    return section


def _words(skew: float, random: np.random.Generator) -> Callable[[], Any]:
    """Return a function that draws the words of a process; word k has the rank k by frequency."""
    odds = np.cumsum(np.arange(1, ROWS + 1) ** -skew)
    return lambda: np.searchsorted(odds, random.random(WORDS) * odds[-1])


def _counted(words: list[Any], width: int) -> dict[str, Any]:
    """Run a step in threads, and return its figures."""
    size = len(words)
    places = np.random.default_rng(1).permutation(ROWS)  # the number of a row says nothing of its frequency
    group = _CountingGroup(size)
    with ThreadPoolExecutor(size) as threads:
        list(threads.map(partial(_step, group, width), range(size), [places[each] for each in words]))
    others = ~np.eye(size, dtype=bool)
    sent = np.where(others, group.sent, 0)
    messages = np.where(others, group.messages, 0)
    # an exchange of all processes begins with an announcement: one to look up, one to send gradients
    announced = 8 * (4 + 8192 // size) * (size - 1)
    kilobytes = sent.sum(1).mean() / 1024
    return {
        "KB": round(kilobytes, 1),
        "announced_KB": round(announced / 1024, 1),
        "messages": round(messages.sum(1).mean(), 1),
        "busiest": round(sent.sum(0).max() / max(sent.sum(0).mean(), 1), 2),
        "rows_served": _served(words, places, size, False),
        "rows_served_by_frequency": _served(words, places, size, True),
        "cached_KB": round(_cached(words, width, sent, announced) / 1024, 1),
    }


def _step(group: _CountingGroup, width: int, rank: int, rows: Any) -> None:
    """Do what a process does in a step: look up rows, and send their gradients."""
    exchange = group.exchange(rank)
    count = len(exchange.own_rows(ROWS))
    own = RowSparseNDArray.of_record(all_rows(torch.zeros(1, width).expand(count, width)), cpu())
    table = ShardedTable(exchange, "words", (ROWS, width), lambda: own, lambda: None)
    table.look_up(torch.from_numpy(rows))
    distinct = torch.from_numpy(rows).unique()
    grad = RowSparseNDArray(torch.ones(len(distinct), width), distinct, (ROWS, width), cpu(), tidy=True)
    exchange.sum_rows([table], [grad])


def _served(words: list[Any], places: Any, size: int, by_frequency: bool) -> float:
    """Return the rows that the busiest process looks up over the mean."""
    asked = np.concatenate([np.unique(each) for each in words])
    names, counts = np.unique(asked, return_counts=True)
    owners = places[names] % size
    load = np.zeros(size)
    if by_frequency:  # the most asked first, each to the process that has least to do
        for count in -np.sort(-counts):
            load[load.argmin()] += count
    else:
        np.add.at(load, owners, counts)
    return round(float(load.max() / load.mean()), 2)


def _cached(words: list[Any], width: int, sent: Any, announced: int) -> float:
    """Return the bytes that a process sends if all processes hold the most frequent rows."""
    size = len(words)
    rare = np.mean([np.mean(np.unique(each) >= CACHED) for each in words])
    summed = 2 * CACHED * width * 4 * (size - 1) / size
    # the contents of messages that follow announcements take none of their own
    return float((sent.sum(1).mean() - 2 * announced) * rare + 2 * announced + summed)
