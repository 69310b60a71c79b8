"""What a process does that makes batches for another one."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .. import generators
from ..streams.child import Channel, ParentGone
from ..streams.errors import PipeBroken, PipeClosed
from ..streams.pipe.tensor_pipe import TensorPipeWriter
from ..streams.remote import RemoteError
from .carriage import split

__all__ = ["EPOCH", "WORK", "Orders", "Source", "serve"]

EPOCH, WORK = "epoch", "work"
"""What a parent orders: to begin another epoch, whatever is under way; to do a piece of work in it."""


class Source(Protocol):
    """Makes the items of a worker."""

    @property
    def description(self) -> Any:
        """What the parent is told when the source has been made."""

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch, numbered from 0, and return an iterator over its items."""


class Cancelled(Exception):
    """The parent wants another epoch."""


class Orders:
    """What the parent wants.

    Args:
        channel: leads to the parent.
        epoch: the epoch to begin with.
    """

    def __init__(self, channel: Channel, epoch: int) -> None:
        self.epoch = epoch
        self._channel = channel
        self._work: deque[Any] = deque()

    def _listen(self) -> None:
        kind, epoch, work = self._channel.recv()
        if kind == EPOCH:
            self.epoch = epoch
            self._work.clear()
        elif epoch == self.epoch:
            self._work.append(work)

    def check(self, epoch: int) -> None:
        """Hear what the parent has said meanwhile.

        Raises:
            Cancelled: it does not want this epoch any more.
        """
        while self._channel.poll():
            self._listen()
        if self.epoch != epoch:
            raise Cancelled

    def work(self, epoch: int) -> Any:
        """Return the next piece of work of an epoch; waits for it.

        Raises:
            Cancelled: the parent does not want this epoch any more.
        """
        while self.epoch == epoch and not self._work:
            self._listen()
        if self.epoch != epoch:
            raise Cancelled
        return self._work.popleft()

    def next_epoch(self, epoch: int) -> None:
        """Wait until the parent wants another epoch than this one."""
        while self.epoch == epoch:
            self._listen()


def serve(
    channel: Channel, writer: TensorPipeWriter, make: Callable[[Orders], Source], seed: int, epoch: int
) -> None:
    """Make items, epoch after epoch, until the parent closes the channel.

    Args:
        channel: tells the parent about every item.
        writer: takes the items' tensors.
        make: makes the source.
        seed: of this worker; every epoch's random numbers depend on it and on the epoch's number only.
        epoch: the epoch to begin with.
    """
    orders = Orders(channel, epoch)
    generators.seed_process([seed, epoch])
    channel.note("its beginning")
    source = make(orders)
    channel.send(("ready", epoch, 0, source.description))
    while True:
        epoch = orders.epoch
        generators.seed_process([seed, epoch])
        try:
            _run_epoch(channel, writer, source, orders)
        except Cancelled:
            pass
        except _PipeGone:
            return
        except (ParentGone, SystemExit):
            raise
        except BaseException as error:  # the parent raises it, whatever it is
            channel.send(("error", epoch, 0, RemoteError.of(error, skip=2)))
        channel.note(f"nothing, after epoch {epoch}")
        orders.next_epoch(epoch)


class _PipeGone(Exception):
    """The parent has closed the pipe."""


def _run_epoch(channel: Channel, writer: TensorPipeWriter, source: Source, orders: Orders) -> None:
    """Send the items of an epoch, and what comes after the last one."""
    epoch = orders.epoch
    what = f"epoch {epoch}, batch"
    channel.note(what, 0)
    items = source.begin(epoch)
    for number in itertools.count():
        orders.check(epoch)
        channel.note(what, number)
        try:
            item = next(items)
        except StopIteration:
            channel.send(("end", epoch, 0, None))
            return
        data, tensors = split(item)
        try:
            writer.send(tensors)
        except (PipeClosed, PipeBroken):
            raise _PipeGone from None
        channel.send(("item", epoch, writer.stats.sent, data))
        del item, tensors
