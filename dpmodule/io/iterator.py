"""The iterator interface, `DataIter`, and `ResizeIter`, which fixes the length of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, StateError
from .desc import DataBatch, DataDesc

__all__ = ["DataIter", "ResizeIter"]


class DataIter:
    """Interface of everything that yields batches.

    A subclass defines either `next`, or `iter_next` with `getdata`, `getlabel`, `getpad` and `getindex`; and
    `reset`, and the attributes or properties `provide_data` and `provide_label` (lists of DataDesc). An
    iterator is its own Python iterator: a second ``for`` loop goes on where the first one stopped, and only
    `reset` begins a new epoch.

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
    """

    if TYPE_CHECKING:  # no attributes at run time: subclasses set plain ones in __init__

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
        """Move on to the next batch, and say whether there was one."""
        raise NotImplementedError(f"{type(self).__name__} defines neither next nor iter_next")

    def getdata(self) -> Any:
        """Return the arrays of the current batch."""
        return None

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""
        return None

    def getindex(self) -> Any:
        """Return the example numbers of the current batch, None if they are not known."""
        return None

    def getpad(self) -> int | None:
        """Return the `pad` of the current batch."""
        return None


class CurrentBatch(DataIter):
    """Iterator that keeps its current batch, from which the getters read."""

    def __init__(self, batch_size: int = 0) -> None:
        super().__init__(batch_size)
        self.current_batch: DataBatch | None = None

    def _keep(self, batch: DataBatch | None) -> bool:
        """Make a batch the current one, and say whether it is one."""
        self.current_batch = batch
        return batch is not None

    def _current(self) -> DataBatch:
        if self.current_batch is None:
            raise StateError(f"{type(self).__name__} has no current batch; call next() or iter_next() first")
        return self.current_batch

    def next(self) -> DataBatch:
        """Return the next batch.

        Raises:
            StopIteration: the epoch is over.
        """
        if not self.iter_next():
            raise StopIteration
        return self._current()

    def getdata(self) -> Any:
        """Return the arrays of the current batch."""
        return self._current().data

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""
        return self._current().label

    def getindex(self) -> Any:
        """Return the example numbers of the current batch."""
        return self._current().index

    def getpad(self) -> int | None:
        """Return the `pad` of the current batch."""
        return self._current().pad


class ResizeIter(CurrentBatch):
    """Make every epoch of an iterator a given number of batches long.

    A shorter iterator is started again in the middle of the epoch, a longer one is cut.

    Args:
        data_iter: the iterator to read.
        size: number of batches in an epoch.
        reset_internal: whether `reset` also resets `data_iter`; otherwise the next epoch goes on where this
            one stopped.

    Raises:
        ArgumentError: `size` is not a positive number.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        if size < 1:
            raise ArgumentError(f"ResizeIter: size is {size}, expected at least 1 batch")
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
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
        """Begin a new epoch."""
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        """Move on to the next batch, and say whether there was one.

        Raises:
            StateError: the iterator inside yields nothing even after a reset.
        """
        if self.cur == self.size:
            return False
        batch = self._read()
        self.cur += 1
        return self._keep(batch)

    def _read(self) -> DataBatch:
        # twice: under roll-over, an epoch too short for a batch hands its rows to the next one
        for _ in range(2):
            batch = next(self.data_iter, None)
            if batch is not None:
                return batch
            self.data_iter.reset()
        batch = next(self.data_iter, None)
        if batch is None:
            raise StateError(f"ResizeIter: {type(self.data_iter).__name__} has no batches, even after reset")
        return batch
