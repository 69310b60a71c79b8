"""`ProcessPrefetchingIter`: reading iterators in worker processes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from torch.utils.data import get_worker_info

from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, StateError
from ..streams.checks import check_count
from .convert import EpochStart
from .desc import DataDesc
from .iterator import CurrentBatch, DataIter, check_part, check_state
from .process_loader import Load, ProcessLoader, WorkerOptions

_logger = logging.getLogger(__name__)

Factory = Callable[..., DataIter]


class ProcessPrefetchingIter(CurrentBatch, Closing):
    """Read iterators in worker processes, which decode while the network computes; batches come through shared memory.

    Each worker creates its own iterator and reads one part of the examples. Batches are taken from the workers in
    turn, so that their order depends on neither speed nor load; workers whose part is over are skipped. Reading starts
    immediately and after each `reset`, which keeps the processes. The workers are those of `streams.DataLoader`: a
    batch is valid as long as something refers to it, and nothing waits for it.

    `next` raises an error of an iterator in place of its batch, with its type and the worker's traceback as its cause,
    and raises it again until `reset`. A dead worker raises `WorkerDied`, which names the worker, its process, the
    signal and the batch; `reset` replaces all workers. Leaving the ``with`` block, deleting the object, and any end of
    the process end the workers.

    Args:
        factory: function that makes an iterator, called in each worker with
            ``factory(part_index=i, num_parts=num_workers)``, such as
            ``functools.partial(mx.io.LibSVMIter, data_libsvm=...)``; or a list of functions, one per worker, called
            without arguments. Unless `start_method` is "fork", they must be defined at the top level of a module.
        num_workers: number of processes (default: 1, or the number of factories).
        slots: number of batches of each worker that may be ready or in work at a time.
        start_method: "spawn", "fork" or "forkserver"; see `streams.Supervisor`.
        timeout_s: time limit of a batch in seconds, after which `WorkerStuck` shows the worker's stack; None: no
            limit.
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
        self._options = WorkerOptions(
            slots, start_method, timeout_s, num_threads, generators.drawn_seed() if seed is None else seed
        )
        self._options.check("ProcessPrefetchingIter")
        super().__init__()
        self._open(self._makes, self._options)

    def _open(self, makes: list[Callable[[], DataIter]], options: WorkerOptions) -> None:
        """Start the workers, and check the descriptions of their batches."""
        self._loader = ProcessLoader("ProcessPrefetchingIter", _Iterators(makes), len(makes), options)
        try:
            self._begin()
            first = _agreed([description for description, _ in self._epoch.prepared])
        except BaseException:
            self._loader.close()
            raise
        self.batch_size = first["batch_size"]
        self._provide_data = first["provide_data"]
        self._provide_label = first["provide_label"]
        if first["default_bucket_key"] is not None:
            self.default_bucket_key = first["default_bucket_key"]

    def _begin(self) -> None:
        """Begin an epoch."""
        self.current_batch = None
        self._taken = 0
        self._epoch = iter(self._loader)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise StateError(
            "ProcessPrefetchingIter has worker processes and cannot be copied or pickled. Make a new one with the "
            "same factory, and load the state_dict() of this one to continue at the same batch"
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, in order."""
        return self._loader.pids

    def reset(self) -> None:
        self._begin()

    def take_part(self, num_parts: int, part_index: int) -> None:
        self._loader.check()
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
        self._loader.close()
        seed = self._options.seed * num_parts + part_index  # different random numbers in every part
        self._open([partial(self._factory, **part) for part in parts], replace(self._options, seed=seed))
        self.num_parts = num_parts

    def iter_next(self) -> bool:
        self.current_batch = None  # frees its memory for the worker, unless the caller holds the batch
        batch = next(self._epoch, None)
        self._taken += batch is not None
        return self._keep(batch)

    def state_dict(self) -> dict[str, Any]:
        return {
            **self._facts(),
            "iters": [state for _, state in self._epoch.prepared],
            "taken": self._taken,
            "epoch": self._loader.state_dict(begun=True),
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
        self._loader.load_state_dict(state["epoch"], state["iters"])
        self._begin()
        for number in range(state["taken"]):
            if next(self._epoch, None) is None:
                raise StateError(
                    f"ProcessPrefetchingIter: the workers yielded only {number} batches, but the state was saved after "
                    f"{state['taken']}"
                )
        self._taken = state["taken"]

    def _facts(self) -> dict[str, Any]:
        """Return the facts that an iterator must share to resume from this one's state."""
        return {"kind": type(self).__name__, "batch_size": self.batch_size, "workers": len(self._makes)}

    def close(self) -> None:
        self._loader.close()


def _makes(factory: Factory | Sequence[Factory], num_workers: int | None) -> list[Callable[[], DataIter]]:
    """Return a function for each worker that makes its iterator."""
    if callable(factory):
        count = 1 if num_workers is None else num_workers
        check_count("ProcessPrefetchingIter", "num_workers", count)
        try:
            inspect.signature(factory).bind(part_index=0, num_parts=count)
        except TypeError as error:
            raise ArgumentError(
                "ProcessPrefetchingIter: factory is called with the keywords part_index and num_parts, which "
                f"{factory!r} does not take: {error}"
            ) from None
        except ValueError:  # a function in C has no signature
            pass
        return [partial(factory, part_index=i, num_parts=count) for i in range(count)]
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
    return factories


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


class _Iterators:
    """Source of the batches of iterators, one in each worker.

    Args:
        makes: functions that make the iterators.
    """

    def __init__(self, makes: list[Callable[[], DataIter]]) -> None:
        self._makes = makes
        self._iterator: Any = None
        self._begun = False
        self._start: Any = None

    def _make(self) -> None:
        info: Any = get_worker_info()
        self._iterator = self._makes[info.id]()
        if not hasattr(self._iterator, "provide_data"):
            raise ArgumentError(
                f"ProcessPrefetchingIter: factory returned {self._iterator!r}, expected an iterator such as a DataIter"
            )
        self._start = EpochStart(self._iterator)

    def prepare(self, state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the description of the iterator's batches, and the state in which the epoch begins."""
        if self._iterator is None:
            self._make()
        if state is not None:
            self._restore(state)
        return self._description(), self._state()

    def _description(self) -> dict[str, Any]:
        iterator: Any = self._iterator
        return {
            "batch_size": iterator.batch_size,
            "provide_data": _descs(iterator.provide_data),
            "provide_label": _descs(iterator.provide_label),
            "default_bucket_key": getattr(iterator, "default_bucket_key", None),
        }

    def _state(self) -> dict[str, Any]:
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

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state["iter"] is not None:
            self._iterator.load_state_dict(state["iter"])
            self._begun = state["begun"]
        else:
            self._start.load_state_dict(state["start"])
            # items that were read since then and cannot be put back require a reset
            is_stale = bool(self._start.live() or state["start"]["lost"])
            self._begun = state["begun"] or (self._begun and is_stale)

    def start(self) -> Load:
        """Begin an epoch, the first one without a reset."""
        if self._begun:
            self._iterator.reset()
        self._begun = True
        batches = iter(self._iterator)
        return lambda indices: next(batches)


def _descs(descs: Sequence[Any] | None) -> list[DataDesc]:
    return [desc if isinstance(desc, DataDesc) else DataDesc(*desc) for desc in descs or ()]
