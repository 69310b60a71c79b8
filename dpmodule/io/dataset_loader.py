"""Read torch's datasets and loaders: in this process, or in workers whose batches come through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    default_collate,
)

from .._core import torch_private
from .._devices import generators
from ..base import ArgumentError, StateError
from ..context import cpu
from ..streams.checks import check_count
from .iterator import EveryNth
from .process_feed import END, FeedCommands, FeedOptions, WorkerFeed

Collate = Callable[[Any], Any]


@dataclass
class LoaderPlan:
    """What a `DataLoaderIter` is to read, and how; its arguments are told there."""

    loader: Any
    batch_size: int | None
    shuffle: bool
    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    drop_last: bool
    collate_fn: Collate | None
    num_workers: int | None
    worker_init_fn: Callable[[int], object] | None
    num_parts: int = 1
    part_index: int = 0

    def source(self, options: FeedOptions) -> Any:
        """Return an iterable of batches."""
        if isinstance(self.loader, DataLoader):
            self._refuse_dataset_options("a DataLoader, which has its own")
            if self.num_workers is None:
                return self._part_of(self.loader)
            self._take_over(self.loader)
        elif not self._is_dataset():
            self._refuse_dataset_options("no dataset")
            return self._part_of(self.loader)
        self._check()
        is_ordered = not self._iterable()
        batches = self._batches() if is_ordered else None
        dataset = self.loader if is_ordered else self._part_of(self.loader)
        loader = partial(
            _torch_loader, dataset, self._gives_batches(), self.batch_size, self.drop_last, self.collate_fn
        )
        if not self.num_workers:
            return loader(batches)
        loading = partial(_Loading, self.loader, loader, is_ordered, self.worker_init_fn)
        return ProcessLoader(loading, batches, self.num_workers, options)

    def _part_of(self, items: Iterable[Any]) -> Iterable[Any]:
        return items if self.num_parts == 1 else EveryNth(items, self.num_parts, self.part_index)

    def _is_dataset(self) -> bool:
        """Return True if to read examples rather than batches."""
        sized = self.batch_size is not None or self.batch_sampler is not None
        if not sized and self.num_workers is None and isinstance(self.loader, torch.utils.data.Dataset):
            if isinstance(self.loader, IterableDataset):
                return False  # it yields whole batches
            raise ArgumentError("DataLoaderIter: a dataset needs a batch_size or a batch_sampler")
        return sized or self.num_workers is not None

    def _refuse_dataset_options(self, what: str) -> None:
        given = {
            "batch_size": self.batch_size is not None,
            "shuffle": self.shuffle,
            "sampler": self.sampler is not None,
            "batch_sampler": self.batch_sampler is not None,
            "drop_last": self.drop_last,
            "collate_fn": self.collate_fn is not None,
            "worker_init_fn": self.worker_init_fn is not None,
        }
        wrong = [name for name, is_given in given.items() if is_given]
        if wrong:
            raise ArgumentError(f"DataLoaderIter: {', '.join(wrong)} given, but loader is {what}")

    def _take_over(self, loader: DataLoader[Any]) -> None:
        """Read what a DataLoader reads."""
        self.loader, self.drop_last = loader.dataset, loader.drop_last
        self.collate_fn, self.worker_init_fn = loader.collate_fn, loader.worker_init_fn
        if isinstance(loader.dataset, IterableDataset):
            self.batch_size = loader.batch_size
        elif loader.batch_sampler is not None:
            self.batch_sampler, self.drop_last = loader.batch_sampler, False
        else:
            self.sampler = loader.sampler

    def _iterable(self) -> bool:
        if isinstance(self.loader, IterableDataset):
            return True
        return not (hasattr(self.loader, "__getitem__") and hasattr(self.loader, "__len__"))

    def _check(self) -> None:
        if self.batch_size is not None:
            check_count("DataLoaderIter", "batch_size", self.batch_size)
        if self.batch_sampler is not None and (
            self.batch_size is not None or self.shuffle or self.sampler is not None or self.drop_last
        ):
            raise ArgumentError(
                "DataLoaderIter: a batch_sampler takes the place of batch_size, shuffle, sampler and drop_last; "
                "give either"
            )
        if self.shuffle and self.sampler is not None:
            raise ArgumentError("DataLoaderIter: shuffle and a sampler contradict each other; give either")
        ordered = self.shuffle or self.sampler is not None or self.batch_sampler is not None
        if self._iterable() and ordered:
            raise ArgumentError(
                "DataLoaderIter: an iterable dataset has its own order; leave out shuffle and samplers"
            )

    def _batches(self) -> Iterable[Any]:
        """Return what gives the indices of each batch, or of each example where examples are batches."""
        if self.batch_sampler is not None:
            return self._part_of(self.batch_sampler)
        sampler: Any = self._own_sampler() if self.sampler is None else self._part_of(self.sampler)
        return sampler if self.batch_size is None else BatchSampler(sampler, self.batch_size, self.drop_last)

    def _own_sampler(self) -> Any:
        if self.num_parts == 1 and not self.shuffle:
            return SequentialSampler(self.loader)
        mine = range(self.part_index, len(self.loader), self.num_parts)
        if not self.shuffle:
            return mine
        source = generators.generator(cpu())
        if self.num_parts == 1:
            return RandomSampler(self.loader, generator=source)
        return SubsetRandomSampler(mine, generator=source)

    def _gives_batches(self) -> bool:
        """Return True if the dataset's examples are whole batches."""
        return self.batch_size is None and self.batch_sampler is None


def _torch_loader(
    dataset: Any,
    gives_batches: bool,
    batch_size: int | None,
    drop_last: bool,
    collate: Collate | None,
    batches: Iterable[Any] | None,
) -> DataLoader[Any]:
    """Return torch's loader, which reads in the process that iterates over it.

    Args:
        gives_batches: whether what the dataset has under an index is a whole batch.
        batches: the indices of each batch; None for an iterable dataset.
    """
    # torch draws seeds for its own workers from the generator
    options: dict[str, Any] = {"collate_fn": collate, "generator": torch.Generator()}
    if batches is None:
        return DataLoader(_Iterable(dataset), batch_size, drop_last=drop_last, **options)
    if gives_batches:
        return DataLoader(dataset, None, sampler=batches, **options)
    return DataLoader(dataset, batch_sampler=batches, **options)


class _Iterable(IterableDataset[Any]):
    """Lets torch iterate over whatever can be."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self._examples = examples

    def __iter__(self) -> Any:
        return iter(self._examples)


class ProcessLoader:
    """An iterable over batches that worker processes load, as a torch DataLoader with workers is.

    Batch number i is made by worker ``i % num_workers`` and comes as batch number i. An iterable dataset is iterated by
    every worker; it finds out by `torch.utils.data.get_worker_info` which part is its own.

    Args:
        loading: makes a worker's `_Loading`.
        batches: gives, for each epoch again, the indices of each batch; None for an iterable dataset.
        num_workers: number of processes.
    """

    def __init__(
        self,
        loading: Callable[..., _Loading],
        batches: Iterable[Any] | None,
        num_workers: int,
        options: FeedOptions,
    ) -> None:
        self._batches = batches
        makes = [partial(loading, num_workers, options.seed, index) for index in range(num_workers)]
        self._feed = WorkerFeed("DataLoaderIter", makes, options)
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
    """Makes a worker's batches from a dataset.

    Args:
        loader: makes torch's loader over the indices of batches; they come from the parent where `is_ordered`.
        worker_init: called with the worker's number before the dataset is used; may be None.
    """

    description = None

    def __init__(
        self,
        dataset: Any,
        loader: Callable[[Iterable[Any] | None], DataLoader[Any]],
        is_ordered: bool,
        worker_init: Callable[[int], object] | None,
        num_workers: int,
        seed: int,
        index: int,
        orders: FeedCommands,
    ) -> None:
        self._loader, self._is_ordered, self._orders = loader, is_ordered, orders
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
        loader = self._loader(self._indices(epoch) if self._is_ordered else None)
        if loader.collate_fn is default_collate:
            loader.collate_fn = self._collated
        fetch = torch_private.batch_fetcher(loader)
        if fetch is None:
            return iter(loader)
        batches: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        # an iterable dataset ends by a StopIteration, any other one must not
        return (fetch(indices) for indices in batches) if self._is_ordered else map(fetch, batches)

    def _indices(self, epoch: int) -> Iterator[Any]:
        while (indices := self._orders.work(epoch)) is not None:
            yield indices

    def _collated(self, examples: Any) -> Any:
        # in what it takes for a worker, torch would collate into new shared memory each time; the pipe has its own
        torch_private.set_worker_info(-1, 0, 0, None)
        try:
            return default_collate(examples)
        finally:
            self._show()
