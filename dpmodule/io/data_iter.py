"""`MXDataIter`: base class of the iterators over files."""

from __future__ import annotations

import difflib
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ..base import ArgumentError, MXNetError, StateError
from ..ops.attrs import choice, integer, string
from ..ops.spec import REQUIRED, Attr
from .desc import DataDesc
from .iterator import DataBatch, DataIter, check_state

Options = Mapping[str, Attr]

OptionValues = SimpleNamespace
"""Options that `parse_options` returns, one attribute each."""

positive = integer(low=1)


def parse_options(owner: str, options: Options, given: Mapping[str, Any]) -> OptionValues:
    """Return an object with one attribute per option.

    Unknown options cause a warning and are ignored, since programs for MXNet pass some that it silently ignores.

    Args:
        given: options of the user; strings are parsed as in MXNet.
    """
    values = {}
    for name, option in options.items():
        if name not in given:
            if option.default is REQUIRED:
                raise ArgumentError(f"{owner}: {name} is required: {option.doc}, {option.type.expects}")
            values[name] = option.default
            continue
        try:
            values[name] = option.type.parse(given[name])
        except (ValueError, TypeError, KeyError, OverflowError, SyntaxError, RecursionError, MemoryError):
            raise ArgumentError(
                f"{owner}: {name} is {given[name]!r}, expected {option.type.expects} ({option.doc})"
            ) from None
    for name in given:
        if name not in options:
            near = difflib.get_close_matches(name, options, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.warn(f"{owner} has no option {name!r} and ignores it{hint}", stacklevel=3)
    return SimpleNamespace(**values)


def describe(cls: type, options: Options) -> None:
    """Generate the signature and the documented arguments of a class from its options."""
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if option.default is REQUIRED else option.default,
            annotation=option.type.annotation,
        )
        for name, option in options.items()
    ]
    cls.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    lines = [f"    {name}: {option.doc}; {option.type.expects}." for name, option in options.items()]
    before, raises, after = (inspect.getdoc(cls) or "").partition("Raises:")
    cls.__doc__ = "\n".join([f"{before}Args:", *lines, f"\n{raises}{after}"])


BATCH = {"batch_size": Attr(positive, "number of examples in a batch")}

PREFETCH = {
    "prefetch_buffer": Attr(integer(low=0), "number of batches read ahead", 4),
    "ctx": Attr(choice("cpu", "gpu"), "ignored: batches are made on the CPU", "gpu"),
}

THREADS = {
    "preprocess_threads": Attr(
        positive, "number of threads that parse or decode; it does not affect the results", 4
    ),
}

PARTS = {
    "num_parts": Attr(positive, "number of parts that the examples are split into", 1),
    "part_index": Attr(integer(low=0), "part to read, from 0", 0),
}

NAMES = {
    "data_name": Attr(string, "name of the data", "data"),
    "label_name": Attr(string, "name of the labels", "softmax_label"),
}


def check_parts(owner: str, o: OptionValues) -> None:
    """Refuse a part that does not exist."""
    if o.part_index >= o.num_parts:
        raise ArgumentError(
            f"{owner}: part_index is {o.part_index}, expected 0 to {o.num_parts - 1} (num_parts - 1)"
        )


_logger = logging.getLogger(__name__)

T = TypeVar("T")


class BatchSource(Protocol):
    """Source of the batches of an `MXDataIter`."""

    @property
    def data_desc(self) -> DataDesc:
        """Description of a batch's data."""

    @property
    def label_desc(self) -> DataDesc:
        """Description of a batch's labels."""

    def read(self) -> DataBatch | None:
        """Return the next batch, with one array of data and one of labels; None at the end of the epoch."""

    def reset(self) -> None:
        """Begin a new epoch."""


def check_count(what: str, count: int, state: Mapping[str, Any]) -> None:
    """Refuse a state of other data."""
    if state.get("examples") != count:
        raise ArgumentError(
            f"{what}: the state was saved with {state.get('examples')} examples, but here are {count}"
        )


class MXDataIter(DataIter):
    """Base class of the iterators over files, such as `CSVIter` and `ImageRecordIter`.

    `getdata` and `getlabel` return arrays, not lists of arrays as other iterators do.

    Args:
        handle: the source of batches.

    Source: MXNet 1.9.1 `MXDataIter`. Differences: `iter_next` also moves on from the first batch, and no batch is
    read before it is requested or read ahead.
    """

    def __init__(self, handle: BatchSource) -> None:
        super().__init__(handle.data_desc.shape[0])
        self.handle = handle
        self._current: DataBatch | None = None
        self._skip_load = False

    @property
    def provide_data(self) -> list[DataDesc]:
        """Description of a batch's data."""
        return [self.handle.data_desc]

    @property
    def provide_label(self) -> list[DataDesc]:
        """Description of a batch's labels."""
        return [self.handle.label_desc]

    def debug_skip_load(self) -> None:
        """Return the first batch every time, to measure a program without its input."""
        self._skip_load = True
        _logger.info("debug_skip_load is on: the first batch is returned every time")

    def reset(self) -> None:
        self.handle.reset()

    def state_dict(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "batch_size": self.batch_size,
            "source": self._stateful().state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, batch_size=self.batch_size)
        self._stateful().load_state_dict(state["source"])
        self._current = None

    def _stateful(self) -> Any:
        """Return the source, if it can save its position."""
        if not hasattr(self.handle, "state_dict"):
            raise NotImplementedError(f"{type(self).__name__} cannot save its position")
        return self.handle

    def iter_next(self) -> bool:
        if self._skip_load and self._current is not None:
            return True
        batch = self.handle.read()
        if batch is None:
            return False
        self._current = batch
        return True

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return self._batch()

    def _batch(self) -> DataBatch:
        if self._current is None:
            raise StateError(f"{type(self).__name__} has no current batch; call next() or iter_next() first")
        return self._current

    def getdata(self) -> Any:
        data = self._batch().data
        return data[0] if data else None

    def getlabel(self) -> Any:
        label = self._batch().label
        return label[0] if label else None

    def getindex(self) -> np.ndarray[Any, Any] | None:
        index: np.ndarray[Any, Any] | None = self._batch().index
        return index

    def getpad(self) -> int | None:
        return self._batch().pad


class Rounds(Generic[T]):
    """Batches from endless passes over the examples, as in MXNet.

    With `wrap`, the last batch of an epoch is padded from the next pass, and the next epoch continues after those
    examples. Otherwise it is padded with the last examples of the previous batch.

    Args:
        batch_size: number of examples in a batch.
        wrap: if True, the last batch is padded from the next pass.
    """

    def __init__(self, begin: Callable[[], Iterator[T]], batch_size: int, wrap: bool, what: str) -> None:
        self._begin, self._size, self._wrap, self._what = begin, batch_size, wrap, what
        self._round = begin()
        self._over = self._wrapped = False
        self._last: list[T] = []
        self._taken = 0

    def next(self) -> tuple[list[T], int] | None:
        """Return the examples of the next batch and its padding; None at the end of the epoch."""
        if self._over:
            return None
        rows = list(islice(self._round, self._size))
        self._taken += len(rows)
        missing = self._size - len(rows)
        if missing:
            self._over = True
            if not rows:
                return None
            rows += self._padding(missing, rows)
        self._last = rows
        return rows, missing

    def _padding(self, missing: int, rows: list[T]) -> list[T]:
        if not self._wrap:
            stale = self._last or (rows * self._size)[: self._size]
            return stale[-missing:]
        self._round, self._wrapped = self._begin(), True
        padding = list(islice(self._round, missing))
        self._taken = len(padding)
        if len(padding) < missing:
            raise MXNetError(
                f"{self._what} has {len(rows)} examples, too few to pad a batch of {self._size}; "
                "choose a smaller batch_size"
            )
        return padding

    def reset(self) -> None:
        """Begin a new epoch."""
        if not self._wrapped:
            self._round, self._taken = self._begin(), 0
        self._over = self._wrapped = False

    def state_dict(self) -> dict[str, Any]:
        """Return the position; the owner saves the state of the generator that `begin` uses."""
        return {"taken": self._taken, "over": self._over, "wrapped": self._wrapped, "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin a pass, and continue after the examples that were taken."""
        self._round = self._begin()
        self._taken = len(list(islice(self._round, state["taken"])))
        self._over, self._wrapped, self._last = state["over"], state["wrapped"], list(state["last"])

    def restart(self) -> None:
        """Begin a new epoch with the first example, even if the last batch was padded."""
        self._wrapped = False
        self.reset()
