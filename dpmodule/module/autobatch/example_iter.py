"""`ExampleIter`: batches of examples of any length, or of Python objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..._devices.generators import host
from ...base import ArgumentError
from ...io import DataBatch, DataDesc, DataIter
from ...io.iterator import check_state

Columns = dict[str, list[Any]]


class ExampleIter(DataIter):
    """Yields batches whose data and labels are lists of examples, for `AutobatchModule`.

    Nothing is padded or stacked: ``batch.data[0]`` is a list of the passed objects. The last batch of an epoch may be
    smaller.

    Args:
        data: list of the examples, or a dict of lists by name for several inputs.
        label: the labels in the same form; None for none.
        shuffle: True for a new random order in every epoch.

    Example:
        >>> it = mx.mod.ExampleIter([[1, 2, 3], [4], [5, 6]], [0, 1, 0], batch_size=2)
        >>> [(batch.data[0], batch.label[0]) for batch in it]
        [([[1, 2, 3], [4]], [0, 1]), ([[5, 6]], [0])]
    """

    def __init__(
        self,
        data: Sequence[Any] | Mapping[str, Sequence[Any]],
        label: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        super().__init__(batch_size)
        self._data = _columns(data, data_name)
        self._label = {} if label is None else _columns(label, label_name)
        lengths = {name: len(column) for name, column in {**self._data, **self._label}.items()}
        if len(set(lengths.values())) != 1 or not all(lengths.values()):
            raise ArgumentError(f"ExampleIter: lists of lengths {lengths}, expected equal ones, not empty")
        if batch_size < 1:
            raise ArgumentError(f"ExampleIter: batch_size is {batch_size}, expected a positive number")
        self._count = next(iter(lengths.values()))
        self._shuffle = shuffle
        self.provide_data = [DataDesc(name, (batch_size,)) for name in self._data]  # type: ignore[misc]
        self.provide_label = [DataDesc(name, (batch_size,)) for name in self._label]  # type: ignore[misc]
        self.reset()

    def reset(self) -> None:
        self._order = host().permutation(self._count).tolist() if self._shuffle else list(range(self._count))
        self._at = 0

    def state_dict(self) -> dict[str, Any]:
        return {**self._settings(), "order": np.array(self._order, np.int64), "at": self._at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, **self._settings())
        self._order, self._at = np.asarray(state["order"]).tolist(), state["at"]

    def _settings(self) -> dict[str, Any]:
        """Return the settings that an iterator needs to load this state."""
        return {"kind": type(self).__name__, "examples": self._count, "batch_size": self.batch_size}

    def next(self) -> DataBatch:
        if self._at >= self._count:
            raise StopIteration
        picked = self._order[self._at : self._at + self.batch_size]
        self._at += self.batch_size
        data = [[column[i] for i in picked] for column in self._data.values()]
        label = [[column[i] for i in picked] for column in self._label.values()]
        return DataBatch(data, label, 0, picked)


def _columns(columns: Sequence[Any] | Mapping[str, Sequence[Any]], name: str) -> Columns:
    if isinstance(columns, Mapping):
        return {key: list(column) for key, column in columns.items()}
    return {name: list(columns)}
