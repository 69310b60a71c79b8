"""`PrefetchingIter`: reading iterators in background threads."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, MXNetError, StateError
from ..streams.read_ahead import ReadAhead
from .desc import DataDesc
from .iterator import CurrentBatch, DataBatch, DataIter, check_state


class PrefetchingIter(CurrentBatch, Closing):
    """Read one or several iterators in background threads and join their batches.

    Reading starts immediately and after each `reset`. `next` raises an error of an iterator, with its type and its
    traceback in the thread, and raises it again until `reset`. Deleting the object or leaving its ``with`` block ends
    the threads.

    Args:
        iters: an iterator, or a list of iterators with the same number of batches.
        rename_data: one dict per iterator from data names to new names; other names stay.
        rename_label: the same for label names.
        depth: number of batches of each iterator that are read ahead.

    Raises:
        ArgumentError: there are no iterators, a renaming does not have one dict per iterator, or `depth` is below 1.

    Example:
        >>> first, second = mx.io.NDArrayIter(np.ones(4)), mx.io.NDArrayIter(np.zeros(4))
        >>> with mx.io.PrefetchingIter([first, second], rename_data=[{"data": "a"}, {"data": "b"}]) as both:
        ...     [desc.name for desc in both.provide_data]
        ['a', 'b']

    Source: MXNet 1.9.1 `PrefetchingIter`, which hangs when an iterator fails.
    """

    def __init__(
        self,
        iters: DataIter | Sequence[DataIter],
        rename_data: Sequence[Mapping[str, str]] | None = None,
        rename_label: Sequence[Mapping[str, str]] | None = None,
        depth: int = 1,
    ) -> None:
        self.iters: list[DataIter] = list(iters) if isinstance(iters, Sequence) else [iters]
        if not self.iters:
            raise ArgumentError("PrefetchingIter: iters is empty, expected at least one iterator")
        if depth < 1:
            raise ArgumentError(f"PrefetchingIter: depth is {depth}, expected at least 1 batch")
        self.n_iter = len(self.iters)
        self._depth = depth
        self.rename_data = _one_each(rename_data, self.n_iter, "rename_data")
        self.rename_label = _one_each(rename_label, self.n_iter, "rename_label")
        super().__init__(self.iters[0].batch_size)
        self.num_parts = max(getattr(each, "num_parts", 1) for each in self.iters)
        self._describe()
        self._save_epoch_start()
        self._readers = [
            ReadAhead[DataBatch](each, depth, f"PrefetchingIter-{i}", "PrefetchingIter")
            for i, each in enumerate(self.iters)
        ]
        self._finalizer = weakref.finalize(self, _stop_all, self._readers)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a recipe for a copy, with its own iterators and threads, that continues at the same batch."""
        if not self._finalizer.alive:
            raise StateError("PrefetchingIter is closed; make a new one")
        try:
            state = self.state_dict()
            with ExitStack() as stack:
                for reader in self._readers:
                    stack.enter_context(reader.paused())
                iters = copy.deepcopy(self.iters)
        except (NotImplementedError, TypeError, AttributeError, MXNetError, pickle.PicklingError) as error:
            kinds = ", ".join(type(each).__name__ for each in self.iters)
            raise StateError(
                f"PrefetchingIter cannot be copied or pickled, since {kinds} cannot ({error}); make a new one"
            ) from error
        return _resume, (iters, self.rename_data, self.rename_label, self._depth, state)

    def _describe(self) -> None:
        # called while no thread reads, since an iterator may compute these
        data = [getattr(each, "provide_data", None) for each in self.iters]
        label = [getattr(each, "provide_label", None) for each in self.iters]
        self._provide_data = _renamed(data, self.rename_data)
        self._provide_label = _renamed(label, self.rename_label)

    def reset(self) -> None:
        self._begin(lambda each: each.reset())

    def take_part(self, num_parts: int, part_index: int) -> None:
        self._begin(lambda each: each.take_part(num_parts, part_index))
        self.num_parts = num_parts

    def _begin(self, change: Callable[[DataIter], None]) -> None:
        """Change the iterators while no thread reads, and restart reading."""
        if not self._finalizer.alive:
            raise StateError("PrefetchingIter is closed; make a new one")
        try:
            for reader in self._readers:
                reader.hold()
            for each in self.iters:
                change(each)
            self._describe()
            self._save_epoch_start()
        finally:
            for reader in self._readers:
                reader.release()
        self.current_batch = None

    def iter_next(self) -> bool:
        # take no batch before all have one, so that Ctrl-C while waiting leaves the readers in step
        batches = [reader.peek() for reader in self._readers]
        if all(batch is None for batch in batches):
            return False
        ready = [batch for batch in batches if batch is not None]
        if len(ready) < len(batches):
            ended = [i for i, batch in enumerate(batches) if batch is None]
            raise StateError(
                f"PrefetchingIter: iterators {ended} ended before the others; give all the same number of batches"
            )
        for reader in self._readers:
            reader.advance()
        self._taken += 1
        return self._keep(self._join(ready))

    def _save_epoch_start(self) -> None:
        """Save the states before a thread reads, if the iterators support it."""
        self._taken = 0
        self._generators = generators.state_dict()
        try:
            self._beginnings: list[Any] | None = [each.state_dict() for each in self.iters]
        except NotImplementedError:
            self._beginnings = None

    def state_dict(self) -> dict[str, Any]:
        if self._beginnings is None:
            raise NotImplementedError("PrefetchingIter: one of its iterators does not define state_dict")
        return {
            "kind": "PrefetchingIter",
            "iters": self._beginnings,
            "taken": self._taken,
            "generators": self._generators,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state)
        if len(state["iters"]) != self.n_iter:
            raise ArgumentError(
                f"PrefetchingIter: the state has {len(state['iters'])} iterators, but here are {self.n_iter}"
            )
        now = generators.state_dict()
        for reader in self._readers:
            reader.hold()
        try:
            generators.load_state_dict(state["generators"])
            for each, inner in zip(self.iters, state["iters"], strict=True):
                each.load_state_dict(inner)
            self._save_epoch_start()
        finally:
            for reader in self._readers:
                reader.release()
        for _ in range(state["taken"]):
            self.iter_next()
        self.current_batch = None
        generators.load_state_dict(now)

    def _join(self, batches: list[DataBatch]) -> DataBatch:
        first = batches[0]
        pads = [batch.pad or 0 for batch in batches]
        if len(set(pads)) > 1:
            raise StateError(f"PrefetchingIter: the iterators' batches have different padding: {pads} rows")
        joined = DataBatch(
            data=[array for batch in batches for array in batch.data or ()],
            label=[array for batch in batches for array in batch.label or ()],
            pad=first.pad,
            index=first.index,
            bucket_key=first.bucket_key,
            provide_data=self._provide_data,
            provide_label=self._provide_label,
        )
        if any(batch.provide_data for batch in batches):  # the shapes change, for example with buckets
            joined.provide_data = _renamed([batch.provide_data for batch in batches], self.rename_data)
            joined.provide_label = _renamed([batch.provide_label for batch in batches], self.rename_label)
        joined.rolled_over = getattr(first, "rolled_over", False)
        return joined

    def close(self) -> None:
        if self._finalizer.detach() is not None:
            _stop_all(self._readers)
            for reader in self._readers:
                reader.join()


def _resume(
    iters: list[DataIter],
    rename_data: list[Mapping[str, str]],
    rename_label: list[Mapping[str, str]],
    depth: int,
    state: Mapping[str, Any],
) -> PrefetchingIter:
    """Return an iterator that resumes from a state."""
    batches = PrefetchingIter(iters, rename_data, rename_label, depth)
    batches.load_state_dict(state)
    return batches


def _stop_all(readers: list[ReadAhead[DataBatch]]) -> None:
    for reader in readers:
        reader.stop()


def _one_each(names: Sequence[Mapping[str, str]] | None, count: int, what: str) -> list[Mapping[str, str]]:
    if names is None:
        return [{}] * count
    if isinstance(names, Mapping) or len(names) != count:
        raise ArgumentError(
            f"PrefetchingIter: {what} is {names!r}, expected a list of {count} dicts, one per iterator"
        )
    return list(names)


def _renamed(
    descriptions: Sequence[Sequence[Any] | None], renames: Sequence[Mapping[str, str]]
) -> list[DataDesc]:
    """Join lists of descriptions under their new names; (name, shape) pairs become descriptions."""
    renamed = []
    for descs, names in zip(descriptions, renames, strict=True):
        for desc in descs or ():
            full = desc if isinstance(desc, DataDesc) else DataDesc(*desc)
            renamed.append(full._replace(name=names.get(full.name, full.name)))
    return renamed
