"""DataIter as users subclass it, and ResizeIter."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/io/iterators.json").read_text())
X, Y = np.arange(22, dtype="f4").reshape(11, 2), np.arange(11, dtype="f4")


class OnlyNext(mx.io.DataIter):
    """The least a user defines; the descriptions are plain attributes."""

    def __init__(self, count):
        super().__init__(batch_size=2)
        self.count, self.at = count, 0
        self.provide_data = [("data", (2, 3))]
        self.provide_label = []

    def next(self):
        if self.at == self.count:
            raise StopIteration
        self.at += 1
        return mx.io.DataBatch([mx.nd.full((2, 3), self.at)], [], pad=0)

    def reset(self):
        self.at = 0


class OnlyGetters(mx.io.DataIter):
    at = 0

    def iter_next(self):
        self.at += 1
        return self.at < 4

    def getdata(self):
        return [self.at]

    def getlabel(self):
        return [-self.at]

    def getpad(self):
        return 1

    def getindex(self):
        return 5


def test_an_iterator_may_define_only_next():
    it = OnlyNext(3)
    assert [batch.data[0].asnumpy()[0, 0] for batch in it] == [1, 2, 3]
    assert list(it) == []
    it.reset()
    assert next(it).data[0].shape == (2, 3)


def test_an_iterator_may_define_only_the_getters():
    assert [(b.data, b.label, b.pad, b.index) for b in OnlyGetters()] == [
        ([i], [-i], 1, 5) for i in (1, 2, 3)
    ]


def test_an_iterator_that_defines_neither_says_so():
    with pytest.raises(NotImplementedError, match="Nothing defines neither next nor iter_next"):
        type("Nothing", (mx.io.DataIter,), {})().next()


def described(it):
    return [[b.data[0].asnumpy()[:, 0].tolist(), b.label[0].asnumpy().tolist(), b.pad] for b in it]


def test_resizing_is_mxnets():
    it = mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, batch_size=4, last_batch_handle="discard"), 5)
    for want in GOLDENS["resized"]:
        assert described(it) == want
        it.reset()
    it = mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, batch_size=4), 2, reset_internal=False)
    for want in GOLDENS["resized_without_reset"]:
        assert described(it) == want
        it.reset()


def test_resized_iterator_shows_the_one_inside():
    inner = mx.io.NDArrayIter(X, Y, batch_size=4)
    inner.default_bucket_key = 10
    it = mx.io.ResizeIter(inner, 2)
    assert it.provide_data == inner.provide_data
    assert it.provide_label == inner.provide_label
    assert (it.batch_size, it.default_bucket_key) == (4, 10)
    with pytest.raises(StateError, match="no current batch"):
        it.getpad()
    batch = next(it)
    assert it.getdata() is batch.data
    assert it.getlabel() is batch.label
    assert (it.getpad(), it.getindex()) == (0, None)
    assert len(list(it)) == 1
    with pytest.raises(StopIteration):
        it.next()


def test_resizing_waits_for_rows_that_roll_over():
    it = mx.io.ResizeIter(mx.io.NDArrayIter(X[:2], Y[:2], 4, last_batch_handle="roll_over"), 2)
    assert [row for row, _, _ in described(it)] == [[0, 2, 0, 2]] * 2


def test_resizing_nothing_is_an_error():
    with pytest.raises(StateError, match="OnlyNext has no batches"):
        next(mx.io.ResizeIter(OnlyNext(0), 2))
    with pytest.raises(ArgumentError, match="size is 0"):
        mx.io.ResizeIter(OnlyNext(1), 0)
