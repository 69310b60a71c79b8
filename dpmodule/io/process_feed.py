"""Batches from worker processes, in an order independent of their speed."""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
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
"""Result of `WorkerFeed.take` at the end of the epoch."""

_ARRIVAL_S = 5.0
_MAX_SLOTS = 64


@dataclass(frozen=True, slots=True)
class EpochStartOrder:
    """State in which a worker begins an epoch.

    Args:
        seed: with `number`, determines the random numbers.
        number: number of the epoch.
        state: result of `ItemSource.state` when this epoch began before; None: the source keeps its state.
    """

    seed: int
    number: int
    state: Any = None


class ItemSource(Protocol):
    """Source of the items of a worker."""

    @property
    def description(self) -> Any:
        """Description that the parent receives after the source is created."""

    def state(self) -> Any:
        """Return the state of the source before it begins an epoch, for `restore`; may be None."""

    def restore(self, state: Any) -> None:
        """Restore a result of `state`."""

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch, and return an iterator over its items; `FeedCommands` uses the number."""


class Cancelled(Exception):
    """The parent has begun another epoch."""


class FeedCommands:
    """The epochs that a parent lets its worker begin."""

    def __init__(self, channel: Channel, epoch: int, beginning: EpochStartOrder) -> None:
        self.epoch, self.beginning = epoch, beginning
        self._channel = channel

    def _receive_command(self) -> None:
        self.epoch, self.beginning = self._channel.recv()

    def check(self, epoch: int) -> None:
        """Process pending commands; raise `Cancelled` if the epoch has changed."""
        while self._channel.poll():
            self._receive_command()
        if self.epoch != epoch:
            raise Cancelled

    def next_epoch(self, epoch: int) -> None:
        """Wait until the parent begins another epoch."""
        while self.epoch == epoch:
            self._receive_command()


def serve(
    channel: Channel,
    writer: TensorPipeWriter,
    make: Callable[[FeedCommands], ItemSource],
    epoch: int,
    beginning: EpochStartOrder,
) -> None:
    """Make items, epoch after epoch, until the parent closes the channel."""
    commands = FeedCommands(channel, epoch, beginning)
    generators.seed_process([beginning.seed, beginning.number])
    channel.note("its beginning")
    source = make(commands)
    channel.send(("ready", epoch, 0, source.description))
    while True:
        epoch, beginning = commands.epoch, commands.beginning
        try:
            _run_epoch(channel, writer, source, commands)
        except Cancelled:
            pass
        except (ParentGone, SystemExit):
            raise
        except BaseException as error:  # the parent raises every error
            channel.send(("error", epoch, 0, RemoteError.of(error, skip=2)))
        channel.note(f"nothing, after epoch {beginning.number}")
        commands.next_epoch(epoch)


def _run_epoch(
    channel: Channel, writer: TensorPipeWriter, source: ItemSource, commands: FeedCommands
) -> None:
    """Send the state at the start of an epoch, its items, and its end."""
    epoch, beginning = commands.epoch, commands.beginning
    what = f"epoch {beginning.number}, batch"
    channel.note(what, 0)
    if beginning.state is not None:
        source.restore(beginning.state)
    channel.send(("begun", epoch, 0, source.state()))
    generators.seed_process([beginning.seed, beginning.number])
    items = source.begin(epoch)
    for number in itertools.count():
        commands.check(epoch)
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
    """Options of the workers of a feed.

    Args:
        slots: number of items of each worker that may be ready or in use at a time.
        timeout_s: time limit of an item in seconds; None: no limit.
    """

    slots: int
    start_method: str
    timeout_s: float | None
    num_threads: int
    seed: int

    @property
    def start_timeout_s(self) -> float | None:
        """Time limit for creating a source, in seconds; unless forked, a worker imports torch first."""
        if self.timeout_s is None or self.start_method == "fork":
            return self.timeout_s
        return self.timeout_s + START_S

    def check(self, owner: str) -> None:
        """Refuse invalid numbers."""
        check_count(owner, "slots", self.slots, high=_MAX_SLOTS)
        check_seconds(owner, "timeout_s", self.timeout_s, positive=True)
        check_count(owner, "num_threads", self.num_threads)
        check_count(owner, "seed", self.seed, low=0)


@dataclass
class _Worker:
    """One worker process and the pipe that transfers the tensors of its items."""

    child: ChildProcess
    reader: TensorPipeReader
    description: Any = None
    ready: bool = False
    began: tuple[int, Any] = (-1, None)
    """Last epoch that the worker began, and the state of its source before."""

    @property
    def dead(self) -> bool:
        return self.child.failure() is not None or self.child.finished

    def close(self) -> None:
        self.child.ask_to_end()
        self.reader.close()


class WorkerFeed:
    """Items from worker processes, taken in turn.

    The feed takes one item of each worker per round, and skips workers whose epoch has ended. An error is raised again
    until the next epoch. The workers live as long as the feed; an epoch begins with replacing dead workers.
    """

    def __init__(self, name: str, makes: Sequence[Make], options: FeedOptions) -> None:
        self._makes = list(makes)
        self._options = options
        self._name = name
        self._pid = os.getpid()
        self._epoch = 0  # counts the epochs begun here, and identifies them in messages
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
                    self._next_message(worker)
        except BaseException:
            self.close()
            raise
        self._turns = list(range(len(self._workers)))

    def _beginning(self, index: int, state: Any = None) -> EpochStartOrder:
        """Return the state in which a worker begins this epoch."""
        return EpochStartOrder(self._seed * len(self._makes) + index, self._number, state)

    def _start(self, index: int, state: Any = None) -> _Worker:
        options = self._options
        reader, writer = tensor_pipe(slots=options.slots)
        try:
            with contextlib.suppress(PipeTimeout):
                # makes this process the reader, so that workers forked later release their copies
                reader.recv(timeout=0)
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
        """Description of each worker's source."""
        return [worker.description for worker in self._workers]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.child.pid for worker in self._workers]

    @property
    def taken(self) -> int:
        """Number of items of the epoch that have been taken."""
        return self._taken

    def check(self) -> None:
        """Raise an error if the feed is closed or belongs to another process."""
        if os.getpid() != self._pid:
            raise StateError(f"a {self._name} cannot be used in a forked child; make a new one there")
        if not self._finalizer.alive:
            raise StateError(f"{self._name} is closed; make a new one")

    def begin(self) -> None:
        """Begin a new epoch: drop pending items, and replace dead workers."""
        self._begin(self._number + 1, self._seed, [None] * len(self._makes))

    def begin_again(self, epoch: Mapping[str, Any], states: Sequence[Any] | None = None) -> None:
        """Begin the epoch of another feed.

        Args:
            states: states of its workers' sources when the epoch began.
        """
        unchanged = [None] * len(self._makes)
        self._begin(epoch["number"], epoch["seed"], unchanged if states is None else states)

    def epoch_dict(self) -> dict[str, int]:
        """Return the number and the seed of this epoch, and the number of workers."""
        return {"number": self._number, "seed": self._seed, "workers": len(self._makes)}

    def states(self) -> list[Any]:
        """Return the state of each source at the start of this epoch; waits until all workers have begun it."""
        self.check()
        for worker in self._workers:
            while worker.began[0] != self._epoch:
                self._next_message(worker)
        return [worker.began[1] for worker in self._workers]

    def _begin(self, number: int, seed: int, states: Sequence[Any]) -> None:
        self.check()
        self._epoch += 1
        self._number, self._seed, self._taken = number, seed, 0
        self._error = None
        self._turns = list(range(len(self._workers)))
        for index, worker in enumerate(self._workers):
            if worker.dead or not self._send(index, self._beginning(index, states[index])):
                worker.close()
                self._supervisor.drop(worker.child)
                self._workers[index] = self._start(index, states[index])

    def _send(self, index: int, beginning: EpochStartOrder) -> bool:
        try:
            self._workers[index].child.send((self._epoch, beginning), self._options.timeout_s)
        except Exception:  # the worker has ended; `take` raises the cause in its turn
            return False
        return True

    def take(self) -> Any:
        """Return the next item; `END` after the last one."""
        self.check()
        if self._error is not None:
            raise self._error.with_traceback(None) from self._error.__cause__
        while self._turns:
            try:
                item = self._receive(self._workers[self._turns[0]])
            except (KeyboardInterrupt, SystemExit):  # of this process: the item is still to come
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
            kind, data, tensors = self._next_message(worker)
            if kind == "end":
                return END
            if kind == "error":
                # stored here, whatever its type, since the worker sends it only once
                self._error = data.restore(repr(worker.child))
                raise self._error
            if tensors is not None:
                if tensors and worker.reader.exhausted:  # the caller holds all slots
                    tensors = copies(tensors)
                return join_object(data, tensors)

    def _next_message(self, worker: _Worker) -> tuple[str, Any, list[torch.Tensor] | None]:
        """Return the next message of a worker: kind, pickled data and tensors; kind "" if it is outdated."""
        options = self._options
        kind, epoch, number, data = worker.child.recv(
            options.timeout_s if worker.ready else options.start_timeout_s
        )
        if kind == "ready":
            worker.description, worker.ready = data, True
            return "", None, None
        tensors = self._tensors(worker, number) if kind == "item" else None
        if epoch != self._epoch:
            del tensors  # the worker may wait for their slot
            return "", None, None
        if kind == "begun":
            worker.began = epoch, data
        return kind, data, tensors

    def _tensors(self, worker: _Worker, number: int) -> list[torch.Tensor] | None:
        """Return the tensors of an item; None if Ctrl-C interrupted between the two parts of the item."""
        reader, tensors = worker.reader, None
        try:
            while reader.received < number:
                tensors = reader.recv(_ARRIVAL_S)
        except (PipeClosed, PipeBroken):
            raise worker.child.failure(1.0) or WorkerDied(f"{worker.child!r} lost its pipe") from None
        return tensors

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
