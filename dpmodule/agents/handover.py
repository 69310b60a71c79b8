"""How a parent hands orders to its workers, without locks.

`Board` is memory that all of them map. Every cell of it has one writer, so nothing has to be added up atomically, and
no process can die with a lock. A worker's state follows from two of its cells: ``order``, how many orders it has got,
which the parent alone writes, and ``done``, how many of them it has carried out, which the worker alone does::

                     give: command, then order + 1
           +-----------------------------------------------+
           |                                               v   +--+ give the same command once more, while
    IDLE: order == done                       BUSY: order > done  | order - done < wants (see `BoardOrders.free`)
           ^                                               |   ^--+
           +-----------------------------------------------+----> GONE: it ends, and done never follows;
             finish: at_end, ended, wants, then done + 1          its parent hears that from the system

An idle worker looks at ``order``, and a parent that needs a worker looks at every ``done``. Both look in vain for a
short time, and sleep then::

    LOOKING ---- nothing for SPIN_S ----> says so in its cell `sleeps`, looks once more, and blocks: SLEEPING
       ^                                                                                                |
       +------ its signal (the other side, having written, saw `sleeps`), a death, or after LOOK_S -------+

A worker rings when it has become idle. A processor may let the other side's look at ``sleeps`` overtake what that has
written; then the signal stays silent, and the sleeper wakes up after `LOOK_S`.

To be woken costs more than it seems: the worker whose processor the parent takes finds its caches and its table of
pages cold. On a virtual machine that was 0.1 ms for a parley of 0.2 ms. So a worker whose parleys are short is given
several ahead, as many as it says in ``wants``: those of `AHEAD_S`.
"""

from __future__ import annotations

import os
import platform
import select
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, TypeVar

from .._devices.shared_memory import shared_bytes
from ..streams.synchronization import Signal

Found = TypeVar("Found")

SPIN_S = 50e-6
"""How long to look for news without sleeping, in seconds: about what it takes to fall asleep and to be woken."""

LOOK_S = 0.1
"""How long one sleeps at most before one looks oneself, in seconds."""

AHEAD_S = 4e-3
"""How long the orders may take that a worker is given ahead, in seconds; one at a time where one takes longer."""

_MOST_SKIPPED = 64

_LINE = 16
"""Cells that lie together in the caches of a processor (two lines): each side's cells have lines of their own."""

_PARENT_SLEEPS, _CLOSED = range(2)
_ORDER, _COMMAND = range(2)
_DONE, _SLEEPS, _AT_END, _ENDED, _WANTS = range(_LINE, _LINE + 5)
_WORKER = 2 * _LINE

_IS_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")
"""Whether the processor lets others see what is written in the order in which it was."""


def _yield() -> None:
    os.sched_yield()


class Board:
    """What parent and workers have in common: cells of 64 bits, and a signal for each of them.

    Args:
        ahead: how many orders one may have at most before it has carried out the first of them.
    """

    def __init__(self, workers: int, ahead: int = 1) -> None:
        self.workers = workers
        self.ahead = ahead
        self._memory: Any = shared_bytes("the board of the workers", 8 * (_LINE + workers * _WORKER))
        self.signals = [Signal.create() for _ in range(workers)]
        self.parent_signal = Signal.create()
        self._open()

    def _open(self) -> None:
        self.cells: Any = memoryview(self._memory.numpy()).cast("B").cast("q")

    def close(self) -> None:
        """Give the signals back; further calls do nothing."""
        for signal in (*self.signals, self.parent_signal):
            signal.close()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.workers, self.ahead, self._memory, self.signals, self.parent_signal

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.workers, self.ahead, self._memory, self.signals, self.parent_signal = state
        self._open()


class _Patience:
    """Looks for news without sleeping, as long as that has paid lately.

    Giving way to whoever waits for this processor costs next to nothing where that is the one whose news one waits for,
    and thousandths of a second where it is one that computes; so after a look in vain some are left out.
    """

    __slots__ = ("_most", "_skip", "_skipped")

    def __init__(self) -> None:
        self._skip = self._skipped = 0

    def look(self, found: Callable[[], Found | None]) -> Found | None:
        """Return what a function finds, None if it finds nothing soon."""
        if self._skip:
            self._skip -= 1
            return None
        began = perf_counter()
        while True:
            _yield()
            news, took = found(), perf_counter() - began
            if took > SPIN_S:
                self._skipped = self._skip = min(2 * self._skipped + 1, _MOST_SKIPPED)
                return news
            if news is not None:
                self._skipped = 0
                return news


class Desk:
    """A worker's side of the board.

    Args:
        worker: number of the worker.
        channel_fd: what becomes readable when the parent closes the channel; None: there is none.
        may_spin: whether to look before sleeping; threads of one process would take time from each other.
    """

    def __init__(
        self, board: Board, worker: int, channel_fd: int | None = None, may_spin: bool = True
    ) -> None:
        self._board = board  # its signals stay open
        self._cells = board.cells[_LINE + worker * _WORKER : _LINE + (worker + 1) * _WORKER]
        self._shared = board.cells[:_LINE]
        self._signal, self._parent_signal = board.signals[worker], board.parent_signal
        self._channel_fd = channel_fd
        self._number = 0
        self._most, self._mean_s = board.ahead, 0.0
        self._patience = _Patience() if may_spin else None
        self._poll = select.poll()
        self._poll.register(self._signal.read, select.POLLIN)
        if channel_fd is not None:
            self._poll.register(channel_fd, select.POLLIN)

    def take(self) -> int | None:
        """Wait for an order, and return its command; None: the parent wants no more."""
        command = self._command()
        if command is None and self._patience is not None:
            command = self._patience.look(self._command)
        return self._asleep() if command is None else command

    def _command(self) -> int | None:
        cells = self._cells
        if cells[_ORDER] == self._number:
            return None
        return cells[_COMMAND]  # type: ignore[no-any-return]

    def _asleep(self) -> int | None:
        self._cells[_SLEEPS] = 1
        try:
            while (command := self._command()) is None and not self._shared[_CLOSED]:
                for fd, _ in self._poll.poll(LOOK_S * 1000):
                    if fd == self._channel_fd:
                        return None
                    self._signal.drain()
        finally:
            self._cells[_SLEEPS] = 0
        return command

    def took(self, seconds: float) -> None:
        """Say how long a parley took, which tells how many to give ahead."""
        self._mean_s += (seconds - self._mean_s) / 8 if self._mean_s else seconds
        self._cells[_WANTS] = min(self._most, int(AHEAD_S / max(self._mean_s, 1e-9)))

    def finish(self, at_end: bool = False, ended: bool = False) -> None:
        """Say that an order has been carried out.

        Args:
            at_end: whether there is nothing left in this epoch for this worker.
        """
        cells = self._cells
        cells[_AT_END] = at_end
        if ended:
            cells[_ENDED] += 1
        if not _IS_ORDERED:
            _yield()  # passes a barrier in the system
        self._number += 1
        cells[_DONE] = self._number
        if self._shared[_PARENT_SLEEPS] and cells[_ORDER] == self._number:
            self._parent_signal.give()


class BoardOrders:
    """The parent's side of the board.

    Attributes:
        is_alarmed: whether a descriptor given to `watch` was readable when `sleep` looked last.
    """

    def __init__(self, board: Board, may_spin: bool = True) -> None:
        self._board = board
        self._cells = board.cells
        self._signal, self._signal_fd = board.parent_signal, board.parent_signal.read
        self.is_alarmed = False
        self._bases = [_LINE + worker * _WORKER for worker in range(board.workers)]
        # those of the worker behind the last one that got an order come first
        self._turns: list[list[tuple[int, int]]] = [
            [(worker, self._bases[worker]) for worker in (*range(first, board.workers), *range(first))]
            for first in (*range(1, board.workers), 0)
        ]
        self._last = board.workers - 1
        self._patience = _Patience() if may_spin else None
        self._poll = select.poll()
        self._poll.register(self._signal_fd, select.POLLIN)

    def watch(self, fds: Iterable[int]) -> None:
        """Wake up, too, when one of these descriptors becomes readable: a worker ends."""
        for fd in fds:
            self._poll.register(fd, select.POLLIN)

    def give(self, worker: int, command: int) -> None:
        """Give a worker a command, which is idle or was found by `free`."""
        cells, base = self._cells, self._bases[worker]
        self._last = worker
        cells[base + _COMMAND] = command
        if not _IS_ORDERED:
            _yield()
        cells[base + _ORDER] += 1
        if cells[base + _SLEEPS]:
            self._board.signals[worker].give()

    def free(self, command: int, ahead: bool) -> int | None:
        """Return a worker that can be given a command, and is not at its end; None if there is none.

        It is the one that had its turn longest ago. If all are at their end: any, as soon as all are idle.

        Args:
            ahead: whether it may have the same command to carry out before.
        """
        cells, is_busy = self._cells, False
        for worker, base in self._turns[self._last]:
            left = cells[base + _ORDER] - cells[base + _DONE]
            if left and not (ahead and left < cells[base + _WANTS] and cells[base + _COMMAND] == command):
                is_busy = True
            elif not cells[base + _AT_END]:
                return worker
        return None if is_busy else self._turns[self._last][0][0]

    def idle(self) -> list[int]:
        """Return all idle workers."""
        cells = self._cells
        return [
            worker for worker, base in enumerate(self._bases) if cells[base + _DONE] == cells[base + _ORDER]
        ]

    def busy(self) -> list[int]:
        """Return all busy workers."""
        idle = set(self.idle())
        return [worker for worker in range(len(self._bases)) if worker not in idle]

    def quiet(self) -> bool | None:
        """Return True if all workers are idle, else None."""
        return None if self.busy() else True

    def more_idle(self, than: int) -> bool | None:
        """Return True if more workers than a number are idle, else None."""
        return True if len(self.idle()) > than else None

    def answer(self, worker: int) -> bool | None:
        """Return whether a worker says that there is nothing left for it, None while it is busy."""
        base = self._bases[worker]
        if self._cells[base + _DONE] != self._cells[base + _ORDER]:
            return None
        return self.is_at_end(worker)

    def done(self, worker: int) -> int:
        """Return how many orders a worker has carried out."""
        return int(self._cells[self._bases[worker] + _DONE])

    def command(self, worker: int) -> int:
        """Return a worker's latest command."""
        return int(self._cells[self._bases[worker] + _COMMAND])

    def is_at_end(self, worker: int) -> bool:
        """Say whether a worker said last that there is nothing left for it."""
        return bool(self._cells[self._bases[worker] + _AT_END])

    def all_at_end(self) -> bool:
        """Say whether all workers did."""
        return all(self._cells[base + _AT_END] for base in self._bases)

    def ended(self) -> int:
        """Return how many ends of epochs the workers have counted."""
        return sum(self._cells[base + _ENDED] for base in self._bases)

    def look(self, found: Callable[[], Found | None]) -> Found | None:
        """Return what a function finds on the board, None if it finds nothing soon."""
        return None if self._patience is None else self._patience.look(found)

    def sleep(self, found: Callable[[], Found | None]) -> Found | None:
        """Return what a function finds; sleep until a worker finishes or ends, if it finds nothing at first."""
        self._cells[_PARENT_SLEEPS] = 1
        try:
            if (news := found()) is not None:
                return news
            woken = self._poll.poll(LOOK_S * 1000)
        finally:
            self._cells[_PARENT_SLEEPS] = 0
        self._signal.drain()
        self.is_alarmed = any(fd != self._signal_fd for fd, _ in woken)
        return found()

    def close(self) -> None:
        """Tell all workers that there is nothing more to do."""
        self._cells[_CLOSED] = 1
        for signal in self._board.signals:
            signal.give()
