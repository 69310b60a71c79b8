"""PrefetchingIter: the same batches, errors that arrive, threads that end, no hang."""

import pickle
import threading
from unittest import mock

import pytest

import dpmodule as mx
from dpmodule.base import StateError
from helpers.processes import until

pytestmark = pytest.mark.timeout(10)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("PrefetchingIter")]


@pytest.fixture(autouse=True)
def leaves_no_thread():
    yield
    until(lambda: not threads(), 2)


class Counting(mx.io.DataIter):
    """Yields 0, 1, ...; raises `error` as the third."""

    at, error = 0, None

    def __init__(self, count=3):
        super().__init__(1)
        self.count, self.provide_data, self.provide_label = count, [mx.io.DataDesc("data", (1,))], []

    def next(self):
        number, self.at = self.at, self.at + 1
        if number == 2 and self.error:
            raise self.error
        if number >= self.count:
            raise StopIteration
        return mx.io.DataBatch([number], [], pad=0)

    def reset(self):
        self.at = 0


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


def test_errors_arrive_and_leave_it_usable():
    source = Counting()
    source.error = error = KeyboardInterrupt()
    with mx.io.PrefetchingIter(source) as it:
        assert [next(it).data[0], next(it).data[0]] == [0, 1]
        for _ in range(2):  # and again, until reset
            with pytest.raises(KeyboardInterrupt) as caught:
                next(it)
            assert caught.value is error
        source.error, source.reset = None, mock.Mock(side_effect=OSError("no file"))
        with pytest.raises(OSError, match="no file"):
            it.reset()
        del source.reset
        it.reset()
        assert [batch.data[0] for batch in it] == [0, 1, 2]


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
