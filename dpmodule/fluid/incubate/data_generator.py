"""Programs that turn lines of any format into MultiSlot lines, for `set_pipe_command` of a dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..._core import lazy
from ...base import ArgumentError

Sample = Sequence[tuple[str, Sequence[Any]]]
"""Pairs of a slot's name and its values."""


class MultiSlotDataGenerator:
    """Base class of such programs, which define `generate_sample`.

    Example:
        >>> import dpmodule.fluid.incubate.data_generator as dg
        >>> class Words(dg.MultiSlotDataGenerator):
        ...     def generate_sample(self, line):
        ...         yield [("words", [1, 2, 3]), ("label", [0])]
        >>> Words().run_from_memory()
        3 1 2 3 1 0

    Source: Paddle 1.8 `MultiSlotDataGenerator`.
    """

    batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Set the number of samples that `generate_batch` gets.

        Args:
            batch_size: number of samples, from 1.
        """
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> Any:
        """Return an iterator over the samples of a line, or a function that returns one; programs define it.

        Args:
            line: the line; None from `run_from_memory`.
        """
        raise NotImplementedError("generate_sample(line): define it in your class")

    def generate_batch(self, samples: list[Sample]) -> Any:
        """Return an iterator over the samples of a batch, or a function that returns one; programs can define it.

        Args:
            samples: of `generate_sample`.
        """
        return iter(samples)

    def run_from_stdin(self) -> None:
        """Write the samples of all lines of the standard input to the standard output."""
        self._write(sys.stdin)

    def run_from_memory(self) -> None:
        """Write the samples of one call of `generate_sample`, with None as its line."""
        self._write([None])

    def _write(self, lines: Iterable[str | None]) -> None:
        samples: list[Sample] = []
        for line in lines:
            for sample in _iterator(self.generate_sample(line)):
                if sample is None:
                    continue
                samples.append(sample)
                if len(samples) >= self.batch_size_:
                    self._write_batch(samples)
                    samples = []
        if samples:
            self._write_batch(samples)

    def _write_batch(self, samples: list[Sample]) -> None:
        for sample in _iterator(self.generate_batch(samples)):
            sys.stdout.write(" ".join(self._slot(*pair) for pair in sample) + "\n")

    def _slot(self, name: str, values: Sequence[Any]) -> str:
        if not isinstance(values, (list, tuple)) or not len(values):
            raise ArgumentError(
                f"generate_sample: slot {name!r} has the values {values!r}, expected a list of numbers"
            )
        return " ".join([str(len(values)), *map(str, values)])


class MultiSlotStringDataGenerator(MultiSlotDataGenerator):
    """The same for values that are strings already.

    Source: Paddle 1.8 `MultiSlotStringDataGenerator`.
    """


def _iterator(found: Callable[[], Iterable[Any]] | Iterable[Any]) -> Iterator[Any]:
    return iter(found() if callable(found) else found)


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
