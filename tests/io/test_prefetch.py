"""PrefetchingIter: the same batches, errors that arrive, threads that end, no hang."""

import pickle
import threading
import time
import traceback

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import StateError

X, Y = np.arange(22, dtype="f4").reshape(11, 2), np.arange(11, dtype="f4")

pytestmark = pytest.mark.timeout(10)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("PrefetchingIter")]


def no_threads_within(seconds):
    end = time.monotonic() + seconds
    while threads() and time.monotonic() < end:
        time.sleep(0.005)
    return not threads()


@pytest.fixture(autouse=True)
def leaves_no_thread():
    assert no_threads_within(2)
    yield
    assert no_threads_within(2)


class Counting(mx.io.DataIter):
    """Yields 0, 1, ...; does `act(number)` first, which may raise or wait."""

    def __init__(self, count=3, act=None):
        super().__init__(1)
        self.count, self.act, self.at, self.resets = count, act, 0, 0
        self.provide_data = [mx.io.DataDesc("data", (1,))]
        self.provide_label = []

    def next(self):
        number, self.at = self.at, self.at + 1
        if self.act:
            self.act(number)
        if number >= self.count:
            raise StopIteration
        return mx.io.DataBatch([number], [], pad=0)

    def reset(self):
        self.at = 0
        self.resets += 1


def fail_at(position, error):
    def act(number):
        if number == position:
            raise error

    return act


def numbers(it):
    return [batch.data[0] for batch in it]


def test_keys_and_shapes_of_batches_are_those_of_the_first_iterator():
    class Buckets(Counting):
        def next(self):
            batch = super().next()
            batch.bucket_key = batch.index = 10 * self.count + batch.data[0]
            batch.provide_data = [mx.io.DataDesc("data", (1, batch.bucket_key))]
            batch.rolled_over = True
            return batch

    with mx.io.PrefetchingIter([Buckets(2), Buckets(3)], rename_data=[{"data": "words"}, {}]) as it:
        got = [(b.rolled_over, b.bucket_key, b.index, b.provide_data) for b in (next(it), next(it))]
    names = [[("words", (1, 20 + i)), ("data", (1, 30 + i))] for i in range(2)]
    assert got == [(True, 20, 20, names[0]), (True, 21, 21, names[1])]


@pytest.mark.parametrize("error", [ValueError("bad record 17"), KeyboardInterrupt()])
def test_error_arrives_with_type_and_traceback(error):
    source = Counting(5, fail_at(2, error))
    with mx.io.PrefetchingIter(source) as it:
        assert [next(it).data[0], next(it).data[0]] == [0, 1]
        for _ in range(2):  # and again, until reset
            with pytest.raises(type(error)) as caught:
                next(it)
            assert caught.value is error
            assert [frame.name for frame in traceback.extract_tb(caught.tb)].count("act") == 1
        source.act = None
        it.reset()
        assert numbers(it) == [0, 1, 2, 3, 4]


def test_error_in_reset_arrives_and_leaves_it_usable():
    source = Counting(2)
    source.reset = lambda: fail_at(0, OSError("no file"))(0)
    with mx.io.PrefetchingIter(source) as it:
        assert numbers(it) == [0, 1]
        with pytest.raises(OSError, match="no file"):
            it.reset()
        del source.reset
        it.reset()
        assert numbers(it) == [0, 1]


def test_threads_end_when_it_is_closed_or_dropped():
    it = mx.io.PrefetchingIter([Counting(5), Counting(5)])
    with pytest.raises(StateError, match="since Counting, Counting cannot"):
        pickle.dumps(it)
    assert [thread.daemon for thread in threads()] == [True, True]
    next(it)
    it.close()
    assert threads() == []
    it.close()
    for way in (next, pickle.dumps, lambda it: it.reset(), lambda it: it.take_part(2, 0)):
        with pytest.raises(StateError, match="closed"):
            way(it)
    for _ in range(50):
        mx.io.PrefetchingIter(Counting(2)).next()
    assert no_threads_within(2)
