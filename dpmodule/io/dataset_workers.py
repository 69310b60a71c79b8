"""Load the examples of a torch Dataset in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from torch.utils.data import default_collate

from ..base import ArgumentError, StateError
from ..compat import torch_private
from .feed_worker import FeedOrders
from .iterator import EveryNth
from .process_feed import END, FeedOptions, WorkerFeed

Collate = Callable[[Any], Any]


class ProcessLoader:
    """An iterable over batches that worker processes load, as a torch DataLoader with workers is.

    Batch number i is made by worker ``i % num_workers`` and comes as batch number i. An iterable dataset is iterated by
    every worker; it finds out by `torch.utils.data.get_worker_info` which part is its own.

    Args:
        batches: gives, for each epoch anew, the indices of each batch; None for an iterable dataset.
        batch_size: examples in a batch of an iterable dataset; None: it gives whole batches.
        drop_last: whether to leave out an iterable dataset's last batch if it is smaller.
        collate: makes a batch of a list of examples, or of one whole batch.
        worker_init: called in each worker with its number before the dataset is used; may be None.
        num_workers: number of processes.
        part: number of parts, and which of them to read of an iterable dataset; each worker does so by itself.
    """

    def __init__(
        self,
        dataset: Any,
        batches: Iterable[Any] | None,
        batch_size: int | None,
        drop_last: bool,
        collate: Collate,
        worker_init: Callable[[int], object] | None,
        num_workers: int,
        options: FeedOptions,
        part: tuple[int, int] = (1, 0),
    ) -> None:
        size = None if batches is not None else batch_size
        loads = partial(
            _Loading,
            dataset,
            batches is not None,
            size,
            drop_last,
            collate,
            worker_init,
            num_workers,
            options.seed,
            part,
        )
        self._batches = batches
        self._feed = WorkerFeed(
            "DataLoaderIter", [partial(loads, index) for index in range(num_workers)], options
        )
        self._begun = False
        self._again: Mapping[str, Any] | None = None

    def state_dict(self, begun: bool) -> dict[str, Any]:
        """Return which epoch the next iteration would have to begin for the same batches.

        Args:
            begun: whether those of the one under way are meant, rather than those after it.
        """
        epoch = self._feed.epoch_dict()
        return epoch if begun else {**epoch, "number": epoch["number"] + 1}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin the epoch that `state_dict` told of."""
        if state["workers"] != len(self._feed):
            raise ArgumentError(
                f"DataLoaderIter: the state was saved with {state['workers']} workers, here are {len(self._feed)}; "
                f"give num_workers={state['workers']}"
            )
        self._again = state

    @property
    def index_source(self) -> Any:
        """What gives the indices of an epoch, in this process."""
        return self._batches

    @property
    def pids(self) -> list[int]:
        """The processes' numbers, in the order of the workers."""
        return self._feed.pids

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch."""
        if self._again is not None:
            self._feed.begin_again(self._again)
        elif self._begun:
            self._feed.begin()
        self._again = None
        self._begun = True
        return _Epoch(self._feed, self._batches)

    def close(self) -> None:
        """End the workers; further calls do nothing."""
        self._feed.close()


class _Epoch:
    """One iteration over a feed; batches are ordered ahead, one more of each worker than it can have ready.

    Args:
        batches: gives what to order; None: the workers know themselves.
    """

    def __init__(self, feed: WorkerFeed, batches: Iterable[Any] | None) -> None:
        self._feed = feed
        self._number = feed.epoch
        self._indices = None if batches is None else iter(batches)
        self._ordered = self._taken = 0
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._number != self._feed.epoch:
            raise StateError("another epoch has begun; this iteration is over")
        self._order()
        item = self._feed.take()
        if item is END:
            raise StopIteration
        self._taken += 1
        return item

    def _order(self) -> None:
        """Tell the workers what to load."""
        workers = len(self._feed)
        while self._indices is not None and self._ordered - self._taken < workers * (self._feed.slots + 1):
            work = self._next_indices(self._indices)
            if work is None:
                self._indices = None
                for worker in range(workers):
                    self._feed.work(worker, None)
            else:
                self._feed.work(self._ordered % workers, work)
                self._ordered += 1

    def _next_indices(self, indices: Iterator[Any]) -> Any:
        if self._error is not None:
            raise self._error
        try:
            return next(indices, None)
        except Exception as error:  # whatever the sampler's own code raises
            self._error = error
            raise


class _Loading:
    """Makes a worker's batches from a dataset."""

    description = None

    def __init__(
        self,
        dataset: Any,
        ordered: bool,
        batch_size: int | None,
        drop_last: bool,
        collate: Collate,
        worker_init: Callable[[int], object] | None,
        num_workers: int,
        seed: int,
        part: tuple[int, int],
        index: int,
        orders: FeedOrders,
    ) -> None:
        self._dataset, self._ordered, self._size = dataset, ordered, batch_size
        self._drop_last, self._collate, self._orders = drop_last, collate, orders
        self._part = part
        self._show = partial(torch_private.set_worker_info, index, num_workers, seed + index, dataset)
        self._show()
        if worker_init is not None:
            worker_init(index)

    def state(self) -> None:
        """Say nothing: what a dataset gives depends on what is asked of it."""

    def restore(self, state: Any) -> None:
        """Do nothing, as there is nothing to restore."""

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch."""
        return self._ordered_batches(epoch) if self._ordered else self._own_batches()

    def _ordered_batches(self, epoch: int) -> Iterator[Any]:
        fetch = getattr(self._dataset, "__getitems__", None)
        while (indices := self._orders.work(epoch)) is not None:
            if not isinstance(indices, (list, tuple)):
                yield self._collated(self._dataset[indices])
            elif callable(fetch):
                yield self._collated(fetch(indices))
            else:
                yield self._collated([self._dataset[i] for i in indices])

    def _own_batches(self) -> Iterator[Any]:
        examples = iter(EveryNth(self._dataset, *self._part))
        if self._size is None:
            for batch in examples:
                yield self._collated(batch)
            return
        while batch := list(islice(examples, self._size)):
            if len(batch) < self._size and self._drop_last:
                return
            yield self._collated(batch)

    def _collated(self, examples: Any) -> Any:
        if self._collate is not default_collate:
            return self._collate(examples)
        # in what it takes for a worker, torch would collate into new shared memory each time; the pipe has its own
        torch_private.set_worker_info(-1, 0, 0, None)
        try:
            return self._collate(examples)
        finally:
            self._show()
