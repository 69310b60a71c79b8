"""What a process does that makes batches for another one."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ..devices import generators
from ..streams.child import Channel, ParentGone
from ..streams.errors import PipeBroken, PipeClosed
from ..streams.pipe.tensor_pipe import TensorPipeWriter
from ..streams.remote import RemoteError
from .tensor_packing import split

EPOCH, WORK = "epoch", "work"
"""What a parent orders: to begin another epoch, whatever is under way; to do a piece of work in it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a worker begins an epoch with.

    Args:
        number: of the epoch; the random numbers depend on both only.
        state: what `ItemSource.state` returned when this epoch was begun before; None: the source goes on as it stands.
    """

    seed: int
    number: int
    state: Any = None


class ItemSource(Protocol):
    """Makes the items of a worker."""

    @property
    def description(self) -> Any:
        """What the parent is told when the source has been made."""

    def state(self) -> Any:
        """Return how the source stands before it begins an epoch, for `restore`; nothing if there is nothing to say."""

    def restore(self, state: Any) -> None:
        """Bring the source to where another one stood."""

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch, and return an iterator over its items; the number is what `FeedOrders` know it by."""


class Cancelled(Exception):
    """The parent wants another epoch."""


class FeedOrders:
    """What the parent wants."""

    def __init__(self, channel: Channel, epoch: int, beginning: Beginning) -> None:
        self.epoch, self.beginning = epoch, beginning
        self._channel = channel
        self._work: deque[Any] = deque()

    def _listen(self) -> None:
        kind, epoch, work = self._channel.recv()
        if kind == EPOCH:
            self.epoch, self.beginning = epoch, work
            self._work.clear()
        elif epoch == self.epoch:
            self._work.append(work)

    def check(self, epoch: int) -> None:
        """Hear what the parent has said meanwhile."""
        while self._channel.poll():
            self._listen()
        if self.epoch != epoch:
            raise Cancelled

    def work(self, epoch: int) -> Any:
        """Return the next piece of work of an epoch; waits for it."""
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
    channel: Channel,
    writer: TensorPipeWriter,
    make: Callable[[FeedOrders], ItemSource],
    epoch: int,
    beginning: Beginning,
) -> None:
    """Make items, epoch after epoch, until the parent closes the channel."""
    orders = FeedOrders(channel, epoch, beginning)
    generators.seed_process([beginning.seed, beginning.number])
    channel.note("its beginning")
    source = make(orders)
    channel.send(("ready", epoch, 0, source.description))
    while True:
        epoch, beginning = orders.epoch, orders.beginning
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
        channel.note(f"nothing, after epoch {beginning.number}")
        orders.next_epoch(epoch)


class _PipeGone(Exception):
    """The parent has closed the pipe."""


def _run_epoch(channel: Channel, writer: TensorPipeWriter, source: ItemSource, orders: FeedOrders) -> None:
    """Send how an epoch begins, its items, and what comes after the last one."""
    epoch, beginning = orders.epoch, orders.beginning
    what = f"epoch {beginning.number}, batch"
    channel.note(what, 0)
    if beginning.state is not None:
        source.restore(beginning.state)
    channel.send(("begun", epoch, 0, source.state()))
    generators.seed_process([beginning.seed, beginning.number])
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
