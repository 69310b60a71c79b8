"""`DataLoaderIter`: batches from torch datasets and loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from .._core import torch_private
from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, StateError, dtype_name, np_dtype
from ..context import cpu
from ..ndarray import NDArray
from ..streams.checks import check_count
from .convert import IterableIter
from .desc import DataDesc
from .iterator import CurrentBatch, DataBatch, EveryNth, check_part, check_state
from .process_loader import Load, ProcessLoader, WorkerOptions

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

    def source(self, options: WorkerOptions) -> Any:
        """Return an iterable of batches."""
        if not (hasattr(self.loader, "__iter__") or hasattr(self.loader, "__getitem__")):
            raise ArgumentError(
                f"DataLoaderIter: loader is {self.loader!r}, expected a DataLoader, a dataset or an iterable of batches"
            )
        if isinstance(self.loader, DataLoader):
            self._refuse_dataset_options("a DataLoader, which has its own")
            if self.num_workers is None:
                return self._part_of(self.loader)
            self._take_over(self.loader)
        elif not self._is_dataset():
            self._refuse_dataset_options("not a dataset")
            return self._part_of(self.loader)
        self._check()
        batches = None if self._iterable() else self._batches()
        dataset: Any = self._part_of(self.loader) if batches is None else self.loader
        loading: dict[str, Any] = {"collate_fn": self.collate_fn}
        if batches is None:
            loading |= {"batch_size": self.batch_size, "drop_last": self.drop_last}
        elif self._gives_batches():
            loading |= {"batch_size": None}
        if self.num_workers:
            source = _Batches(dataset, batches is None, loading)
            return ProcessLoader(
                "DataLoaderIter", source, self.num_workers, options, batches, self.worker_init_fn
            )
        loading["generator"] = torch.Generator()  # otherwise torch draws seeds from its default generator
        if batches is None:
            dataset = _Iterable(dataset)
        else:
            loading["sampler" if self._gives_batches() else "batch_sampler"] = batches
        return DataLoader(dataset, **loading)

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


class _Batches:
    """Source of the batches of a dataset.

    Args:
        options: those of the torch loader that makes a batch of indices.
    """

    def __init__(self, dataset: Any, is_iterable: bool, options: Mapping[str, Any]) -> None:
        self._dataset, self._is_iterable, self._options = dataset, is_iterable, options

    def prepare(self, state: Any) -> None:
        """Do nothing, since a dataset has no state."""

    def start(self) -> Load:
        """Return a function that loads the batch of indices."""
        options: dict[str, Any] = {"generator": torch.Generator(), **self._options}
        loader = DataLoader(_Iterable(self._dataset) if self._is_iterable else self._dataset, **options)
        load: Load | None = torch_private.batch_fetcher(loader)
        if load is None:
            raise StateError(
                "DataLoaderIter: this version of torch has no fetchers; pass a torch DataLoader with num_workers"
            )
        if not self._is_iterable:
            return load
        batches: Any = iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
        return lambda indices: load(next(batches))


class _Iterable(IterableDataset[Any]):
    """Iterable dataset of torch over any iterable."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self._examples = examples

    def __iter__(self) -> Any:
        return iter(self._examples)


class DataLoaderIter(CurrentBatch, Closing):
    """Read a dataset, or wrap a loader, as an iterator for modules.

    A dataset (a torch dataset, or an object with ``__getitem__`` and ``__len__`` or with ``__iter__``) is read as
    torch's DataLoader reads it: with `batch_size` or `batch_sampler`, in this process or in `num_workers` processes.
    Workers are those of `streams.DataLoader`; an error is raised in place of its batch, and again until `reset`. A
    loader (a torch DataLoader or another iterable of batches) is iterated over; with `num_workers`, worker processes
    of dpmodule use the dataset, sampler and collate function of a DataLoader instead.

    The last batch is padded with zeros to the size of the others; its `pad` is the number of padding rows.

    Args:
        loader: a dataset, or a loader.
        data_name: name of the data; a list for several arrays.
        label_name: name of the labels; a list for several arrays; an empty list leaves labels out.
        dtype: type that data and labels are converted to; None keeps their types.
        batch_size: number of examples in a batch.
        shuffle: if True, each epoch takes the examples in a new random order, which ``mx.random.seed`` repeats.
        sampler: yields the indices of an epoch's examples; replaces `shuffle`.
        batch_sampler: yields the lists of indices of an epoch's batches; replaces the options above and `drop_last`.
        drop_last: if True, a smaller last batch is dropped.
        collate_fn: function that makes a batch from a list of examples (default: torch's `default_collate`).
        num_workers: number of processes; 0 loads in this one.
        worker_init_fn: function called in each worker with its number.
        slots: number of batches of each worker that may be ready or in work.
        start_method: "spawn", "fork" or "forkserver".
        timeout_s: time limit of a batch in seconds; None: no limit.
        num_threads: number of threads that torch may use in each worker.
        seed: seed of the workers' random numbers (default: drawn, so that ``mx.random.seed`` repeats it).
        num_parts: number of parts that the examples are split into, one for each of several processes.
        part_index: the part to read: examples part_index, part_index + num_parts, ...; every example is in one part,
            and the sizes of parts differ by one at most. `shuffle` orders each part separately. A sampler, a loader or
            an iterable dataset defines its own order, which must be the same in all processes; every num_parts-th
            index or item is taken. A batch_sampler and a loader are split by batches, an iterable dataset in each
            worker separately.

    Raises:
        ArgumentError: options contradict each other or do not fit `loader`, or `loader` yields nothing.
        UnpicklableError: the dataset or a function cannot be sent to another process.

    Example:
        >>> dataset = torch.utils.data.TensorDataset(torch.ones(5, 2), torch.arange(5))
        >>> batches = mx.io.DataLoaderIter(dataset, batch_size=2)
        >>> [(batch.label[0].asnumpy().tolist(), batch.pad) for batch in batches]
        [([0.0, 1.0], 0), ([2.0, 3.0], 0), ([4.0, 0.0], 1)]

    Source: MXNet 1.9.1 `mx.contrib.io.DataLoaderIter` for loaders; torch's DataLoader for datasets.
    """

    def __init__(
        self,
        loader: Any,
        data_name: str | Sequence[str] = "data",
        label_name: str | Sequence[str] = "softmax_label",
        dtype: Any = "float32",
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        num_workers: int | None = None,
        worker_init_fn: Callable[[int], object] | None = None,
        slots: int = 3,
        start_method: str = "spawn",
        timeout_s: float | None = None,
        num_threads: int = 1,
        seed: int | None = None,
        num_parts: int = 1,
        part_index: int = 0,
    ) -> None:
        options = WorkerOptions(
            slots, start_method, timeout_s, num_threads, generators.drawn_seed() if seed is None else seed
        )
        options.check("DataLoaderIter")
        check_part("DataLoaderIter", num_parts, part_index)
        if num_workers is not None:
            check_count("DataLoaderIter", "num_workers", num_workers, low=0)
        self._options, self._data_names, self._label_names = options, _names(data_name), _names(label_name)
        self._plan = LoaderPlan(
            loader,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            drop_last,
            collate_fn,
            num_workers,
            worker_init_fn,
            num_parts,
            part_index,
        )
        self._dtype = None if dtype is None else dtype_name(dtype)
        self._workers: ProcessLoader | None = None
        self.num_parts = num_parts
        self._closed = False
        size = self._open()
        super().__init__(size or self._batches.batch_size)
        self._provide_data = [self._describe(desc) for desc in self._batches.provide_data]
        self._provide_label = [self._describe(desc) for desc in self._batches.provide_label]

    def _open(self) -> int | None:
        """Begin to read, and return the batch size if it is known."""
        plan = replace(self._plan)  # `source` changes the plan
        source = plan.source(self._options)
        self._workers = source if isinstance(source, ProcessLoader) else None
        try:
            self._batches = IterableIter(source, self._data_names, self._label_names)
        except BaseException:
            self.close()
            raise
        return plan.batch_size

    def take_part(self, num_parts: int, part_index: int) -> None:
        self._check_open()
        check_part("DataLoaderIter", num_parts, part_index)
        if self._plan.num_parts > 1:
            raise StateError(
                f"DataLoaderIter already reads part {self._plan.part_index} of {self._plan.num_parts}"
            )
        if isinstance(self._plan.loader, Iterator):
            raise StateError(
                f"DataLoaderIter: a {type(self._plan.loader).__name__} can be read only once, and its first batch has "
                "already been read; give num_parts and part_index when making the iterator"
            )
        if self._workers is not None:
            self._workers.close()
        self._plan, self.num_parts = (
            replace(self._plan, num_parts=num_parts, part_index=part_index),
            num_parts,
        )
        self._open()

    def _describe(self, desc: DataDesc) -> DataDesc:
        shape = (self.batch_size, *desc.shape[1:])
        return desc._replace(shape=shape, dtype=desc.dtype if self._dtype is None else np_dtype(self._dtype))

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise StateError(
            "DataLoaderIter is reading its loader and cannot be copied or pickled. Make a new one over the same "
            "dataset, and load the state_dict() of this one to continue at the same batch"
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; empty without workers."""
        return [] if self._workers is None else self._workers.pids

    def reset(self) -> None:
        self._check_open()
        self.current_batch = None
        self._batches.reset()

    def state_dict(self) -> dict[str, Any]:
        workers = None if self._workers is None else self._workers.state_dict(self._batches.begun)
        return {**self._facts(), "batches": self._batches.state_dict(), "workers": workers}

    def _facts(self) -> dict[str, Any]:
        """Return the facts that an iterator must share to resume from this one's state."""
        part = [self._plan.part_index, self._plan.num_parts]
        return {"kind": type(self).__name__, "batch_size": self.batch_size, "part": part}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, **self._facts())
        workers = state["workers"]
        if (workers is None) != (self._workers is None):
            count = 0 if workers is None else workers["workers"]
            raise ArgumentError(
                f"DataLoaderIter: the state was saved with {count} workers, but here are {len(self.pids)}; give "
                f"num_workers={count or None}"
            )
        if self._workers is not None:
            self._workers.load_state_dict(workers)
        self._batches.load_state_dict(state["batches"])
        batch, self._batches.current_batch = self._batches.current_batch, None
        self.current_batch = batch and self._finished(batch)

    def iter_next(self) -> bool:
        self._check_open()
        self.current_batch = None  # frees its memory for the worker, unless the caller holds the batch
        if not self._batches.iter_next():
            return False
        batch, self._batches.current_batch = self._batches.current_batch, None
        return self._keep(None if batch is None else self._finished(batch))

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("DataLoaderIter is closed; make a new one")

    def _finished(self, batch: DataBatch) -> DataBatch:
        """Convert the arrays of a batch and pad it."""
        arrays = [*(batch.data or ()), *(batch.label or ())]
        missing = self.batch_size - arrays[0].shape[0] if arrays and arrays[0].ndim else 0
        batch.data = [self._converted(each, missing) for each in batch.data or ()]
        batch.label = [self._converted(each, missing) for each in batch.label or ()]
        batch.pad = max(missing, 0)
        return batch

    def _converted(self, array: NDArray, missing: int) -> NDArray:
        if self._dtype is not None:
            array = array.astype(self._dtype, copy=False)
        if missing <= 0 or not array.ndim:
            return array
        padded = array.raw.new_zeros((self.batch_size, *array.shape[1:]))
        padded[: array.shape[0]] = array.raw
        return NDArray(padded, array.context)

    def close(self) -> None:
        self._closed = True
        if self._workers is not None:
            self._workers.close()


def _names(name: str | Sequence[str]) -> list[str]:
    return [name] if isinstance(name, str) else list(name)
