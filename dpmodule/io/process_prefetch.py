"""`ProcessPrefetchingIter`: read iterators in worker processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, StateError
from ..streams.checks import check_count
from .convert import EpochStart
from .desc import DataDesc
from .iterator import CurrentBatch, DataBatch, DataIter, check_part, check_state
from .process_feed import END, FeedCommands, FeedOptions, WorkerFeed

_logger = logging.getLogger(__name__)

Factory = Callable[..., DataIter]


class ProcessPrefetchingIter(CurrentBatch, Closing):
    """Read iterators in worker processes, which decode while the network computes; batches come through shared memory.

    Each worker makes an iterator of its own and reads one part of the examples. Batches are taken from the workers in
    turn, one of each, so that their order depends on neither the workers' speed nor the load; workers whose part is
    over are left out. Reading starts at once and again after each `reset`, for which the processes stay.

    A batch uses the memory of a slot, which its worker reuses when nothing refers to the batch any longer: neither
    an array, nor a view of one, nor a module that has just computed with it. Whoever keeps as many batches of a worker
    as it has slots gets copies from then on, so that nothing ever waits for that. `Module.fit` holds two batches at a
    time: with one worker, three slots give it every batch without a copy; with several, two slots do.

    An error in an iterator is raised by the `next` that would have returned its batch, with its type, its cause being
    the traceback it had in the worker, and again until `reset`. A worker that dies raises `WorkerDied`, which names it,
    its process, the signal and the batch it was making; `reset` starts another in its place. Leaving the ``with``
    block, dropping the object, and the end of the process, of whatever kind, end the workers.

    Args:
        factory: makes an iterator; is called in each worker as ``factory(part_index=i, num_parts=num_workers)``, as the
            iterators over files are, such as ``functools.partial(mx.io.CSVIter, data_csv=...)``. Or a list of
            factories, one per worker, each called without arguments. Unless `start_method` is "fork" they have to be
            defined at the top level of a module.
        num_workers: number of processes (default: 1, or as many as there are factories).
        slots: how many batches of each worker may be ready or in use at a time.
        start_method: "spawn", "fork" or "forkserver"; see `streams.Supervisor`.
        timeout_s: how long a batch may take, in seconds; a worker that takes longer is killed, and `WorkerStuck` shows
            its stack. None: as long as it takes.
        num_threads: how many threads torch may use in each worker.
        seed: seed of Python's, NumPy's, torch's and `mx.random`'s numbers in the workers, combined with the numbers of
            the worker and the epoch (default: drawn, so that ``mx.random.seed`` repeats it).

    Raises:
        ArgumentError: a number that makes no sense, or workers whose batches have different names or sizes.
        UnpicklableError: a factory cannot be given to another process.
        BaseException: whatever a factory raised.

    Example:
        >>> def factory(part_index, num_parts):
        ...     return mx.io.NDArrayIter(np.ones((8, 2)), batch_size=4)
        >>> with mx.io.ProcessPrefetchingIter(factory, num_workers=2, start_method="fork") as batches:
        ...     [batch.data[0].shape for batch in batches]
        [(4, 2), (4, 2), (4, 2), (4, 2)]

    Source: MXNet 1.9.1 `PrefetchingIter`, which reads in threads; torch's DataLoader for workers and their order.
    """

    def __init__(
        self,
        factory: Factory | Sequence[Factory],
        num_workers: int | None = None,
        *,
        slots: int = 3,
        start_method: str = "spawn",
        timeout_s: float | None = None,
        num_threads: int = 1,
        seed: int | None = None,
    ) -> None:
        self._factory, self._makes = factory, _makes(factory, num_workers)
        self._options = FeedOptions(
            slots, start_method, timeout_s, num_threads, drawn_seed() if seed is None else seed
        )
        self._options.check("ProcessPrefetchingIter")
        super().__init__()
        self._open(self._makes, self._options)

    def _open(self, makes: list[Callable[[FeedCommands], IterSource]], options: FeedOptions) -> None:
        """Start the workers, and see what they give."""
        self._feed = WorkerFeed("ProcessPrefetchingIter", makes, options)
        try:
            first = _agreed(self._feed.descriptions)
        except BaseException:
            self._feed.close()
            raise
        self.batch_size = first["batch_size"]
        self._provide_data = first["provide_data"]
        self._provide_label = first["provide_label"]
        if first["default_bucket_key"] is not None:
            self.default_bucket_key = first["default_bucket_key"]

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise StateError(
            "ProcessPrefetchingIter has worker processes, and cannot be copied or pickled: make a new one with the "
            "same factory, and give it the state_dict() of this one to continue at the same batch"
        )

    @property
    def pids(self) -> list[int]:
        """The processes' numbers, in the order of the workers."""
        return self._feed.pids

    def reset(self) -> None:
        self._feed.begin()
        self.current_batch = None

    def take_part(self, num_parts: int, part_index: int) -> None:
        self._feed.check()
        check_part("ProcessPrefetchingIter", num_parts, part_index)
        if self.num_parts > 1:
            raise StateError(f"ProcessPrefetchingIter already reads one of {self.num_parts} parts")
        if not callable(self._factory):
            raise NotImplementedError(
                "ProcessPrefetchingIter: a list of factories cannot be told which part to read"
            )
        count = len(self._makes)
        parts = [
            {"part_index": part_index + num_parts * i, "num_parts": num_parts * count} for i in range(count)
        ]
        self._feed.close()
        self.current_batch = None
        seed = self._options.seed * num_parts + part_index  # no two parts are changed alike
        self._open(
            [partial(IterSource, self._factory, part) for part in parts], replace(self._options, seed=seed)
        )
        self.num_parts = num_parts

    def iter_next(self) -> bool:
        self.current_batch = None  # its slot is free for the worker, unless somebody else holds it
        batch = self._feed.take()
        return batch is not END and self._keep(batch)

    def state_dict(self) -> dict[str, Any]:
        return {
            **self._facts(),
            "iters": self._feed.states(),
            "taken": self._feed.taken,
            "epoch": self._feed.epoch_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, **self._facts())
        if any(each["iter"] is None for each in state["iters"]):
            _logger.info(
                "ProcessPrefetchingIter: the workers' iterators do not say where they stand: %d batches are read "
                "again, to go on behind them",
                state["taken"],
            )
        if not state["taken"] and (
            wrong := [name for each in state["iters"] for name in each["start"]["lost"]]
        ):
            raise StateError(
                f"ProcessPrefetchingIter: the workers' iterators do not say where they stand, and {', '.join(wrong)} "
                "cannot be kept over a resume; give them state_dict and load_state_dict"
            )
        self._feed.begin_again(state["epoch"], state["iters"])
        for number in range(state["taken"]):
            if self._feed.take() is END:
                raise StateError(
                    f"ProcessPrefetchingIter: the workers have given {number} batches, the state was saved after "
                    f"{state['taken']}"
                )
        self.current_batch = None

    def _facts(self) -> dict[str, Any]:
        """Return what an iterator has to be like to go on from this one's state."""
        return {"kind": type(self).__name__, "batch_size": self.batch_size, "workers": len(self._feed)}

    def close(self) -> None:
        self._feed.close()


def drawn_seed() -> int:
    """Draw a seed from the generator of the host."""
    return int(generators.host().randint(0, 2**31 - 1))


def _makes(
    factory: Factory | Sequence[Factory], num_workers: int | None
) -> list[Callable[[FeedCommands], IterSource]]:
    """Return what makes each worker's source."""
    if callable(factory):
        count = 1 if num_workers is None else num_workers
        check_count("ProcessPrefetchingIter", "num_workers", count)
        return [partial(IterSource, factory, {"part_index": i, "num_parts": count}) for i in range(count)]
    factories = list(factory) if isinstance(factory, Sequence) else []
    if not factories or not all(callable(each) for each in factories):
        raise ArgumentError(
            f"ProcessPrefetchingIter: factory is {factory!r}, expected a function that makes an iterator, or a list of "
            "such functions"
        )
    if num_workers not in (None, len(factories)):
        raise ArgumentError(
            f"ProcessPrefetchingIter: num_workers is {num_workers}, but there are {len(factories)} factories, one for "
            "each worker"
        )
    return [partial(IterSource, each, {}) for each in factories]


def _agreed(descriptions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the workers' iterators have in common."""
    first = descriptions[0]
    for i, each in enumerate(descriptions):
        if each != first:
            raise ArgumentError(
                "ProcessPrefetchingIter: the workers' iterators differ; worker 0 provides "
                f"{first['provide_data']} and {first['provide_label']}, worker {i} {each['provide_data']} and "
                f"{each['provide_label']}"
            )
    return first


class IterSource:
    """Makes a worker's batches with an iterator."""

    def __init__(self, factory: Factory, part: dict[str, int], orders: FeedCommands) -> None:
        self._iterator = factory(**part)
        if not hasattr(self._iterator, "provide_data"):
            raise ArgumentError(
                f"ProcessPrefetchingIter: factory returned {self._iterator!r}, expected an iterator such as a DataIter"
            )
        self._begun = False
        self._start = EpochStart(self._iterator)

    @property
    def description(self) -> dict[str, Any]:
        """What the iterator says about its batches."""
        iterator: Any = self._iterator
        return {
            "batch_size": iterator.batch_size,
            "provide_data": _descs(iterator.provide_data),
            "provide_label": _descs(iterator.provide_label),
            "default_bucket_key": getattr(iterator, "default_bucket_key", None),
        }

    def state(self) -> dict[str, Any]:
        """Return how the iterator stands, if it can say, and whether it is to be reset."""
        iterator: Any = self._iterator
        try:
            found = iterator.state_dict()
        except (NotImplementedError, AttributeError):
            found = None
        return {
            "iter": found,
            "begun": self._begun,
            "start": {"lost": []} if found else self._start.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Bring the iterator to where another one stood."""
        if state["iter"] is not None:
            self._iterator.load_state_dict(state["iter"])
            self._begun = state["begun"]
        else:
            self._start.load_state_dict(state["start"])
            # what has been read since, and could not be put back, needs the reset in any case
            is_stale = bool(self._start.live() or state["start"]["lost"])
            self._begun = state["begun"] or (self._begun and is_stale)

    def begin(self, epoch: int) -> Iterator[DataBatch]:
        """Begin an epoch, the first one without a reset."""
        if self._begun:
            self._iterator.reset()
        self._begun = True
        return iter(self._iterator)


def _descs(descs: Sequence[Any] | None) -> list[DataDesc]:
    return [desc if isinstance(desc, DataDesc) else DataDesc(*desc) for desc in descs or ()]
