"""`DataLoader.from_generator`: feeds of a program from a Python generator, read ahead in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..base import ArgumentError, StateError
from ..streams import ReadAhead
from .feeding import DataFeeder
from .program import Program, default_main_program
from .variable import Variable

Reader = Callable[[], Iterable[Any]]
"""Function that returns an iterator over samples, lists of samples, or batches."""


class DataLoader:
    """Makes loaders, as Paddle 1.8 does."""

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """Return a loader, whose generator one of its methods sets.

        Args:
            feed_list: the variables that a batch feeds, in its order.
            capacity: number of batches to read ahead, from 1.
            use_double_buffer: accepted.
            iterable: whether the loader is iterated over; else `start` lets it feed the current program.
            return_list: whether a batch is a list of arrays; else it is a dict by name. The loader yields lists with
                one batch, as Paddle does on one place.
            use_multiprocess: accepted; the generator runs in a thread.
            drop_last: accepted.

        Raises:
            ArgumentError: `feed_list` is not a list of variables, or `capacity` is below 1.

        Example:
            >>> import dpmodule.fluid as fluid
            >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
            ...     x = fluid.data("x", [None, 2])
            ...     loader = fluid.io.DataLoader.from_generator([x], capacity=2)
            >>> loader = loader.set_sample_generator(lambda: ([n, 0.5] for n in range(5)), batch_size=2)
            >>> [batch["x"].tolist() for (batch,) in loader]
            [[[0.0, 0.5], [1.0, 0.5]], [[2.0, 0.5], [3.0, 0.5]]]
        """
        if not isinstance(feed_list, (list, tuple)) or not all(
            isinstance(each, Variable) for each in feed_list
        ):
            raise ArgumentError(f"from_generator: feed_list is {feed_list!r}, expected a list of variables")
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ArgumentError(f"from_generator: capacity is {capacity!r}, expected an integer from 1")
        return GeneratorLoader(feed_list, capacity, iterable, return_list)


def PyReader(
    feed_list: Sequence[Variable] | None = None,
    capacity: int = 2,
    use_double_buffer: bool = True,
    iterable: bool = True,
    return_list: bool = False,
) -> GeneratorLoader:
    """Return a loader as `DataLoader.from_generator` does, under the name of Paddle 1.5."""
    return DataLoader.from_generator(feed_list, capacity, use_double_buffer, iterable, return_list)


class GeneratorLoader:
    """Batches from a generator; made by `DataLoader.from_generator`."""

    def __init__(
        self, feed_list: Sequence[Variable], capacity: int, iterable: bool, return_list: bool
    ) -> None:
        self._variables, self._capacity = list(feed_list), capacity
        self._is_iterable, self._returns_list = iterable, return_list
        self._program: Program = default_main_program()
        self._batches: Callable[[], Iterator[dict[str, Any]]] | None = None
        self._running: ReadAhead[dict[str, Any]] | None = None
        if not iterable:
            self._program.feeder = self

    # what is read

    def set_sample_generator(
        self, reader: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Read a sample at a time.

        Args:
            reader: function that returns an iterator over samples, with a value for each variable.
            batch_size: number of samples in a batch, from 1.
            drop_last: whether a last batch with fewer samples is left out.
            places: accepted.

        Raises:
            ArgumentError: `batch_size` is below 1.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(
                f"set_sample_generator: batch_size is {batch_size!r}, expected an integer from 1"
            )
        single = len(self._variables) == 1

        def lists() -> Iterator[list[Any]]:
            samples = iter(reader())
            while rows := list(islice(samples, batch_size)):
                if len(rows) == batch_size or not drop_last:
                    yield [row if isinstance(row, tuple) or not single else (row,) for row in rows]

        return self.set_sample_list_generator(lists, places)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Read a list of samples at a time.

        Args:
            reader: function that returns an iterator over batches, each a list of samples.
            places: accepted.
        """
        feeder = DataFeeder(self._variables)
        self._batches = lambda: map(feeder.feed, reader())
        return self

    def set_batch_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Read a batch at a time.

        Args:
            reader: function that returns an iterator over batches, each with an array for each variable.
            places: accepted.
        """
        self._batches = lambda: map(self._named, reader())
        return self

    decorate_sample_generator = set_sample_generator
    decorate_sample_list_generator = decorate_paddle_reader = set_sample_list_generator
    decorate_batch_generator = decorate_tensor_provider = set_batch_generator

    @property
    def queue(self) -> GeneratorLoader:
        """Itself: programs ask for its `size`."""
        return self

    def size(self) -> int:
        """Return the number of batches that are read ahead at present."""
        return 0 if self._running is None else self._running.num_ready()

    @property
    def iterable(self) -> bool:
        """True if it is iterated over; else it feeds its program."""
        return self._is_iterable

    @property
    def variables(self) -> list[Variable]:
        """The variables that a batch feeds."""
        return self._variables

    def _named(self, batch: Any) -> dict[str, Any]:
        values = batch if isinstance(batch, (list, tuple)) else [batch]
        if len(values) != len(self._variables):
            raise ArgumentError(
                f"the generator yields {len(values)} values, but feed_list has {len(self._variables)} variables"
            )
        return {
            variable.name: value if variable.lod_level else np.asarray(value, dtype=variable.dtype)
            for variable, value in zip(self._variables, values)
        }

    def _opened(self) -> ReadAhead[dict[str, Any]]:
        if self._batches is None:
            raise StateError(
                "the loader has no generator; call set_sample_generator(...) or one like it first"
            )
        return ReadAhead(self._batches(), depth=self._capacity, owner="DataLoader")

    # iteration

    def __iter__(self) -> Iterator[Any]:
        if not self._is_iterable:
            raise StateError("the loader has iterable=False: it feeds its program; call start()")
        with self._opened() as batches:
            for batch in batches:
                yield [list(batch.values()) if self._returns_list else batch]  # one item for each place

    def __call__(self) -> Iterator[Any]:
        return iter(self)

    # feeding a program

    def start(self) -> None:
        """Begin to feed the program.

        Raises:
            StateError: the loader is iterable, or it feeds the program already.
        """
        if self._is_iterable:
            raise StateError(
                "the loader is iterable: pass its batches as feed; iterable=False feeds its program"
            )
        if self._running is not None:
            raise StateError("the loader feeds its program already; call reset() first")
        self._running = self._opened()

    def reset(self) -> None:
        """End feeding the program, after the last batch or before."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def next_feed(self) -> dict[str, Any] | None:
        """Return the next batch for the program; None after the last one.

        Raises:
            StateError: `start` was not called.
        """
        if self._running is None:
            raise StateError("the loader does not feed its program yet; call start() first")
        return next(self._running, None)
