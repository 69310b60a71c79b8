"""`NDArrayIter`: batches from arrays in memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import torch

from .._devices import generators
from ..base import ArgumentError, OutOfMemoryError, ShapeError, StateError
from ..ndarray import NDArray
from ..ndarray.csr import CSRNDArray
from ..ndarray.ragged import RaggedNDArray
from .desc import DataDesc
from .iterator import DataBatch, DataIter, check_part, check_state
from .wrap import named_arrays, shares_read_only, wrap

_VERSION = attrgetter("_version")
_HANDLES = ("pad", "discard", "roll_over")
_NO_ROWS = torch.empty(0, dtype=torch.int64)


@dataclass(slots=True)
class _Source:
    """An array that is cut into batches along `axis`; batches of `read_only` memory are copies."""

    name: str
    array: NDArray
    axis: int
    read_only: bool

    @property
    def size(self) -> int:
        return self.array.shape[self.axis]

    def describe(self, batch_size: int, layout: str) -> DataDesc:
        shape = list(self.array.shape)
        shape[self.axis] = batch_size
        stype = "ragged" if self.array.stype == "ragged" else "default"
        return DataDesc(self.name, shape, self.array.dtype, layout, stype)

    def cut(self, start: int, length: int) -> NDArray:
        if isinstance(self.array, (CSRNDArray, RaggedNDArray)):
            return self.array[start : start + length]
        tensor = self.array.raw
        # a slice gives the same view as narrow in half the time
        view = tensor[start : start + length] if self.axis == 0 else tensor.narrow(self.axis, start, length)
        return NDArray(view.clone() if self.read_only else view, self.array.context)

    def part(self, num_parts: int, part_index: int) -> _Source:
        """Return every num_parts-th example, as a view if possible."""
        if isinstance(self.array, (CSRNDArray, RaggedNDArray)):
            array: NDArray = self.array.rows(torch.arange(part_index, self.size, num_parts))
        else:
            index = [slice(None)] * self.axis + [slice(part_index, None, num_parts)]
            array = NDArray(self.array.raw[tuple(index)], self.array.context)
        array.pinned = True
        return _Source(self.name, array, self.axis, self.read_only)

    def gather(self, rows: torch.Tensor) -> NDArray:
        if isinstance(self.array, (CSRNDArray, RaggedNDArray)):
            return self.array.rows(rows)
        tensor = self.array.raw
        return NDArray(tensor.index_select(self.axis, rows.to(tensor.device)), self.array.context)


class NDArrayIter(DataIter):
    """Cut arrays in memory into batches.

    Arrays of the right type (float32 NumPy arrays, tensors, NDArrays) are not copied. Without shuffling a batch is
    a view of them: copy a batch before writing into it. Shuffling does not change the arrays and gathers each batch.

    Args:
        data: an array, a list of arrays, or a dict of arrays by name. NumPy arrays are read as float32;
            tensors and NDArrays keep their type. A CSR array or a SciPy matrix gives CSR batches; a ragged array,
            or a list of rows in a dict such as ``{"words": [[3, 1], [4]]}``, gives ragged batches.
        label: the labels, in the same formats; may be None.
        batch_size: number of examples in a batch.
        shuffle: if True, each epoch takes the examples in a new random order.
        last_batch_handle: treatment of a last batch with too few examples: "pad" pads it with examples from the
            start of the epoch, "discard" drops it, "roll_over" moves its examples to the start of the next epoch.
        data_name: name of the data; several arrays in a list are named ``_0_data``, ``_1_data``.
        label_name: name of the labels, used in the same way.
        layout: meaning of the axes; batches are cut along axis "N". Arrays without this axis (labels under "TN") are
            cut along the first.
        num_parts: number of parts that the examples are split into, one for each of several processes.
        part_index: the part to read: examples part_index, part_index + num_parts, ...; every example is in one part,
            and the sizes of parts differ by one at most. `shuffle` orders each part separately.

    Raises:
        ArgumentError: `data` is empty, `last_batch_handle` is unknown, `batch_size` is below 1, `layout` has no "N", or
            the part does not exist or has no examples.
        ShapeError: an array is empty, or the arrays differ in their number of examples.
        DTypeError: an array does not hold numbers.

    Example:
        >>> it = mx.io.NDArrayIter(np.arange(10).reshape(5, 2), np.arange(5), batch_size=2)
        >>> [(batch.label[0].asnumpy().tolist(), batch.pad) for batch in it]
        [([0.0, 1.0], 0), ([2.0, 3.0], 0), ([4.0, 0.0], 1)]

    Source: MXNet 1.9.1 `NDArrayIter`; the order of a shuffled epoch is MXNet's after the same
    ``numpy.random.seed``. Differences: batches are views, `iter_next` also stops before a batch that
    `next` drops, and examples are counted along "N" in every layout.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
        *,
        num_parts: int = 1,
        part_index: int = 0,
    ) -> None:
        _check_options(batch_size, last_batch_handle, layout)
        check_part("NDArrayIter", num_parts, part_index)
        super().__init__(int(batch_size))
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.layout = layout
        data_pairs, label_pairs = named_arrays(data, data_name), named_arrays(label, label_name)
        if not data_pairs:
            raise ArgumentError(f"NDArrayIter: data is {data!r}, expected at least one array")
        self._data = _sources(data_pairs, "data", layout)
        self._label = _sources(label_pairs, "label", layout)
        self.num_data = _common_size(self._data + self._label)
        self._part = [0, 1]
        self._cut_part(num_parts, part_index)
        self.num_source = len(self._data) + len(self._label)
        self._provide_data = [each.describe(self.batch_size, layout) for each in self._data]
        self._provide_label = [each.describe(self.batch_size, layout) for each in self._label]
        self._warned = False
        self._rewind()
        self.reset()  # a subclass's, as in MXNet
        if last_batch_handle == "discard" and self._last_start < 0:
            warnings.warn(
                f"NDArrayIter: every epoch is empty, since batch_size is {batch_size}, there are only "
                f"{self.num_data} examples and last_batch_handle is 'discard'",
                stacklevel=2,
            )

    def _cut_part(self, num_parts: int, part_index: int) -> None:
        if num_parts == 1:
            return
        if part_index >= self.num_data:
            raise ArgumentError(
                f"NDArrayIter: part {part_index} of {num_parts} has no examples, there are only {self.num_data}"
            )
        self._data, self._label = (
            [each.part(num_parts, part_index) for each in sources] for sources in (self._data, self._label)
        )
        self._part, self.num_parts = [part_index, num_parts], num_parts
        self.num_data = _common_size(self._data + self._label)

    def _rewind(self) -> None:
        """Go back to before the first epoch, in the order of the arrays."""
        self._last_start = self.num_data - self.batch_size
        self._order: torch.Tensor | None = None  # None: the order of the arrays
        self._idx: Any = None
        self._watched = _watched(self._data + self._label)
        self._carried = _NO_ROWS
        self.cursor = -self.batch_size

    def take_part(self, num_parts: int, part_index: int) -> None:
        check_part("NDArrayIter", num_parts, part_index)
        if self._part[1] > 1:
            raise StateError(f"NDArrayIter already reads part {self._part[0]} of {self._part[1]}")
        self._cut_part(num_parts, part_index)
        self._rewind()
        self.reset()

    @property
    def data(self) -> list[tuple[str, NDArray]]:
        """Names and arrays of the data, in their original order even under `shuffle`.

        A subclass may set them, for example to rows that it has shuffled; batches are then cut from these rows.

        Raises:
            ShapeError: the arrays are empty, or differ in their number of examples.
        """
        return [(each.name, each.array) for each in self._data]

    @data.setter
    def data(self, pairs: list[tuple[str, Any]]) -> None:
        self._data = self._replaced(pairs, "data")

    @property
    def label(self) -> list[tuple[str, NDArray]]:
        """Names and arrays of the labels, in their original order even under `shuffle`; may be set as `data`.

        Raises:
            ShapeError: the arrays are empty, or differ in their number of examples.
        """
        return [(each.name, each.array) for each in self._label]

    @label.setter
    def label(self, pairs: list[tuple[str, Any]]) -> None:
        self._label = self._replaced(pairs, "label")

    def _replaced(self, pairs: list[tuple[str, Any]], what: str) -> list[_Source]:
        sources = _sources(pairs, what, self.layout)
        if sources:
            self.num_data = _common_size(sources)
            self._last_start = self.num_data - self.batch_size
        kept = self._label if what == "data" else self._data
        self._watched = _watched(sources + kept)
        self._seen_writes = self._writes()
        self._order = None
        return sources

    @property
    def data_list(self) -> list[NDArray]:
        """All arrays, data first."""
        return [each.array for each in self._data + self._label]

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of a batch's data."""
        return self._provide_data

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of a batch's labels."""
        return self._provide_label

    @property
    def idx(self) -> Any:
        """Row numbers in the order of the last shuffle: a NumPy array that may be shuffled in place."""
        if self._idx is None:
            self._idx = np.arange(self.num_data)
        return self._idx

    def reset(self) -> None:
        rest = _NO_ROWS
        if self.last_batch_handle == "roll_over" and self._last_start < self.cursor < self.num_data:
            rest = self._rows(self.cursor, self.num_data - self.cursor)
        self._begin(rest)

    def hard_reset(self) -> None:
        """Begin a new epoch and drop the examples that would have rolled over."""
        self._begin(_NO_ROWS)

    def _begin(self, carried: torch.Tensor) -> None:
        """Begin an epoch that starts with the rows `carried`."""
        self._carried = carried
        self.cursor = -self.batch_size - len(carried)
        if self.shuffle:
            self._reshuffle()
        self._seen_writes = self._writes()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._watched = _watched(self._data + self._label)  # unpickled tensors count their writes from 0
        self._seen_writes = self._writes()

    def state_dict(self) -> dict[str, Any]:
        return {
            **self._facts(),
            "cursor": self.cursor,
            "carried": self._carried,
            "order": self._order,
            "idx": self._idx,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, **self._facts())
        order, idx = state["order"], state["idx"]
        self.cursor = state["cursor"]
        self._carried = torch.as_tensor(state["carried"])
        self._order = None if order is None else torch.as_tensor(order)
        self._idx = idx
        self._seen_writes = self._writes()

    def _facts(self) -> dict[str, Any]:
        """Return the facts that an iterator must share to resume from this one's state."""
        return {
            "kind": type(self).__name__,
            "examples": self.num_data,
            "batch_size": self.batch_size,
            "last_batch_handle": self.last_batch_handle,
            "part": self._part,
        }

    def _reshuffle(self) -> None:
        # MXNet shuffles `idx` again each time and applies it to the already shuffled rows; doing the same gives the
        # same epochs for a numpy seed
        self._idx = np.array(self.idx)  # a state dict may hold the old one
        generators.host().shuffle(self._idx)
        step = torch.from_numpy(self._idx)
        self._order = step.clone() if self._order is None else self._order[step]

    def iter_next(self) -> bool:
        if self.cursor > self._last_start:
            return False
        self.cursor += self.batch_size
        if self.cursor <= self._last_start:
            return True
        return self.last_batch_handle == "pad" and self.cursor < self.num_data

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        if self._order is None and self._writes() != self._seen_writes:
            self._warn_written()
        batch = DataBatch(self.getdata(), self.getlabel(), self.getpad())
        if self.last_batch_handle == "roll_over":
            batch.rolled_over = True
        return batch

    def getdata(self) -> list[NDArray]:
        return self._parts(self._data)

    def getlabel(self) -> list[NDArray]:
        return self._parts(self._label)

    def getpad(self) -> int:
        if self.last_batch_handle == "pad":
            return max(0, self.cursor - self._last_start)
        return max(0, -self.cursor)

    def getindex(self) -> np.ndarray[Any, Any]:
        return self._batch_rows().numpy()

    def _parts(self, sources: list[_Source]) -> list[NDArray]:
        start, size = self.cursor, self.batch_size
        if self._order is None and 0 <= start <= self._last_start:
            return list(map(methodcaller("cut", start, size), sources))
        rows = self._batch_rows()
        return [each.gather(rows) for each in sources]

    def _batch_rows(self) -> torch.Tensor:
        """Return the numbers of the rows in the current batch."""
        start, size = self.cursor, self.batch_size
        if -len(self._carried) <= start <= self._last_start:
            return self._rows(start, size)
        if not 0 <= start < self.num_data or self.last_batch_handle != "pad":
            raise StateError(
                "NDArrayIter has no current batch; call next() first, or reset() after the last one"
            )
        try:
            wrapped = torch.arange(start, start + size) % self.num_data
        except RuntimeError as error:
            raise OutOfMemoryError.of(f"a batch of {size} examples", error) from error
        return wrapped if self._order is None else self._order[wrapped]

    def _rows(self, start: int, length: int) -> torch.Tensor:
        """Return row numbers from position `start` of the epoch; negative positions are rows carried over."""
        if start >= 0:
            return self._span(start, length)
        return torch.cat([self._carried[start:], self._span(0, start + length)])

    def _span(self, start: int, length: int) -> torch.Tensor:
        if self._order is None:
            return torch.arange(start, start + length)
        return self._order.narrow(0, start, length)

    def _writes(self) -> int:
        """Return the number of writes into the arrays that torch counted; a view and its base share the counter."""
        return sum(map(_VERSION, self._watched))

    def _warn_written(self) -> None:
        self._seen_writes = self._writes()
        if not self._warned:
            self._warned = True
            warnings.warn(
                "NDArrayIter: a write into a batch changed the array that the batch is a view of; "
                "copy a batch before changing it (batch.data[0].copy())",
                stacklevel=4,
            )


def _check_options(batch_size: int, last_batch_handle: str, layout: str) -> None:
    if batch_size < 1:
        raise ArgumentError(f"NDArrayIter: batch_size is {batch_size}, expected at least 1")
    if last_batch_handle not in _HANDLES:
        raise ArgumentError(
            f"NDArrayIter: last_batch_handle is {last_batch_handle!r}, expected one of {', '.join(_HANDLES)}"
        )
    if DataDesc.get_batch_axis(layout) < 0:
        raise ArgumentError(f"NDArrayIter: layout is {layout!r}, expected a layout with an axis 'N'")


def _sources(pairs: list[tuple[str, Any]], what: str, layout: str) -> list[_Source]:
    batch_axis = DataDesc.get_batch_axis(layout)
    sources = []
    for name, value in pairs:
        array = wrap(value, f"NDArrayIter: {what} {name!r}")
        if array.ndim == 0:
            raise ShapeError(f"NDArrayIter: {what} {name!r} is a single number, expected an axis of examples")
        array.pinned = True
        axis = batch_axis if batch_axis < array.ndim and array.stype == "default" else 0
        sources.append(_Source(name, array, axis, shares_read_only(value)))
    return sources


def _watched(sources: list[_Source]) -> list[torch.Tensor]:
    """Return the tensors whose batches are writable views."""
    dense = [each for each in sources if each.array.stype == "default"]
    return [each.array.raw for each in dense if not (each.read_only or each.array.raw.is_inference())]


def _common_size(sources: list[_Source]) -> int:
    """Return the number of examples, after checking that all arrays agree."""
    sizes = {each.name: each.size for each in sources}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{each.name!r} {each.array.shape}" for each in sources)
        raise ShapeError(f"NDArrayIter: arrays differ in their number of examples: {listed}")
    number = sources[0].size
    if number == 0:
        raise ShapeError(
            f"NDArrayIter: {sources[0].name!r} has no examples, its shape is {sources[0].array.shape}"
        )
    return number
