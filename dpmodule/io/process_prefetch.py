"""`ProcessPrefetchingIter`: reading iterators in worker processes."""

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

    Each worker creates its own iterator and reads one part of the examples. Batches are taken from the workers in
    turn, so that their order depends on neither speed nor load; workers whose part is over are skipped. Reading starts
    immediately and after each `reset`, which keeps the processes.

    A batch uses the memory of a slot. The worker reuses the slot when nothing refers to the batch any longer: no array,
    no view and no module that has just computed with it. A caller that keeps as many batches of a worker as it has
    slots gets copies from then on, so that nothing waits. `Module.fit` holds two batches at a time: it gets every batch
    without a copy from one worker with three slots, or from several workers with two.

    `next` raises an error of an iterator in place of its batch, with its type and the worker's traceback as its cause,
    and raises it again until `reset`. A dead worker raises `WorkerDied`, which names the worker, its process, the
    signal and the current batch; `reset` replaces the worker. Leaving the ``with`` block, deleting the object, and any
    end of the process end the workers.

    Args:
        factory: function that makes an iterator, called in each worker with
            ``factory(part_index=i, num_parts=num_workers)``, such as
            ``functools.partial(mx.io.LibSVMIter, data_libsvm=...)``; or a list of functions, one per worker, called
            without arguments. Unless `start_method` is "fork", they must be defined at the top level of a module.
        num_workers: number of processes (default: 1, or the number of factories).
        slots: number of batches of each worker that may be ready or in use at a time.
        start_method: "spawn", "fork" or "forkserver"; see `streams.Supervisor`.
        timeout_s: time limit of a batch in seconds; a slower worker is killed, and `WorkerStuck` shows its stack. None:
            no limit.
        num_threads: number of threads that torch may use in each worker.
        seed: seed of the random numbers of Python, NumPy, torch and `mx.random` in the workers, combined with the
            numbers of the worker and the epoch (default: drawn, so that ``mx.random.seed`` repeats it).

    Raises:
        ArgumentError: a number is invalid, or the batches of the workers have different names or sizes.
        UnpicklableError: a factory cannot be sent to another process.
        BaseException: any error of a factory.

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
        """Start the workers, and check the descriptions of their batches."""
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
            "ProcessPrefetchingIter has worker processes and cannot be copied or pickled. Make a new one with the "
            "same factory, and load the state_dict() of this one to continue at the same batch"
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, in order."""
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
                "ProcessPrefetchingIter: a list of factories cannot be restricted to a part"
            )
        count = len(self._makes)
        parts = [
            {"part_index": part_index + num_parts * i, "num_parts": num_parts * count} for i in range(count)
        ]
        self._feed.close()
        self.current_batch = None
        seed = self._options.seed * num_parts + part_index  # different random numbers in every part
        self._open(
            [partial(IterSource, self._factory, part) for part in parts], replace(self._options, seed=seed)
        )
        self.num_parts = num_parts

    def iter_next(self) -> bool:
        self.current_batch = None  # frees its slot for the worker, unless the caller holds the batch
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
                "ProcessPrefetchingIter: the iterators of the workers do not save their position; reading %d batches "
                "again, to continue after them",
                state["taken"],
            )
        if not state["taken"] and (
            wrong := [name for each in state["iters"] for name in each["start"]["lost"]]
        ):
            raise StateError(
                "ProcessPrefetchingIter: the iterators of the workers do not save their position, and "
                f"{', '.join(wrong)} cannot be restored on resume; give them state_dict and load_state_dict"
            )
        self._feed.begin_again(state["epoch"], state["iters"])
        for number in range(state["taken"]):
            if self._feed.take() is END:
                raise StateError(
                    f"ProcessPrefetchingIter: the workers yielded only {number} batches, but the state was saved after "
                    f"{state['taken']}"
                )
        self.current_batch = None

    def _facts(self) -> dict[str, Any]:
        """Return the facts that an iterator must share to resume from this one's state."""
        return {"kind": type(self).__name__, "batch_size": self.batch_size, "workers": len(self._feed)}

    def close(self) -> None:
        self._feed.close()


def drawn_seed() -> int:
    """Draw a seed from the generator of the host."""
    return int(generators.host().randint(0, 2**31 - 1))


def _makes(
    factory: Factory | Sequence[Factory], num_workers: int | None
) -> list[Callable[[FeedCommands], IterSource]]:
    """Return a function for each worker that creates its source."""
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
            f"ProcessPrefetchingIter: num_workers is {num_workers}, but there are {len(factories)} factories; expected "
            "one for each worker"
        )
    return [partial(IterSource, each, {}) for each in factories]


def _agreed(descriptions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the common description of the workers' iterators; refuse different ones."""
    first = descriptions[0]
    for i, description in enumerate(descriptions):
        if description != first:
            raise ArgumentError(
                "ProcessPrefetchingIter: the workers' iterators differ; worker 0 provides "
                f"{first['provide_data']} and {first['provide_label']}, worker {i} {description['provide_data']} and "
                f"{description['provide_label']}"
            )
    return first


class IterSource:
    """Item source of a worker that reads an iterator."""

    def __init__(self, factory: Factory, part: dict[str, int], commands: FeedCommands) -> None:
        self._iterator = factory(**part)
        if not hasattr(self._iterator, "provide_data"):
            raise ArgumentError(
                f"ProcessPrefetchingIter: factory returned {self._iterator!r}, expected an iterator such as a DataIter"
            )
        self._begun = False
        self._start = EpochStart(self._iterator)

    @property
    def description(self) -> dict[str, Any]:
        """Description of the iterator's batches."""
        iterator: Any = self._iterator
        return {
            "batch_size": iterator.batch_size,
            "provide_data": _descs(iterator.provide_data),
            "provide_label": _descs(iterator.provide_label),
            "default_bucket_key": getattr(iterator, "default_bucket_key", None),
        }

    def state(self) -> dict[str, Any]:
        """Return the state of the iterator, or None if it has no `state_dict`, and True if the next epoch resets it."""
        iterator: Any = self._iterator
        try:
            state = iterator.state_dict()
        except (NotImplementedError, AttributeError):
            state = None
        return {
            "iter": state,
            "begun": self._begun,
            "start": {"lost": []} if state else self._start.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `state`."""
        if state["iter"] is not None:
            self._iterator.load_state_dict(state["iter"])
            self._begun = state["begun"]
        else:
            self._start.load_state_dict(state["start"])
            # items that were read since then and cannot be put back require a reset
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
