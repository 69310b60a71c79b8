"""Decide how a `DataLoaderIter` reads what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
    default_convert,
)

from ..base import ArgumentError
from ..context import cpu
from ..devices import generators
from ..streams.checks import check_count
from .dataset_workers import ProcessLoader
from .iterator import EveryNth
from .process_feed import FeedOptions


@dataclass
class LoaderPlan:
    """What a `DataLoaderIter` is to read, and how; its arguments are told there."""

    loader: Any
    batch_size: int | None
    shuffle: bool
    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    drop_last: bool
    collate_fn: Callable[[Any], Any] | None
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
        if not self.num_workers:
            return self._in_this_process()
        batches = None if self._iterable() else self._batches()
        return ProcessLoader(
            self.loader,
            batches,
            self.batch_size,
            self.drop_last,
            self._collate(),
            self.worker_init_fn,
            self.num_workers,
            options,
            (self.num_parts, self.part_index),
        )

    def _part_of(self, items: Iterable[Any]) -> Iterable[Any]:
        return items if self.num_parts == 1 else EveryNth(items, self.num_parts, self.part_index)

    def _is_dataset(self) -> bool:
        """Say whether to read examples rather than batches."""
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

    def _collate(self) -> Callable[[Any], Any]:
        if self.collate_fn is not None:
            return self.collate_fn
        whole = self.batch_size is None and self.batch_sampler is None
        return default_convert if whole else default_collate

    def _in_this_process(self) -> Any:
        generator = torch.Generator()  # torch draws from it what only its own workers need
        if self._iterable():
            return DataLoader(
                _Iterable(self._part_of(self.loader)),
                self.batch_size,
                drop_last=self.drop_last,
                collate_fn=self._collate(),
                generator=generator,
            )
        batches: Any = self._batches()
        if self.batch_size is None and self.batch_sampler is None:
            return DataLoader(
                self.loader, None, sampler=batches, collate_fn=self._collate(), generator=generator
            )
        return DataLoader(self.loader, batch_sampler=batches, collate_fn=self._collate(), generator=generator)


class _Iterable(IterableDataset[Any]):
    """Lets torch iterate over whatever can be."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self._examples = examples

    def __iter__(self) -> Any:
        return iter(self._examples)
