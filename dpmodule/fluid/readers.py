"""Readers, as `paddle.reader` and `paddle.batch` make them: functions that return iterators over samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain as chained
from itertools import islice
from typing import Any

from .._core import lazy
from ..base import ArgumentError
from ..streams import ReadAhead

Reader = Callable[[], Iterable[Any]]


def batch(reader: Reader, batch_size: int, drop_last: bool = False) -> Reader:
    """Return a reader of lists of samples.

    Args:
        batch_size: number of samples in a list, from 1.
        drop_last: whether a last list with fewer samples is left out.

    Raises:
        ArgumentError: `batch_size` is below 1.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ArgumentError(f"batch: batch_size is {batch_size!r}, expected an integer from 1")

    def read() -> Iterator[list[Any]]:
        samples = iter(reader())
        while rows := list(islice(samples, batch_size)):
            if len(rows) == batch_size or not drop_last:
                yield rows

    return read


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Return a reader that shuffles within a buffer, with the random numbers of Python.

    Args:
        buf_size: number of samples in the buffer.
    """

    def read() -> Iterator[Any]:
        samples = iter(reader())
        while rows := list(islice(samples, buf_size)):
            random.shuffle(rows)
            yield from rows

    return read


def buffered(reader: Reader, size: int) -> Reader:
    """Return a reader that reads ahead in a thread.

    Args:
        size: number of samples to read ahead.
    """

    def read() -> Iterator[Any]:
        with ReadAhead(reader(), depth=size) as samples:
            yield from samples

    return read


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """Return a reader of the results of a function of a sample of each reader."""
    return lambda: map(func, *(reader() for reader in readers))


def chain(*readers: Reader) -> Reader:
    """Return a reader of all samples, reader by reader."""
    return lambda: chained.from_iterable(reader() for reader in readers)


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Return a reader of tuples of a sample of each reader; samples that are tuples are joined.

    Args:
        check_alignment: whether readers must have equal numbers of samples.

    Raises:
        ArgumentError: while reading: a reader ends before another one.
    """
    end = object()

    def read() -> Iterator[tuple[Any, ...]]:
        opened = [iter(reader()) for reader in readers]
        while True:
            parts = [next(each, end) for each in opened]
            if any(part is end for part in parts):
                if check_alignment and any(part is not end for part in parts):
                    raise ArgumentError(
                        "compose: a reader ends before another one; give check_alignment=False"
                    )
                return
            yield tuple(value for part in parts for value in (part if isinstance(part, tuple) else (part,)))

    return read


def firstn(reader: Reader, n: int) -> Reader:
    """Return a reader of the first samples.

    Args:
        n: their number.
    """
    return lambda: islice(reader(), n)


def cache(reader: Reader) -> Reader:
    """Return a reader that keeps all samples in memory."""
    kept: list[Any] = []

    def read() -> Iterator[Any]:
        if not kept:
            kept.extend(reader())
        return iter(kept)

    return read


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
