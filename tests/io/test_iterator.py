"""DataIter as users subclass it, and ResizeIter."""

import numpy as np
import pytest

import dpmodule as mx

X, Y = np.arange(22, dtype="f4").reshape(11, 2), np.arange(11, dtype="f4")


class Counting(mx.io.DataIter):
    at = 0

    def reset(self):
        self.at = 0


class OnlyNext(Counting):
    def next(self):
        if self.at == 3:
            raise StopIteration
        self.at += 1
        return mx.io.DataBatch([self.at], [-self.at], 1, 5)


class OnlyGetters(Counting):
    getdata, getlabel = (lambda self: [self.at]), (lambda self: [-self.at])
    getpad, getindex = (lambda self: 1), (lambda self: 5)

    def iter_next(self):
        self.at += 1
        return self.at < 4


@pytest.mark.parametrize("kind", [OnlyNext, OnlyGetters])
def test_an_iterator_may_define_only_next_or_only_the_getters(kind):
    it = kind(2)
    for _ in range(2):
        assert [(b.data, b.label, b.pad, b.index) for b in it] == [([i], [-i], 1, 5) for i in (1, 2, 3)]
        assert list(it) == []
        it.reset()


def test_a_resized_iterator_has_the_properties_of_the_one_inside():
    inner = mx.io.NDArrayIter(X, Y, batch_size=4)
    inner.default_bucket_key = 10
    it = mx.io.ResizeIter(inner, 2)
    assert (it.provide_data, it.provide_label) == (inner.provide_data, inner.provide_label)
    assert (it.batch_size, it.default_bucket_key) == (4, 10)
    batch = next(it)
    assert it.getdata() is batch.data
    assert it.getlabel() is batch.label
    assert (it.getpad(), it.getindex()) == (0, None)


def test_resizing_waits_for_rows_that_roll_over():
    it = mx.io.ResizeIter(mx.io.NDArrayIter(X[:2], Y[:2], 4, last_batch_handle="roll_over"), 2)
    assert [b.data[0].asnumpy()[:, 0].tolist() for b in it] == [[0, 2, 0, 2]] * 2


@pytest.mark.parametrize("resized", [False, True])
def test_iterators_ask_the_getters_that_a_subclass_overrides(resized):
    class Own(mx.io.ResizeIter if resized else mx.io.NDArrayIter):
        def getdata(self):
            return [2 * each for each in super().getdata()]

        def getpad(self):
            return 1

    made = Own(mx.io.NDArrayIter(X, Y, 4), 2) if resized else Own(X, Y, 4)
    batch = made.next()
    np.testing.assert_array_equal(batch.data[0].asnumpy(), 2 * X[:4])
    np.testing.assert_array_equal(batch.label[0].asnumpy(), Y[:4])
    assert batch.pad == 1
