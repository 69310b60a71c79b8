"""Batches and iterators over them: `DataBatch`, the interface `DataIter`, and `ResizeIter`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from .._core.overrides import overrides
from ..base import ArgumentError, StateError
from .desc import DataDesc
from .to_torch import BatchDataset


def check_part(owner: str, num_parts: int, part_index: int) -> None:
    """Refuse a part that does not exist.

    Args:
        num_parts: number of parts.
        part_index: index of the part, from 0.
    """
    if num_parts < 1:
        raise ArgumentError(f"{owner}: num_parts is {num_parts}, expected at least 1")
    if not 0 <= part_index < num_parts:
        raise ArgumentError(
            f"{owner}: part_index is {part_index}, expected 0 to {num_parts - 1} (num_parts - 1)"
        )


class EveryNth:
    """Every n-th item of an iterable.

    Args:
        num_parts: number of parts.
        part_index: the part, from 0: items part_index, part_index + num_parts, ...
    """

    def __init__(self, items: Iterable[Any], num_parts: int, part_index: int) -> None:
        self._items, self._parts, self._index = items, num_parts, part_index

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._items), self._index, None, self._parts)


class DataBatch:
    """One batch: its arrays, its labels and their description.

    Args:
        data: arrays in the order of `provide_data`.
        label: arrays in the order of `provide_label`; may be None.
        pad: number of rows that are not new in this batch: padding at the end or, with "roll_over", rows at the
            start that the previous epoch left over. See `num_padding`.
        index: numbers of the examples, if known.
        bucket_key: bucket of the batch.
        provide_data: descriptions of `data`, if they change from batch to batch.
        provide_label: descriptions of `label`, if they change from batch to batch.

    Raises:
        ArgumentError: `data` or `label` is neither a list, a tuple nor None.

    Source: MXNet 1.9.1 `io.DataBatch`.
    """

    rolled_over = False
    """True if `pad` counts rows left over from the previous epoch, which are not padding."""

    def __init__(
        self,
        data: Sequence[Any] | None,
        label: Sequence[Any] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: list[DataDesc] | None = None,
        provide_label: list[DataDesc] | None = None,
    ) -> None:
        if data is not None and not isinstance(data, (list, tuple)):
            raise ArgumentError(f"DataBatch: data is {_kind(data)}, expected a list of arrays; write [data]")
        if label is not None and not isinstance(label, (list, tuple)):
            raise ArgumentError(
                f"DataBatch: label is {_kind(label)}, expected a list of arrays; write [label]"
            )
        self.data = cast("list[Any]", data)
        self.label = cast("list[Any]", label)
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    @property
    def num_padding(self) -> int:
        """Number of padding rows at the end, which should not be counted."""
        return 0 if self.rolled_over else self.pad or 0

    def __str__(self) -> str:
        data = None if self.data is None else [each.shape for each in self.data]
        label = None if self.label is None else [each.shape for each in self.label]
        return f"DataBatch: data shapes: {data} label shapes: {label}"

    __repr__ = __str__


def shape_of(array: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an array of a batch.

    Args:
        name: the input's name, for the error.
    """
    if not hasattr(array, "shape"):
        raise ArgumentError(
            f"the batch has a {type(array).__name__} for {name!r}, expected an array; "
            "convert it with mx.nd.array or numpy.asarray"
        )
    return tuple(array.shape)


class DataIter:
    """Interface of iterators over batches.

    A subclass defines either `next`, or `iter_next` with `getdata`, `getlabel`, `getpad` and `getindex`; and
    `reset`, and the attributes or properties `provide_data` and `provide_label` (lists of DataDesc). ``iter``
    returns the iterator itself: a second ``for`` loop continues where the first stopped, and only `reset` begins a
    new epoch.

    Args:
        batch_size: number of examples in a batch.

    Example:
        >>> class Ones(mx.io.DataIter):
        ...     provide_data, provide_label, left = [mx.io.DataDesc("data", (2, 3))], [], 4
        ...     def next(self):
        ...         self.left -= 1
        ...         if self.left < 0:
        ...             raise StopIteration
        ...         return mx.io.DataBatch([mx.nd.ones((2, 3))])
        ...     def reset(self):
        ...         self.left = 4

    Source: MXNet 1.9.1 `io.DataIter`.
    """

    num_parts = 1
    """Number of parts that the examples are split into; this iterator reads one of them."""

    if TYPE_CHECKING:  # subclasses may set plain attributes

        @property
        def provide_data(self) -> list[DataDesc]:
            """Descriptions of a batch's data."""
            raise NotImplementedError

        @property
        def provide_label(self) -> list[DataDesc]:
            """Descriptions of a batch's labels."""
            raise NotImplementedError

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> DataIter:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Begin a new epoch."""

    def next(self) -> DataBatch:
        """Return the next batch.

        Raises:
            StopIteration: the epoch is over.
        """
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def iter_next(self) -> bool:
        """Move to the next batch; return False if there is none."""
        raise NotImplementedError(f"{type(self).__name__} defines neither next nor iter_next")

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data and arrays, for `load_state_dict` of an equal iterator.

        Raises:
            NotImplementedError: the iterator cannot save its position.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define state_dict")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at the position of an equal iterator: `next` returns the batches that remained there.

        Args:
            state: result of its `state_dict`.

        Raises:
            ArgumentError: the state is of an iterator over other data.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define load_state_dict")

    def to_torch(self) -> BatchDataset:
        """Return the batches as a torch `IterableDataset`.

        An item is one batch, a tuple of tensors: the arrays of `provide_data`, then of `provide_label`, without padding
        rows. The first iteration continues at the current batch; further ones reset the iterator first. The tensors
        share the memory of the batch: copy one before writing into it. A DataLoader over the dataset needs
        ``batch_size=None`` and no workers.

        Example:
            >>> it = mx.io.NDArrayIter(np.ones((3, 2)), np.arange(3), batch_size=2)
            >>> [(x.shape, y.tolist()) for x, y in torch.utils.data.DataLoader(it.to_torch(), batch_size=None)]
            [(torch.Size([2, 2]), [0.0, 1.0]), (torch.Size([1, 2]), [2.0])]
        """
        return BatchDataset(self)

    def take_part(self, num_parts: int, part_index: int) -> None:
        """Read only one of several equal parts of the examples from now on, and begin an epoch.

        Args:
            part_index: index of the part, from 0.

        Raises:
            ArgumentError: the part does not exist.
            StateError: the iterator already reads a part.
            NotImplementedError: the iterator does not support this; it may have options `num_parts` and `part_index`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define take_part")

    def getdata(self) -> Any:
        """Return the arrays of the current batch."""
        return None

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""
        return None

    def getindex(self) -> Any:
        """Return the example numbers of the current batch; None if unknown."""
        return None

    def getpad(self) -> int | None:
        """Return the `pad` of the current batch."""
        return None


def check_state(owner: DataIter, state: Any, **here: Any) -> None:
    """Refuse a state saved by an iterator of another kind or over other data.

    Args:
        owner: iterator that loads the state.
        here: facts that must be the same in the state, by name.
    """
    kind = type(owner).__name__
    if not isinstance(state, Mapping) or "kind" not in state:
        raise ArgumentError(f"{kind}: the state is {_kind(state)}, expected the result of state_dict()")
    facts = {"kind": kind, **here}
    wrong = [
        f"{name} is {state.get(name)!r}, here {value!r}"
        for name, value in facts.items()
        if state.get(name) != value
    ]
    if wrong:
        raise ArgumentError(f"{kind}: the state was saved by a different iterator: {'; '.join(wrong)}")


class CurrentBatch(DataIter):
    """Iterator that keeps the descriptions of its batches, and the current batch for the getters."""

    def __init__(self, batch_size: int = 0) -> None:
        super().__init__(batch_size)
        self.current_batch: DataBatch | None = None
        self._provide_data: list[DataDesc] = []
        self._provide_label: list[DataDesc] = []

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of a batch's data."""
        return self._provide_data

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of a batch's labels."""
        return self._provide_label

    def _keep(self, batch: DataBatch | None) -> bool:
        """Set the current batch; return False if it is None."""
        self.current_batch = batch
        return batch is not None

    def _current(self) -> DataBatch:
        if self.current_batch is None:
            raise StateError(f"{type(self).__name__} has no current batch; call next() or iter_next() first")
        return self.current_batch

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return self._current()

    def getdata(self) -> Any:
        return self._current().data

    def getlabel(self) -> Any:
        return self._current().label

    def getindex(self) -> Any:
        return self._current().index

    def getpad(self) -> int | None:
        return self._current().pad


class ResizeIter(CurrentBatch):
    """Make every epoch of an iterator a given number of batches long.

    A shorter iterator starts again in the middle of the epoch, a longer one is cut.

    Args:
        size: number of batches in an epoch.
        reset_internal: if True, `reset` also resets `data_iter`; otherwise the next epoch continues where this one
            stopped.

    Raises:
        ArgumentError: `size` is not a positive number.

    Source: MXNet 1.9.1 `io.ResizeIter`.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        if size < 1:
            raise ArgumentError(f"ResizeIter: size is {size}, expected at least 1 batch")
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
        self.num_parts = getattr(data_iter, "num_parts", 1)
        self.cur = 0
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of a batch's data."""
        return self.data_iter.provide_data

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of a batch's labels."""
        return self.data_iter.provide_label

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def next(self) -> DataBatch:
        batch, getters = super().next(), ("data", "label", "pad", "index")
        own = [name for name in getters if overrides(self, ResizeIter, f"get{name}")]
        if own:
            batch = copy(batch)
            for name in own:
                setattr(batch, name, getattr(self, f"get{name}")())
        return batch

    def iter_next(self) -> bool:
        if self.cur == self.size:
            return False
        batch = self._read()
        self.cur += 1
        return self._keep(batch)

    def state_dict(self) -> dict[str, Any]:
        return {
            "kind": "ResizeIter",
            "size": self.size,
            "cur": self.cur,
            "inner": self.data_iter.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, size=self.size)
        self.data_iter.load_state_dict(state["inner"])
        self.cur = state["cur"]
        self.current_batch = None

    def take_part(self, num_parts: int, part_index: int) -> None:
        self.data_iter.take_part(num_parts, part_index)
        self.num_parts = num_parts
        self.cur = 0
        self.current_batch = None

    def _read(self) -> DataBatch:
        # twice: with "roll_over", an epoch shorter than a batch moves its rows to the next
        for _ in range(2):
            batch = next(self.data_iter, None)
            if batch is not None:
                return batch
            self.data_iter.reset()
        batch = next(self.data_iter, None)
        if batch is None:
            raise StateError(f"ResizeIter: {type(self.data_iter).__name__} has no batches, even after reset")
        return batch


def _kind(value: object) -> str:
    """Return the name of a value's type, with its shape if it has one."""
    shape = getattr(value, "shape", None)
    return type(value).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
