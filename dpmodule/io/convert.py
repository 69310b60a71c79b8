"""`as_data_iter`: read torch DataLoaders and other iterables as `DataIter`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._devices import generators
from .._object_state import (
    has_live_iterator,
    packed_changes,
    random_generators,
    restore,
    set_state,
    snapshot,
    state_of,
)
from ..base import ArgumentError, StateError
from ..ndarray import NDArray
from .desc import DataDesc
from .iterator import CurrentBatch, DataBatch, DataIter, check_state, shape_of
from .wrap import is_array, numbered_names, shares_read_only, wrap

_LARGEST = 2**20
"""Larger arrays are the data, which the resuming program has anyway."""
_BATCHES = frozenset({"current_batch", "_position"})
"""Attributes that do not affect the next epoch."""


class EpochStart:
    """Snapshot of an object, from which an equal object can begin the same epoch.

    Small plain attributes and all random generators of the object are kept; iterators, files and large arrays are
    not. A caller that reads the epoch again must therefore compare the batches.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._before = snapshot(source, _BATCHES, largest=_LARGEST)

    def state_dict(self) -> dict[str, Any]:
        """Return the changes since the object was created, and the states of all random generators."""
        attributes, unpackable = packed_changes(self._source, self._before, _BATCHES, largest=_LARGEST)
        return {
            "attributes": attributes,
            "lost": list(unpackable),
            "own": {path: state_of(each) for path, each in self._generators().items()},
            "generators": generators.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the object and all random generators to their state when `state_dict` was called."""
        restore(self._source, self._before, state["attributes"], leave_out=_BATCHES, largest=_LARGEST)
        for path, each in self._generators().items():
            if path in state["own"]:
                set_state(each, state["own"][path])
        generators.load_state_dict(state["generators"])

    def check(self, state: Mapping[str, Any], held: Mapping[str, Any] | None = None) -> None:
        """Refuse an epoch whose start could not be saved completely and of which no batch was read for comparison.

        Args:
            held: result of `live` before the epoch began; None if no epoch has begun.
        """
        now = self.live()
        data = [name for name in state["lost"] if name not in now]
        stale = [name for name in now if held is None or now[name] is held.get(name)]
        if wrong := [*data, *stale]:
            raise StateError(
                f"{type(self._source).__name__} does not save its position, and {', '.join(wrong)} cannot be "
                "restored on resume; give it state_dict and load_state_dict, or use DataLoaderIter"
            )

    def live(self) -> dict[str, Any]:
        """Return, by name, the attributes that have a position but cannot save it, such as iterators."""
        packed = snapshot(self._source, _BATCHES, largest=_LARGEST)
        return {name: getattr(self._source, name) for name, tree in packed.items() if has_live_iterator(tree)}

    def _generators(self) -> dict[str, Any]:
        return random_generators({"": self._source})


_KEPT = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64})
"""Types of tensors that are not converted; integers may be the numbers of words."""
_logger = logging.getLogger(__name__)

_DATA_NAME = "data"
_LABEL_NAME = "softmax_label"


def as_data_iter(
    data: Any, data_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None
) -> DataIter:
    """Return `data` as an iterator of DataBatch.

    Args:
        data: a DataIter, which is returned unchanged; or a torch DataLoader, a list or any other iterable of
            batches. A batch is a DataBatch, a pair ``(x, y)``, a flat tuple of as many arrays as there are
            names, a dict of arrays by name, or a single array; ``x`` and ``y`` may be tuples of several
            arrays.
        data_names: names of the data; by default "data", or ``_0_data``, ``_1_data`` for several arrays.
        label_names: names of the labels; by default "softmax_label" in the same way. Empty: labels are left out.

    Returns:
        the iterator. Its first batch has already been read for `provide_data`; `next` returns it first.

    Raises:
        ArgumentError: `data` is not an iterable of batches, or yields nothing.

    Example:
        >>> batches = [(np.ones((4, 2)), np.zeros(4)), (np.ones((3, 2)), np.zeros(3))]
        >>> it = mx.io.as_data_iter(batches)
        >>> it.provide_data, [batch.data[0].shape for batch in it]
        ([DataDesc[data,(4, 2),<class 'numpy.float32'>,NCHW]], [(4, 2), (3, 2)])
    """
    if isinstance(data, DataIter) or (hasattr(data, "provide_data") and hasattr(data, "reset")):
        ready: DataIter = data
        return ready
    return IterableIter(data, data_names, label_names)


def _in_shared_memory(data: Any) -> Any:
    """Return a loader of torch with workers as the one of `streams`, whose batches cost less; others as they are."""
    if type(data) is not torch.utils.data.DataLoader or not data.num_workers:
        return data
    from ..streams.data_loader import DataLoader

    return DataLoader.from_torch(data)


class IterableIter(CurrentBatch):
    """Read an iterable of batches; `reset` iterates over it again.

    Tensors of float32, of halves and of 32-bit and 64-bit integers are wrapped without copying; other tensors, such
    as bytes and doubles, and NumPy arrays become float32. A smaller last batch keeps its shape and is not padded. An
    iterable that can be read only once, such as a generator, gives one epoch.

    Args:
        data_names: names of the data, None for the default names.
        label_names: names of the labels, None for the default names, empty to leave labels out.
    """

    def __init__(
        self, data: Any, data_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None
    ) -> None:
        _check_iterable(data)
        self._iterable: Iterable[Any] = _in_shared_memory(data)
        self._layout = _ItemLayout(data_names, label_names)
        self._start = EpochStart(getattr(data, "index_source", self._iterable))
        self._begun_with: dict[str, Any] | None = self._start.state_dict()
        self._taken = 0
        self._items: Iterator[Any] | None = iter(self._iterable)
        self._one_shot = self._items is data
        self._resets = 0
        first = self._read()
        if first is None:
            raise ArgumentError(f"{type(data).__name__} yields no batches")
        self._peeked: DataBatch | None = first
        provided, labels = self._layout.describe(first)
        if not provided:
            raise ArgumentError(f"{type(data).__name__} yields batches without data")
        super().__init__(next(iter(provided[0].shape), 0))
        self._provide_data, self._provide_label = provided, labels

    def reset(self) -> None:
        if self._peeked is not None:
            return
        self._resets += 1
        if self._one_shot and self._resets > 1:
            raise self._spent()
        self._items = None
        self._begun_with, self._taken = None, 0
        self.current_batch = None

    def iter_next(self) -> bool:
        batch, self._peeked = self._peeked, None
        if batch is None:
            batch = self._read()
        if batch is not None:
            self._taken += 1
        return self._keep(batch)

    @property
    def begun(self) -> bool:
        """True if the epoch has been begun: `reset` does not begin one, the next batch does."""
        return self._begun_with is not None

    def state_dict(self) -> dict[str, Any]:
        start = self._start.state_dict() if self._begun_with is None else self._begun_with
        return {"kind": "IterableIter", "taken": self._taken, "begun": self.begun, "start": start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state)
        if state["taken"]:
            _logger.info("%s: reading %d batches again, to continue after them", self._name, state["taken"])
        now = generators.state_dict()
        if not (self._one_shot and self._peeked is not None):
            self._items, self._peeked = None, None
            self._begun_with = None
            self._start.load_state_dict(state["start"])
        self._taken = 0
        if state["begun"] and not state["taken"] and self._items is None:
            self._peeked = self._read()  # begins the epoch with the restored random numbers
        elif not state["begun"]:
            self._start.check(state["start"])
        for number in range(state["taken"]):
            if not self.iter_next():
                raise StateError(
                    f"{self._name} yielded only {number} batches, but the state was saved after {state['taken']}"
                )
        generators.load_state_dict(now)

    @property
    def _name(self) -> str:
        return type(self._iterable).__name__

    def _read(self) -> DataBatch | None:
        begins = self._items is None
        if self._items is None:
            if self._one_shot:
                raise self._spent()
            self._begun_with, self._taken = self._start.state_dict(), 0
            self._items = iter(self._iterable)
        for item in self._items:
            return self._layout.batch(item)
        if begins:  # earlier epochs had batches, so the object hides a generator
            raise self._spent()
        return None

    def _spent(self) -> StateError:
        return StateError(
            f"{type(self._iterable).__name__} can be read only once, and its epoch is over; for more "
            "epochs pass a list, a DataLoader or another object that can be iterated over again"
        )


class _ItemLayout:
    """Division of an item into data and labels, and their names."""

    def __init__(self, data_names: Sequence[str] | None, label_names: Sequence[str] | None) -> None:
        self._data_names = None if data_names is None else list(data_names)
        self._label_names = None if label_names is None else list(label_names)
        self._warned = False

    def batch(self, item: Any) -> DataBatch:
        if isinstance(item, DataBatch):
            return item
        data, label = self._split_dict(item) if isinstance(item, Mapping) else self._split(item)
        return DataBatch(_wrap_all(data, "data"), _wrap_all(label, "label"), pad=0)

    def describe(self, batch: DataBatch) -> tuple[list[DataDesc], list[DataDesc]]:
        data = batch.provide_data or _describe(batch.data, self._data_names, _DATA_NAME)
        label = batch.provide_label or _describe(batch.label, self._label_names, _LABEL_NAME)
        return data, label

    def _split(self, item: Any) -> tuple[list[Any], list[Any]]:
        """Split an array or a tuple of arrays into data and labels."""
        if not isinstance(item, (tuple, list)):
            return [item], []
        num_data = 1 if self._data_names is None else len(self._data_names)
        num_label = 1 if self._label_names is None else len(self._label_names)
        nested = any(_is_group(part) for part in item)
        if len(item) == num_data + num_label and not nested:
            return list(item[:num_data]), list(item[num_data:])
        if len(item) == 2 and (nested or num_data == 1):
            return _group(item[0]), [] if num_label == 0 else _group(item[1])
        if len(item) == num_data or len(item) == 1:
            return (list(item) if not nested else _group(item[0])), []
        raise ArgumentError(
            f"a batch is a {type(item).__name__} of {len(item)} parts, expected (data, label), or {num_data} "
            f"data and {num_label} label arrays for {self._data_names} and {self._label_names}"
        )

    def _split_dict(self, item: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """Return data and labels of a dict by name."""
        if self._label_names is None:
            self._label_names = [name for name in item if name.endswith("label")]
        if self._data_names is None:
            self._data_names = [name for name in item if name not in self._label_names]
        missing = [name for name in self._data_names if name not in item]
        if missing or not self._data_names:
            raise ArgumentError(
                f"a batch is a dict with {sorted(item)}, expected the data {missing or 'of the network'}"
            )
        labels = [name for name in self._label_names if name in item]
        self._warn_unused(set(item) - set(self._data_names) - set(labels))
        return [item[name] for name in self._data_names], [item[name] for name in labels]

    def _warn_unused(self, names: set[str]) -> None:
        if names and not self._warned:
            self._warned = True
            warnings.warn(
                f"batches hold {sorted(names)}, which are ignored: they are neither data {self._data_names} nor "
                f"labels {self._label_names}",
                stacklevel=2,
            )


def _check_iterable(data: Any) -> None:
    hint = "wrap arrays in NDArrayIter(data, label, batch_size)"
    if is_array(data):
        raise ArgumentError(f"data is one {type(data).__name__}, expected an iterable of batches; {hint}")
    if isinstance(data, (Mapping, str, bytes)) or not isinstance(data, Iterable):
        raise ArgumentError(
            f"data is {type(data).__name__}, expected a DataIter or an iterable of batches; {hint}"
        )
    if isinstance(data, tuple) and data and all(is_array(part) for part in data):
        raise ArgumentError(f"data is a tuple of {len(data)} arrays, expected an iterable of batches; {hint}")


def _is_group(value: object) -> bool:
    """Return True if `value` is a list of arrays, not one array or a list of numbers."""
    return isinstance(value, (tuple, list)) and any(is_array(part) for part in value)


def _group(value: Any) -> list[Any]:
    return list(value) if _is_group(value) else [value]


def _wrap_all(values: list[Any], what: str) -> list[NDArray]:
    return [_wrap(value, f"a batch's {what}") for value in values]


def _wrap(value: Any, what: str) -> NDArray:
    if isinstance(value, (list, tuple, int, float)):
        value = np.asarray(value)
    if isinstance(value, torch.Tensor) and value.dtype not in _KEPT:
        value = value.float()
    return wrap(value.copy() if shares_read_only(value) else value, what)


def _describe(arrays: Sequence[Any] | None, names: list[str] | None, default: str) -> list[DataDesc]:
    arrays = arrays or []
    if not arrays and default == _LABEL_NAME:
        return []  # batches for prediction
    if names is None:
        names = numbered_names(default, len(arrays))
    if len(names) != len(arrays):
        raise ArgumentError(f"a batch holds {len(arrays)} arrays, expected {len(names)}, for {names}")
    return [
        DataDesc(name, shape_of(each, name), each.dtype) for name, each in zip(names, arrays, strict=True)
    ]
