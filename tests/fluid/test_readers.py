"""Readers of `paddle.reader` and `paddle.batch`."""

import random

import pytest

from dpmodule.base import ArgumentError
from dpmodule.fluid import readers


def numbers(count):
    return lambda: iter(range(count))


def test_batches():
    assert list(readers.batch(numbers(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(readers.batch(numbers(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    with pytest.raises(ArgumentError, match="batch_size is 0"):
        readers.batch(numbers(5), 0)


def test_shuffles_within_the_buffer():
    random.seed(0)
    found = list(readers.shuffle(numbers(100), 40)())
    assert sorted(found) == list(range(100))
    assert found != sorted(found)
    assert set(found[:40]) == set(range(40))


def test_reading_ahead_keeps_order_and_errors():
    assert list(readers.buffered(numbers(50), 3)()) == list(range(50))

    def broken():
        yield 1
        raise OSError("full")

    found = readers.buffered(broken, 2)()
    assert next(found) == 1
    with pytest.raises(OSError, match="full"):
        next(found)


def test_joined_and_cut():
    assert list(readers.map_readers(lambda a, b: a + b, numbers(3), numbers(3))()) == [0, 2, 4]
    assert list(readers.chain(numbers(2), numbers(3))()) == [0, 1, 0, 1, 2]
    pairs = readers.compose(numbers(2), lambda: iter([(5, 6), (7, 8)]))
    assert list(pairs()) == [(0, 5, 6), (1, 7, 8)]
    assert list(readers.compose(numbers(2), numbers(3), check_alignment=False)()) == [(0, 0), (1, 1)]
    with pytest.raises(ArgumentError, match="a reader ends before another one"):
        list(readers.compose(numbers(2), numbers(3))())
    assert list(readers.firstn(numbers(9), 2)()) == [0, 1]


def test_a_cached_reader_reads_once():
    calls = []

    def counted():
        calls.append(1)
        return iter(range(3))

    kept = readers.cache(counted)
    assert [list(kept()) for _ in range(3)] == [[0, 1, 2]] * 3
    assert len(calls) == 1
