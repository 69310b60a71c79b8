"""Reading torch datasets and loaders in this process, or in workers that send batches through shared memory."""

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
    """Options of a `DataLoaderIter`, which documents them."""

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
            self._refuse_dataset_options("not a dataset")
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
        """Return True if the loader yields examples, not batches."""
        sized = self.batch_size is not None or self.batch_sampler is not None
        if not sized and self.num_workers is None and isinstance(self.loader, torch.utils.data.Dataset):
            if isinstance(self.loader, IterableDataset):
                return False  # it yields batches
            raise ArgumentError("DataLoaderIter: a dataset needs a batch_size or a batch_sampler")
        return sized or self.num_workers is not None

    def _refuse_dataset_options(self, what: str) -> None:
        options = {
            "batch_size": self.batch_size is not None,
            "shuffle": self.shuffle,
            "sampler": self.sampler is not None,
            "batch_sampler": self.batch_sampler is not None,
            "drop_last": self.drop_last,
            "collate_fn": self.collate_fn is not None,
            "worker_init_fn": self.worker_init_fn is not None,
        }
        wrong = [name for name, is_given in options.items() if is_given]
        if wrong:
            raise ArgumentError(f"DataLoaderIter: {', '.join(wrong)} given, but loader is {what}")

    def _take_over(self, loader: DataLoader[Any]) -> None:
        """Copy the options of a DataLoader."""
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
                "DataLoaderIter: a batch_sampler replaces batch_size, shuffle, sampler and drop_last; "
                "give one or the other"
            )
        if self.shuffle and self.sampler is not None:
            raise ArgumentError("DataLoaderIter: shuffle and a sampler contradict each other; give only one")
        ordered = self.shuffle or self.sampler is not None or self.batch_sampler is not None
        if self._iterable() and ordered:
            raise ArgumentError(
                "DataLoaderIter: an iterable dataset has its own order; leave out shuffle and samplers"
            )

    def _batches(self) -> Iterable[Any]:
        """Return an iterable over the indices of each batch, or of each example if an example is a batch."""
        if self.batch_sampler is not None:
            return self._part_of(self.batch_sampler)
        sampler: Any = self._own_sampler() if self.sampler is None else self._part_of(self.sampler)
        return sampler if self.batch_size is None else BatchSampler(sampler, self.batch_size, self.drop_last)

    def _own_sampler(self) -> Any:
        if self.num_parts == 1 and not self.shuffle:
            return SequentialSampler(self.loader)
        indices = range(self.part_index, len(self.loader), self.num_parts)
        if not self.shuffle:
            return indices
        source = generators.generator(cpu())
        if self.num_parts == 1:
            return RandomSampler(self.loader, generator=source)
        return SubsetRandomSampler(indices, generator=source)

    def _gives_batches(self) -> bool:
        """Return True if each example of the dataset is a batch."""
        return self.batch_size is None and self.batch_sampler is None


def _torch_loader(
    dataset: Any,
    gives_batches: bool,
    batch_size: int | None,
    drop_last: bool,
    collate: Collate | None,
    batches: Iterable[Any] | None,
) -> DataLoader[Any]:
    """Return a torch loader that reads in the process that iterates over it.

    Args:
        gives_batches: True if each item of the dataset is a batch.
        batches: the indices of each batch; None for an iterable dataset.
    """
    # otherwise torch draws worker seeds from its default generator
    options: dict[str, Any] = {"collate_fn": collate, "generator": torch.Generator()}
    if batches is None:
        return DataLoader(_Iterable(dataset), batch_size, drop_last=drop_last, **options)
    if gives_batches:
        return DataLoader(dataset, None, sampler=batches, **options)
    return DataLoader(dataset, batch_sampler=batches, **options)


class _Iterable(IterableDataset[Any]):
    """Iterable dataset of torch over any iterable."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self._examples = examples

    def __iter__(self) -> Any:
        return iter(self._examples)


class ProcessLoader:
    """Iterable over batches that worker processes load, like a torch DataLoader with workers.

    Worker ``i % num_workers`` loads batch i; batches come in order. Every worker iterates over an iterable dataset,
    which finds its part with `torch.utils.data.get_worker_info`.

    Args:
        loading: function that makes the `_Loading` of a worker.
        batches: iterable over the indices of each batch, iterated every epoch; None for an iterable dataset.
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
        self._resumed: Mapping[str, Any] | None = None

    def state_dict(self, begun: bool) -> dict[str, Any]:
        """Return the epoch that the next iteration must begin to yield the same batches.

        Args:
            begun: True for the current epoch, False for the next.
        """
        epoch = self._feed.epoch_dict()
        return epoch if begun else {**epoch, "number": epoch["number"] + 1}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the epoch of a state in the next iteration."""
        if state["workers"] != len(self._feed):
            raise ArgumentError(
                f"DataLoaderIter: the state was saved with {state['workers']} workers, but here are {len(self._feed)}; "
                f"give num_workers={state['workers']}"
            )
        self._resumed = state

    @property
    def index_source(self) -> Any:
        """Iterable over the indices of an epoch, in this process."""
        return self._batches

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, in order."""
        return self._feed.pids

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch."""
        if self._resumed is not None:
            self._feed.begin_again(self._resumed)
        elif self._begun:
            self._feed.begin()
        self._resumed = None
        self._begun = True
        return _Epoch(self._feed, self._batches)

    def close(self) -> None:
        """End the workers; further calls do nothing."""
        self._feed.close()


class _Epoch:
    """One iteration over a feed. Each worker gets one more batch to load than it has slots.

    Args:
        batches: iterable over the indices to load; None: the workers iterate over the dataset.
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
            raise StateError("this iteration is over, since another epoch has begun")
        self._order()
        item = self._feed.take()
        if item is END:
            raise StopIteration
        self._taken += 1
        return item

    def _order(self) -> None:
        """Send the workers the indices to load."""
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
        except Exception as error:  # any error of the sampler
            self._error = error
            raise


class _Loading:
    """Item source of a worker that loads batches from a dataset.

    Args:
        loader: function that makes a torch loader over the indices of batches.
        is_ordered: True if the parent sends the indices.
        worker_init: function called with the worker's number before the dataset is used; may be None.
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
        commands: FeedCommands,
    ) -> None:
        self._loader, self._is_ordered, self._commands = loader, is_ordered, commands
        self._show = partial(torch_private.set_worker_info, index, num_workers, seed + index, dataset)
        self._show()
        if worker_init is not None:
            worker_init(index)

    def state(self) -> None:
        """Return None: a dataset loads the indices that it receives."""

    def restore(self, state: Any) -> None:
        """Do nothing, since there is no state."""

    def begin(self, epoch: int) -> Iterator[Any]:
        """Begin an epoch."""
        loader = self._loader(self._indices(epoch) if self._is_ordered else None)
        if loader.collate_fn is default_collate:
            loader.collate_fn = self._collated
        fetch = torch_private.batch_fetcher(loader)
        if fetch is None:
            return iter(loader)
        batches: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        # a StopIteration ends an iterable dataset, but is an error in others
        return (fetch(indices) for indices in batches) if self._is_ordered else map(fetch, batches)

    def _indices(self, epoch: int) -> Iterator[Any]:
        while (indices := self._commands.work(epoch)) is not None:
            yield indices

    def _collated(self, examples: Any) -> Any:
        # in a worker, torch collates into new shared memory each time; the pipe already copies into its own
        torch_private.set_worker_info(-1, 0, 0, None)
        try:
            return default_collate(examples)
        finally:
            self._show()
