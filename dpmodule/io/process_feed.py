"""Batches from worker processes, in an order that does not depend on their speed."""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .._devices import generators
from ..base import StateError
from ..streams.checks import check_count, check_seconds
from ..streams.child import Channel, ParentGone
from ..streams.errors import PipeBroken, PipeClosed, PipeTimeout, WorkerDied
from ..streams.messages import RemoteError
from ..streams.nested import join_object, split_object
from ..streams.pipe.tensor_pipe import TensorPipeReader, TensorPipeWriter, tensor_pipe
from ..streams.process import ChildProcess
from ..streams.supervisor import START_S, Supervisor

END = object()
"""What `WorkerFeed.take` returns at the end of the epoch."""

_ARRIVAL_S = 5.0
_MAX_SLOTS = 64

EPOCH, WORK = "epoch", "work"
"""What a parent orders: to begin another epoch, whatever is under way; to do a piece of work in it."""


@dataclass(frozen=True, slots=True)
class EpochStartOrder:
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
        """Begin an epoch, and return an iterator over its items; the number is what `FeedCommands` know it by."""


class Cancelled(Exception):
    """The parent wants another epoch."""


class FeedCommands:
    """What the parent wants."""

    def __init__(self, channel: Channel, epoch: int, beginning: EpochStartOrder) -> None:
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
    make: Callable[[FeedCommands], ItemSource],
    epoch: int,
    beginning: EpochStartOrder,
) -> None:
    """Make items, epoch after epoch, until the parent closes the channel."""
    orders = FeedCommands(channel, epoch, beginning)
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
        except (ParentGone, SystemExit):
            raise
        except BaseException as error:  # the parent raises it, whatever it is
            channel.send(("error", epoch, 0, RemoteError.of(error, skip=2)))
        channel.note(f"nothing, after epoch {beginning.number}")
        orders.next_epoch(epoch)


def _run_epoch(channel: Channel, writer: TensorPipeWriter, source: ItemSource, orders: FeedCommands) -> None:
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
        data, tensors = split_object(item)
        try:
            writer.send(tensors)
        except (PipeClosed, PipeBroken):
            raise ParentGone("the parent has closed the pipe") from None
        channel.send(("item", epoch, writer.stats.sent, data))
        del item, tensors


Make = Callable[[FeedCommands], ItemSource]


@dataclass(frozen=True)
class FeedOptions:
    """How the workers of a feed are run.

    Args:
        slots: how many of each worker's items may be ready or in use at a time.
        timeout_s: how long an item may take, in seconds; None: as long as it takes.
    """

    slots: int
    start_method: str
    timeout_s: float | None
    num_threads: int
    seed: int

    @property
    def start_timeout_s(self) -> float | None:
        """How long a worker may take to make its source, in seconds: it imports torch first unless it is forked."""
        if self.timeout_s is None or self.start_method == "fork":
            return self.timeout_s
        return self.timeout_s + START_S

    def check(self, owner: str) -> None:
        """Refuse numbers that make no sense."""
        check_count(owner, "slots", self.slots, high=_MAX_SLOTS)
        check_seconds(owner, "timeout_s", self.timeout_s, positive=True)
        check_count(owner, "num_threads", self.num_threads)
        check_count(owner, "seed", self.seed, low=0)


@dataclass
class _Worker:
    """One worker process and the pipe that its items' tensors come by."""

    child: ChildProcess
    reader: TensorPipeReader
    description: Any = None
    ready: bool = False
    began: tuple[int, Any] = (-1, None)
    """The last epoch that it has begun, and how its source stood before."""

    @property
    def dead(self) -> bool:
        return self.child.failure() is not None or self.child.finished

    def close(self) -> None:
        self.child.ask_to_end()
        self.reader.close()


class WorkerFeed:
    """Takes items from worker processes, from each in turn.

    Each worker makes its items in its own order; the feed takes one of each, round after round, and leaves out those
    that have ended. Errors stay until the next epoch. The workers live as long as the feed; one that has died is
    replaced when an epoch begins.
    """

    def __init__(self, name: str, makes: Sequence[Make], options: FeedOptions) -> None:
        self._makes = list(makes)
        self._options = options
        self._name = name
        self._pid = os.getpid()
        self._epoch = 0  # counts what has been begun here; workers know their epochs by it
        self._number, self._seed = 0, options.seed
        self._taken = 0
        self._error: BaseException | None = None
        self._supervisor = Supervisor(
            name, options.start_method, options.timeout_s, num_threads=options.num_threads
        )
        self._workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _close, self._workers, self._supervisor)
        try:
            for index in range(len(self._makes)):
                self._workers.append(self._start(index))
            for worker in self._workers:
                while not worker.ready:
                    self._hear(worker)
        except BaseException:
            self.close()
            raise
        self._turns = list(range(len(self._workers)))

    def _beginning(self, index: int, state: Any = None) -> EpochStartOrder:
        """Return what a worker begins this epoch with."""
        return EpochStartOrder(self._seed * len(self._makes) + index, self._number, state)

    def _start(self, index: int, state: Any = None) -> _Worker:
        options = self._options
        reader, writer = tensor_pipe(slots=options.slots)
        try:
            with contextlib.suppress(PipeTimeout):
                reader.recv(
                    timeout=0
                )  # this process is the reader: workers forked later let go of their copies
            name, beginning = f"{self._name}-{index}", self._beginning(index, state)
            child = self._supervisor.start(
                serve, writer, self._makes[index], self._epoch, beginning, name=name, index=index
            )
            writer.hand_over(child.pid)
        except BaseException:
            reader.close()
            writer.close()
            raise
        return _Worker(child, reader)

    def __len__(self) -> int:
        return len(self._makes)

    @property
    def descriptions(self) -> list[Any]:
        """What each worker said about its source."""
        return [worker.description for worker in self._workers]

    @property
    def pids(self) -> list[int]:
        """The workers' processes."""
        return [worker.child.pid for worker in self._workers]

    @property
    def epoch(self) -> int:
        """How many epochs have been begun here before this one."""
        return self._epoch

    @property
    def taken(self) -> int:
        """How many items of the epoch have been taken."""
        return self._taken

    @property
    def slots(self) -> int:
        """How many of each worker's items may be ready or in use at a time."""
        return self._options.slots

    def check(self) -> None:
        """Refuse to be used."""
        if os.getpid() != self._pid:
            raise StateError(f"a {self._name} cannot be used in a forked child; make a new one there")
        if not self._finalizer.alive:
            raise StateError(f"{self._name} is closed; make a new one")

    def begin(self) -> None:
        """Begin a new epoch: drop what the workers have ready, and replace those that have died."""
        self._begin(self._number + 1, self._seed, [None] * len(self._makes))

    def begin_again(self, epoch: Mapping[str, Any], states: Sequence[Any] | None = None) -> None:
        """Begin the epoch that another feed was in.

        Args:
            states: how its workers' sources stood when they began it.
        """
        none = [None] * len(self._makes)
        self._begin(epoch["number"], epoch["seed"], none if states is None else states)

    def epoch_dict(self) -> dict[str, int]:
        """Return what this epoch's random numbers depend on, and the number of workers."""
        return {"number": self._number, "seed": self._seed, "workers": len(self._makes)}

    def states(self) -> list[Any]:
        """Return how each worker's source stood when it began this epoch; waits until all have begun it."""
        self.check()
        for worker in self._workers:
            while worker.began[0] != self._epoch:
                self._hear(worker)
        return [worker.began[1] for worker in self._workers]

    def _begin(self, number: int, seed: int, states: Sequence[Any]) -> None:
        self.check()
        self._epoch += 1
        self._number, self._seed, self._taken = number, seed, 0
        self._error = None
        self._turns = list(range(len(self._workers)))
        for index, worker in enumerate(self._workers):
            if worker.dead or not self._order(index, EPOCH, self._beginning(index, states[index])):
                worker.close()
                self._supervisor.drop(worker.child)
                self._workers[index] = self._start(index, states[index])

    def work(self, index: int, work: Any) -> None:
        """Give a worker a piece of work for this epoch; what became of a dead one `take` tells."""
        self.check()
        self._order(index, WORK, work)

    def _order(self, index: int, kind: str, work: Any) -> bool:
        try:
            self._workers[index].child.send((kind, self._epoch, work), self._options.timeout_s)
        except Exception:  # whatever ended the worker: `take` raises it when the worker's turn comes
            return False
        return True

    def take(self) -> Any:
        """Return the next item, `END` after the last one."""
        self.check()
        if self._error is not None:
            raise self._error.with_traceback(None) from self._error.__cause__
        while self._turns:
            try:
                item = self._receive(self._workers[self._turns[0]])
            except (KeyboardInterrupt, SystemExit):  # of this process: what was asked for is still to come
                raise
            except BaseException as error:
                self._error = error
                raise
            if item is END:
                self._turns.pop(0)
                continue
            self._turns.append(self._turns.pop(0))
            self._taken += 1
            return item
        return END

    def _receive(self, worker: _Worker) -> Any:
        while True:
            kind, data, tensors = self._hear(worker)
            if kind == "end":
                return END
            if kind == "error":
                self._error = data.restore(
                    repr(worker.child)
                )  # here, whatever its type: the worker says it once
                raise self._error
            if tensors is not None:
                if tensors and worker.reader.exhausted:  # kept by the caller until the worker could not go on
                    tensors = copies(tensors)
                return join_object(data, tensors)

    def _hear(self, worker: _Worker) -> tuple[str, Any, list[torch.Tensor] | None]:
        """Return the next that a worker says: its kind, what is pickled, and tensors; "" for what is out of date."""
        options = self._options
        kind, epoch, number, data = worker.child.recv(
            options.timeout_s if worker.ready else options.start_timeout_s
        )
        if kind == "ready":
            worker.description, worker.ready = data, True
            return "", None, None
        tensors = self._tensors(worker, number) if kind == "item" else None
        if epoch != self._epoch:
            del tensors  # the worker may wait for their slot, it being its only one
            return "", None, None
        if kind == "begun":
            worker.began = epoch, data
        return kind, data, tensors

    def _tensors(self, worker: _Worker, number: int) -> list[torch.Tensor] | None:
        """Return the tensors of the item with this number; None if Ctrl-C has come between the two parts of an item."""
        reader, found = worker.reader, None
        try:
            while reader.received < number:
                found = reader.recv(_ARRIVAL_S)
        except (PipeClosed, PipeBroken):
            raise worker.child.failure(1.0) or WorkerDied(f"{worker.child!r} lost its pipe") from None
        return found

    def close(self) -> None:
        """End the workers; further calls do nothing."""
        self._finalizer()


def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of tensors."""
    return [tensor.clone() for tensor in tensors]


def _close(workers: list[_Worker], supervisor: Supervisor) -> None:
    for worker in workers:
        worker.close()
    supervisor.close()
