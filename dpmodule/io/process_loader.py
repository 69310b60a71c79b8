"""Items from worker processes, for `DataLoaderIter` and `ProcessPrefetchingIter`."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch.utils.data import Dataset, get_worker_info

from .. import streams
from .._devices import generators
from ..base import ArgumentError, StateError
from ..streams.checks import check_count, check_seconds
from ..streams.errors import UnpicklableError, WorkerDied, WorkerStuck
from ..streams.launch import START_S, check_start_method
from ..streams.messages import RemoteError

_MAX_SLOTS = 64

Load = Callable[[Any], Any]
"""Function that returns the item of indices; the next one for None. It raises StopIteration after the last one."""


@dataclass(frozen=True)
class WorkerOptions:
    """Options of worker processes.

    Args:
        slots: number of items of each worker that may be ready or in work at a time.
        timeout_s: time limit of an item in seconds; None: no limit.
        num_threads: number of threads that torch may use in each worker.
        seed: with the numbers of the worker and the epoch, it determines random numbers.
    """

    slots: int
    start_method: str
    timeout_s: float | None
    num_threads: int
    seed: int

    @property
    def start_timeout_s(self) -> float | None:
        """Time limit of the first item in seconds; unless forked, a worker imports torch before it."""
        if self.timeout_s is None or self.start_method == "fork":
            return self.timeout_s
        return self.timeout_s + START_S

    def check(self, owner: str) -> None:
        """Refuse invalid numbers."""
        check_count(owner, "slots", self.slots, high=_MAX_SLOTS)
        check_start_method(self.start_method)
        check_seconds(owner, "timeout_s", self.timeout_s, positive=True)
        check_count(owner, "num_threads", self.num_threads)
        check_count(owner, "seed", self.seed, low=0)


class ItemSource(Protocol):
    """What the workers load; each has a copy."""

    def prepare(self, state: Any) -> Any:
        """Prepare an epoch, and return what the parent needs to know of it.

        Args:
            state: state in which the epoch begins; None: the present one.
        """

    def start(self) -> Load:
        """Start the epoch."""


class _Order(NamedTuple):
    """What a worker is to do: load an item, or prepare an epoch.

    Args:
        indices: of the item; None for the next one.
        state: pickle of the state in which the epoch begins.
    """

    seed: int
    epoch: int
    indices: Any = None
    prepares: bool = False
    state: bytes = b""


class _Answer(NamedTuple):
    """What a worker sends: an item, the end of its epoch, or an error."""

    item: Any = None
    is_end: bool = False
    error: RemoteError | None = None


class _Orders:
    """The orders of an epoch, of which each worker gets one in turn.

    Args:
        indices: iterable over the indices of each item; None if the workers know them.
    """

    def __init__(self, indices: Iterable[Any] | None, seed: int, workers: int) -> None:
        self.indices, self.seed, self.workers = indices, seed, workers
        self.epoch = -1
        self.states: list[bytes] = []
        self.error: BaseException | None = None

    def begin(self, states: Sequence[Any] | None) -> None:
        """Begin another epoch."""
        # torch's queue would send tensors by files
        self.states = [pickle.dumps(state) for state in states or [None] * self.workers]
        self.error = None

    def __iter__(self) -> Iterator[_Order]:
        order = partial(_Order, self.seed, self.epoch)
        yield from (order(prepares=True, state=state) for state in self.states)
        if self.indices is None:
            yield from itertools.repeat(order())
        else:
            try:
                yield from map(order, self.indices)
            except Exception as error:
                # any error of the sampler, which is raised after the items before it
                self.error = error


class _OrderAnswers(Dataset[_Answer]):
    """The answers to orders, in a worker; it has random numbers of its own in every epoch."""

    def __init__(self, source: ItemSource) -> None:
        self._source = source
        self._load: Load | None = None

    def __getitem__(self, order: _Order) -> _Answer:
        try:
            if order.prepares:
                self._load = None
                _seed(order)
                return _Answer(self._source.prepare(pickle.loads(order.state)))
            if self._load is None:
                _seed(order)
                self._load = self._source.start()
            return _Answer(self._load(order.indices))
        except BaseException as error:
            self._load = _no_item
            if isinstance(error, StopIteration) and order.indices is None:
                return _Answer(is_end=True)
            return _Answer(error=RemoteError.of(error, skip=2))


def _seed(order: _Order) -> None:
    info: Any = get_worker_info()
    generators.seed_process([order.seed * info.num_workers + info.id, order.epoch])


def _no_item(indices: Any) -> NoReturn:
    raise StopIteration


def _unchanged(answer: Any) -> Any:
    return answer


def _begin_worker(
    init: Callable[[int], object] | None, num_threads: int, seed: int, count: int, index: int
) -> None:
    """Prepare a worker before it uses the source."""
    torch.set_num_threads(num_threads)
    generators.seed_process([seed * count + index, 0])
    if init is not None:
        init(index)


@contextlib.contextmanager
def _worker_errors() -> Iterator[None]:
    """Raise the cause of torch's error if a worker has died or is stuck."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, (WorkerDied, WorkerStuck)):
            raise error.__cause__ from None
        raise


class ProcessLoader:
    """Iterable over the items that the workers of a `streams.DataLoader` load, in its order.

    The workers take turns; those whose epoch has ended are skipped. They stay from epoch to epoch, until one of them
    dies.

    Args:
        owner: name of the class that uses the loader, for messages.
        indices: iterable over the indices of each item, iterated every epoch; None if the workers know them.
    """

    def __init__(
        self,
        owner: str,
        source: ItemSource,
        num_workers: int,
        options: WorkerOptions,
        indices: Iterable[Any] | None = None,
        worker_init: Callable[[int], object] | None = None,
    ) -> None:
        self._owner, self._options, self._pid = owner, options, os.getpid()
        self._orders = _Orders(indices, options.seed, num_workers)
        self._make = partial(
            streams.DataLoader,
            _OrderAnswers(source),
            batch_size=None,
            sampler=self._orders,
            num_workers=num_workers,
            collate_fn=_unchanged,
            timeout=options.start_timeout_s or 0,
            worker_init_fn=partial(
                _begin_worker, worker_init, options.num_threads, options.seed, num_workers
            ),
            multiprocessing_context=options.start_method,
            prefetch_factor=options.slots,
            persistent_workers=True,
            generator=torch.Generator(),  # otherwise torch draws seeds from its default generator
        )
        self._loader: streams.DataLoader[_Answer] | None = None
        self._resumed: tuple[Mapping[str, Any], Sequence[Any] | None] | None = None
        self._is_closed = False
        self.iteration = 0

    def state_dict(self, begun: bool) -> dict[str, Any]:
        """Return the epoch that the next iteration must begin to yield the same items.

        Args:
            begun: True for the current epoch, False for the next.
        """
        orders = self._orders
        return {"number": orders.epoch + (not begun), "seed": orders.seed, "workers": orders.workers}

    def load_state_dict(self, epoch: Mapping[str, Any], states: Sequence[Any] | None = None) -> None:
        """Begin an epoch of another loader in the next iteration.

        Args:
            states: states of the workers' sources in which it begins.
        """
        if epoch["workers"] != self._orders.workers:
            raise ArgumentError(
                f"{self._owner}: the state was saved with {epoch['workers']} workers, but here are "
                f"{self._orders.workers}; give num_workers={epoch['workers']}"
            )
        self._resumed = epoch, states

    @property
    def index_source(self) -> Any:
        """Iterable over the indices of an epoch, in this process."""
        return self._orders.indices

    @property
    def _workers(self) -> list[Any]:
        iterator: Any = None if self._loader is None else self._loader._iterator
        return [] if iterator is None else iterator._workers

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, in order."""
        return [worker.pid for worker in self._workers]

    def check(self) -> None:
        """Raise an error if the loader is closed or belongs to another process."""
        if os.getpid() != self._pid:
            raise StateError(f"a {self._owner} cannot be used in a forked child; make a new one there")
        if self._is_closed:
            raise StateError(f"{self._owner} is closed; make a new one")

    def __iter__(self) -> ProcessEpoch:
        """Begin an epoch."""
        self.check()
        epoch, states = self._resumed or ({"number": self._orders.epoch + 1, "seed": self._orders.seed}, None)
        self._orders.epoch, self._orders.seed, self._resumed = epoch["number"], epoch["seed"], None
        self._orders.begin(states)
        self.iteration += 1
        is_new = self._loader is None
        try:
            try:
                found = self._epoch()
            except WorkerDied:
                if is_new:
                    raise
                self.end_workers()  # one of them died before this epoch
                is_new, found = True, self._epoch()
        except BaseException:
            self.end_workers()
            raise
        if is_new:
            found.limit_time(self._options.timeout_s)
        return found

    def _epoch(self) -> ProcessEpoch:
        return ProcessEpoch(self, self._owner, self._items(), self._orders)

    def _items(self) -> Any:
        try:
            with warnings.catch_warnings():  # torch's, of errors that are raised, and of few processors
                warnings.filterwarnings("ignore", "Got pickle error|This DataLoader will create")
                if self._loader is None:
                    self._loader = self._make()
                    self._loader.report_as(self._owner, skipped=self._orders.workers)
                with _worker_errors():
                    return iter(self._loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UnpicklableError(
                f"{self._owner}: what the workers load cannot be sent to another process: {error}; define it at "
                'the top level of a module, or give start_method="fork"'
            ) from error

    def end_workers(self) -> None:
        """End the workers; the next iteration starts others."""
        loader, self._loader = self._loader, None
        iterator: Any = None if loader is None else loader._iterator
        if iterator is not None:
            iterator._shutdown_workers()

    def close(self) -> None:
        """End the workers; further calls do nothing."""
        self._is_closed = True
        self.end_workers()


class ProcessEpoch:
    """One iteration of a `ProcessLoader`, which begins when all workers have prepared it.

    An error is raised again until the next iteration.
    """

    def __init__(self, loader: ProcessLoader, owner: str, items: Any, orders: _Orders) -> None:
        self._loader, self._owner, self._answers, self._orders = loader, owner, items, orders
        self._iteration = loader.iteration
        self._turns = itertools.cycle(range(orders.workers))
        self._ended: set[int] = set()
        self._error: BaseException | None = None
        self.prepared = [self._next_answer().item for _ in range(orders.workers)]
        """Results of `ItemSource.prepare`, by worker."""

    def limit_time(self, seconds: float | None) -> None:
        """Change the time limit of an item."""
        self._answers._timeout = seconds or 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._loader.check()
        if self._iteration != self._loader.iteration:
            raise StateError("this iteration is over, since another epoch has begun")
        if self._error is not None:
            raise self._error.with_traceback(None) from self._error.__cause__
        try:
            return self._next()
        except (StopIteration, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._error = error
            raise

    def _next(self) -> Any:
        while len(self._ended) < self._orders.workers:
            try:
                answer = self._next_answer()
            except StopIteration:
                break
            if not answer.is_end:
                return answer.item
        if self._orders.error is not None:
            raise self._orders.error
        raise StopIteration

    def _next_answer(self) -> _Answer:
        try:
            with _worker_errors():
                answer: _Answer = next(self._answers)
        except (RuntimeError, WorkerDied, WorkerStuck):
            self._loader.end_workers()
            raise
        worker = next(self._turns)
        if answer.is_end:
            self._ended.add(worker)
        if answer.error is not None:
            self._error = answer.error.restore(f"worker {worker} of {self._owner}")
            raise self._error
        return answer
