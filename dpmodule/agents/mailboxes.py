"""Lock-free mailboxes in shared memory, through which a parent sends orders to its workers.

`Mailboxes` is memory that all of them map. Every cell has one writer, so no update has to be atomic, and no process can
die with a lock. Two cells of a worker give its state: ``order``, the number of orders sent to it, which only the parent
writes, and ``done``, the number of orders it has carried out, which only the worker writes::

                     send: command, then order + 1
           +-----------------------------------------------+
           |                                               v   +--+ send the same command again, while
    IDLE: order == done                       BUSY: order > done  | order - done < wants (see `ParentEnd.find_free`)
           ^                                               |   ^--+
           +-----------------------------------------------+----> GONE: it ends, and done never follows;
             finish: at_end, ended, wants, then done + 1          the system tells the parent

An idle worker polls ``order``, and a parent that needs a worker polls every ``done``. Both spin briefly, then block::

    SPINNING --- nothing for SPIN_S ----> sets its cell `sleeps`, polls again, and blocks: SLEEPING
       ^                                                                                           |
       +------ its signal (the other side, having written, saw `sleeps`), a death, or POLL_S -------+

A worker signals when it becomes idle. A processor may reorder the other side's read of ``sleeps`` before its write;
then no signal is sent, and the sleeper wakes up after `POLL_S`.

A wake-up is expensive: the worker whose processor the parent takes finds its caches and its page table cold. On a
virtual machine that took 0.1 ms for a parley of 0.2 ms. So a worker with short parleys is sent several ahead, as many
as it writes to ``wants``: those that take `AHEAD_S` together.
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

Result = TypeVar("Result")

SPIN_S = 50e-6
"""Longest time to poll without sleeping, in seconds: about the time to fall asleep and to be woken."""

POLL_S = 0.1
"""Longest sleep between two polls, in seconds."""

AHEAD_S = 4e-3
"""Total time of the orders that a worker is sent ahead, in seconds; longer orders are sent one at a time."""

_MAX_SKIPPED = 64

_LINE = 16
"""Cells of two cache lines: the cells of each side have lines of their own."""

_PARENT_SLEEPS, _CLOSED = range(2)
_ORDER, _COMMAND = range(2)
_DONE, _SLEEPS, _AT_END, _ENDED, _WANTS = range(_LINE, _LINE + 5)
_WORKER = 2 * _LINE

_IS_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")
"""True if the processor makes writes visible to others in program order."""


def _yield() -> None:
    os.sched_yield()


class Mailboxes:
    """Memory that parent and workers share: cells of 64 bits, and a signal for each of them.

    Args:
        ahead: largest number of orders that a worker has before it has carried out the first one.
    """

    def __init__(self, workers: int, ahead: int = 1) -> None:
        self.workers = workers
        self.ahead = ahead
        self._memory: Any = shared_bytes("the mailboxes of the workers", 8 * (_LINE + workers * _WORKER))
        self.signals = [Signal.create() for _ in range(workers)]
        self.parent_signal = Signal.create()
        self._open()

    def _open(self) -> None:
        self.cells: Any = memoryview(self._memory.numpy()).cast("B").cast("q")

    def close(self) -> None:
        """Close the signals; further calls do nothing."""
        for signal in (*self.signals, self.parent_signal):
            signal.close()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.workers, self.ahead, self._memory, self.signals, self.parent_signal

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.workers, self.ahead, self._memory, self.signals, self.parent_signal = state
        self._open()


class _SpinWait:
    """Polls without sleeping, as long as that has been successful lately.

    Yielding the processor costs little if the process that answers takes it, and milliseconds if another process
    computes; so after a failed attempt some attempts are skipped.
    """

    __slots__ = ("_skip", "_skipped")

    def __init__(self) -> None:
        self._skip = self._skipped = 0

    def spin(self, find: Callable[[], Result | None]) -> Result | None:
        """Return the result of a function, None if it is still None after `SPIN_S`."""
        if self._skip:
            self._skip -= 1
            return None
        start = perf_counter()
        while True:
            _yield()
            result, seconds = find(), perf_counter() - start
            if seconds > SPIN_S:
                self._skipped = self._skip = min(2 * self._skipped + 1, _MAX_SKIPPED)
                return result
            if result is not None:
                self._skipped = 0
                return result


class WorkerEnd:
    """The worker's end of its mailbox.

    Args:
        worker: number of the worker.
        channel_fd: descriptor that becomes readable when the parent closes the channel; None: there is none.
        may_spin: whether to poll before sleeping; threads of one process would take time from each other.
    """

    def __init__(
        self, mailboxes: Mailboxes, worker: int, channel_fd: int | None = None, may_spin: bool = True
    ) -> None:
        self._mailboxes = mailboxes  # its signals stay open
        self._cells = mailboxes.cells[_LINE + worker * _WORKER : _LINE + (worker + 1) * _WORKER]
        self._shared = mailboxes.cells[:_LINE]
        self._signal, self._parent_signal = mailboxes.signals[worker], mailboxes.parent_signal
        self._channel_fd = channel_fd
        self._number = 0
        self._max_ahead, self._mean_s = mailboxes.ahead, 0.0
        self._spin = _SpinWait() if may_spin else None
        self._poll = select.poll()
        self._poll.register(self._signal.read, select.POLLIN)
        if channel_fd is not None:
            self._poll.register(channel_fd, select.POLLIN)

    def receive(self) -> int | None:
        """Wait for an order, and return its command; None: the parent sends no more."""
        command = self._command()
        if command is None and self._spin is not None:
            command = self._spin.spin(self._command)
        return self._sleep() if command is None else command

    def _command(self) -> int | None:
        cells = self._cells
        if cells[_ORDER] == self._number:
            return None
        return cells[_COMMAND]  # type: ignore[no-any-return]

    def _sleep(self) -> int | None:
        self._cells[_SLEEPS] = 1
        try:
            while (command := self._command()) is None and not self._shared[_CLOSED]:
                for fd, _ in self._poll.poll(POLL_S * 1000):
                    if fd == self._channel_fd:
                        return None
                    self._signal.drain()
        finally:
            self._cells[_SLEEPS] = 0
        return command

    def record_time(self, seconds: float) -> None:
        """Record the time of a parley, which decides how many are sent ahead."""
        self._mean_s += (seconds - self._mean_s) / 8 if self._mean_s else seconds
        self._cells[_WANTS] = min(self._max_ahead, int(AHEAD_S / max(self._mean_s, 1e-9)))

    def finish(self, at_end: bool = False, ended: bool = False) -> None:
        """Report that an order has been carried out.

        Args:
            at_end: whether this worker has nothing left in this epoch.
            ended: whether the parley was the last one of an epoch.
        """
        cells = self._cells
        cells[_AT_END] = at_end
        if ended:
            cells[_ENDED] += 1
        if not _IS_ORDERED:
            _yield()  # passes a memory barrier in the kernel
        self._number += 1
        cells[_DONE] = self._number
        if self._shared[_PARENT_SLEEPS] and cells[_ORDER] == self._number:
            self._parent_signal.give()


class ParentEnd:
    """The parent's end of all mailboxes.

    Attributes:
        has_alarm: whether a descriptor given to `watch` was readable at the end of the last `wait`.
    """

    def __init__(self, mailboxes: Mailboxes, may_spin: bool = True) -> None:
        self._mailboxes = mailboxes
        self._cells = mailboxes.cells
        self._signal, self._signal_fd = mailboxes.parent_signal, mailboxes.parent_signal.read
        self.has_alarm = False
        self._bases = [_LINE + worker * _WORKER for worker in range(mailboxes.workers)]
        # round robin: the workers after the one that got the last order come first
        self._turns: list[list[tuple[int, int]]] = [
            [(worker, self._bases[worker]) for worker in (*range(first, mailboxes.workers), *range(first))]
            for first in (*range(1, mailboxes.workers), 0)
        ]
        self._last = mailboxes.workers - 1
        self._spin = _SpinWait() if may_spin else None
        self._poll = select.poll()
        self._poll.register(self._signal_fd, select.POLLIN)

    def watch(self, fds: Iterable[int]) -> None:
        """Also wake up when one of these descriptors becomes readable: a worker ends."""
        for fd in fds:
            self._poll.register(fd, select.POLLIN)

    def send(self, worker: int, command: int) -> None:
        """Send a command to a worker that is idle or was returned by `find_free`."""
        cells, base = self._cells, self._bases[worker]
        self._last = worker
        cells[base + _COMMAND] = command
        if not _IS_ORDERED:
            _yield()
        cells[base + _ORDER] += 1
        if cells[base + _SLEEPS]:
            self._mailboxes.signals[worker].give()

    def find_free(self, command: int, ahead: bool) -> int | None:
        """Return a worker that can be sent a command and is not at its end; None if there is none.

        Workers take turns. If all are at their end, any of them is returned once all are idle.

        Args:
            ahead: whether the worker may still have the same command to carry out.
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

    def all_idle(self) -> bool | None:
        """Return True if all workers are idle, else None."""
        return None if self.busy() else True

    def more_idle_than(self, count: int) -> bool | None:
        """Return True if more than `count` workers are idle, else None."""
        return True if len(self.idle()) > count else None

    def answer(self, worker: int) -> bool | None:
        """Return whether a worker has nothing left, None while it is busy."""
        base = self._bases[worker]
        if self._cells[base + _DONE] != self._cells[base + _ORDER]:
            return None
        return self.is_at_end(worker)

    def done(self, worker: int) -> int:
        """Return the number of orders that a worker has carried out."""
        return int(self._cells[self._bases[worker] + _DONE])

    def command(self, worker: int) -> int:
        """Return a worker's latest command."""
        return int(self._cells[self._bases[worker] + _COMMAND])

    def is_at_end(self, worker: int) -> bool:
        """Return True if a worker had nothing left after its last order."""
        return bool(self._cells[self._bases[worker] + _AT_END])

    def all_at_end(self) -> bool:
        """Return True if no worker had anything left after its last order."""
        return all(self._cells[base + _AT_END] for base in self._bases)

    def epochs_ended(self) -> int:
        """Return the number of ends of epochs that the workers have counted."""
        return sum(self._cells[base + _ENDED] for base in self._bases)

    def spin(self, find: Callable[[], Result | None]) -> Result | None:
        """Return the result of a function, None if it is still None after a short time."""
        return None if self._spin is None else self._spin.spin(find)

    def wait(self, find: Callable[[], Result | None]) -> Result | None:
        """Return the result of a function; if it is None, sleep until a worker finishes or ends, and call it again."""
        self._cells[_PARENT_SLEEPS] = 1
        try:
            if (result := find()) is not None:
                return result
            woken = self._poll.poll(POLL_S * 1000)
        finally:
            self._cells[_PARENT_SLEEPS] = 0
        self._signal.drain()
        self.has_alarm = any(fd != self._signal_fd for fd, _ in woken)
        return find()

    def close(self) -> None:
        """Ask all workers to end."""
        self._cells[_CLOSED] = 1
        for signal in self._mailboxes.signals:
            signal.give()
