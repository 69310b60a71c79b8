"""PrefetchingIter: the same batches, errors that arrive, threads that end, no hang."""

import copy
import json
import os
import pickle
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from dpmodule.streams import read_ahead

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/io/iterators.json").read_text())
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


def lists(arrays):
    return [array.asnumpy().tolist() for array in arrays]


def numbers(it):
    return [batch.data[0] for batch in it]


def test_joined_batches_are_mxnets():
    iters = [mx.io.NDArrayIter(X, Y, batch_size=4), mx.io.NDArrayIter(X * 2, Y * 2, batch_size=4)]
    names = [{"data": "d1"}, {"data": "d2"}], [{"softmax_label": "l1"}, {"softmax_label": "l2"}]
    with mx.io.PrefetchingIter(iters, *names) as it:
        for descs, want in zip((it.provide_data, it.provide_label), GOLDENS["joined"][:2], strict=True):
            assert [[d.name, list(d.shape), np.dtype(d.dtype).name, d.layout] for d in descs] == want
        for _ in range(3):
            got = [[lists(b.data), lists(b.label), b.pad] for b in it]
            assert got == GOLDENS["joined"][2]
            it.reset()


def test_batches_describe_themselves_and_the_getters_agree():
    with mx.io.PrefetchingIter(mx.io.NDArrayIter(X, Y, batch_size=4), depth=3) as it:
        assert it.batch_size == 4
        with pytest.raises(StateError, match="no current batch"):
            it.getdata()
        while it.iter_next():
            assert it.current_batch.provide_data == it.provide_data
            assert it.getdata()[0].shape == (4, 2)
            assert it.getlabel()[0].shape == (4,)
            assert (it.getpad(), it.getindex()) == (it.current_batch.pad, None)


def test_roll_over_stays_known():
    with mx.io.PrefetchingIter(mx.io.NDArrayIter(X, Y, 4, last_batch_handle="roll_over")) as it:
        list(it)
        it.reset()
        first = next(it)
    assert (first.pad, first.num_padding) == (3, 0)


def test_several_iterators_go_by_the_first():
    class Keyed(Counting):
        def next(self):
            batch = super().next()
            batch.bucket_key = batch.index = self.count
            return batch

    with mx.io.PrefetchingIter([Keyed(2), Keyed(3)]) as it:
        assert [(b.bucket_key, b.index) for b in (next(it), next(it))] == [(2, 2)] * 2


def test_changing_shapes_and_bucket_keys_pass_through():
    class Buckets(Counting):
        def next(self):
            batch = super().next()
            batch.bucket_key = 10 + batch.data[0]
            batch.provide_data = [mx.io.DataDesc("data", (1, batch.bucket_key))]
            return batch

    with mx.io.PrefetchingIter(Buckets(2), rename_data=[{"data": "words"}]) as it:
        got = [(b.bucket_key, b.provide_data) for b in it]
    assert got == [(10, [("words", (1, 10))]), (11, [("words", (1, 11))])]


def test_reading_happens_in_the_background_and_stays_within_depth():
    read = threading.Event()
    source = Counting(100, lambda number: read.set() if number == 2 else None)
    with mx.io.PrefetchingIter(source, depth=3):
        assert read.wait(5)
        time.sleep(0.05)
        assert source.at == 3


def test_end_repeats_until_reset():
    with mx.io.PrefetchingIter(Counting(2)) as it:
        assert numbers(it) == [0, 1]
        assert numbers(it) == []
        it.reset()
        assert numbers(it) == [0, 1]


def test_reset_in_the_middle_drops_what_was_read_ahead():
    source = Counting(50)
    with mx.io.PrefetchingIter(source, depth=4) as it:
        for _ in range(20):
            assert [next(it).data[0] for _ in range(3)] == [0, 1, 2]
            it.reset()
    assert source.resets == 20


@pytest.mark.parametrize(
    "error", [ValueError("bad record 17"), KeyboardInterrupt(), SystemExit(3), MemoryError()]
)
def test_error_arrives_with_type_and_traceback(error):
    with mx.io.PrefetchingIter(Counting(5, fail_at(2, error))) as it:
        assert [next(it).data[0], next(it).data[0]] == [0, 1]
        for _ in range(2):  # and again, until reset
            with pytest.raises(type(error)) as caught:
                next(it)
            assert caught.value is error
            assert [frame.name for frame in traceback.extract_tb(caught.tb)].count("act") == 1


def test_reset_works_after_an_error():
    source = Counting(3, fail_at(1, OSError("gone")))
    with mx.io.PrefetchingIter(source) as it:
        with pytest.raises(OSError, match="gone"):
            numbers(it)
        source.act = None
        it.reset()
        assert numbers(it) == [0, 1, 2]


def test_random_faults_never_hang():
    rng = np.random.RandomState(3)
    for _ in range(60):
        faults = rng.randint(0, 8, rng.randint(1, 4)).tolist()
        sources = [Counting(4, fail_at(fault, RuntimeError(fault))) for fault in faults]
        begin, got = time.monotonic(), []
        with mx.io.PrefetchingIter(sources, depth=int(rng.randint(1, 4))) as it:
            for _ in range(4):
                if len(got) == min(faults):
                    with pytest.raises(RuntimeError, match=str(min(faults))):
                        next(it)
                    break
                got.append(next(it))
            it.reset()
        assert len(got) == min(4, *faults)
        assert time.monotonic() - begin < 10


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


def test_iterators_of_different_length_are_an_error():
    with (
        mx.io.PrefetchingIter([Counting(2), Counting(3)]) as it,
        pytest.raises(StateError, match=r"iterators \[0\] ended before the others"),
    ):
        numbers(it)


def test_different_padding_is_an_error():
    iters = [mx.io.NDArrayIter(X[:3], batch_size=4), mx.io.NDArrayIter(X[:2], batch_size=4)]
    with mx.io.PrefetchingIter(iters) as it, pytest.raises(StateError, match=r"padding: \[1, 2\]"):
        next(it)


def test_interrupted_wait_keeps_iterators_in_step():
    gate = threading.Event()
    slow = Counting(3, lambda number: gate.wait(5) if number == 1 else None)
    with mx.io.PrefetchingIter([Counting(3), slow]) as it:
        next(it)
        first, second = it._readers
        peek = second.peek
        second.peek = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            next(it)
        second.peek = peek
        gate.set()
        assert [batch.data for batch in it] == [[1, 1], [2, 2]]


def test_closing_ends_the_threads_and_may_be_repeated():
    it = mx.io.PrefetchingIter([Counting(5), Counting(5)])
    assert len(threads()) == 2
    assert all(thread.daemon for thread in threads())
    next(it)
    it.close()
    assert threads() == []
    it.close()
    with pytest.raises(StateError, match="closed"):
        next(it)
    with pytest.raises(StateError, match="closed"):
        it.reset()


def test_dropping_ends_the_threads():
    it = mx.io.PrefetchingIter(Counting(5))
    next(it)
    del it
    assert no_threads_within(2)


def test_many_iterators_leave_no_thread():
    before = threading.active_count()
    for _ in range(50):
        mx.io.PrefetchingIter(Counting(2)).next()
    assert no_threads_within(2)
    assert threading.active_count() == before


def test_closing_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(read_ahead, "JOIN_TIMEOUT_S", 0.05)
    gate = threading.Event()
    it = mx.io.PrefetchingIter(Counting(5, lambda number: gate.wait(5)))
    with pytest.warns(RuntimeWarning, match="still waits for Counting"):
        it.close()
    gate.set()


def test_context_and_gradient_mode_travel_to_the_thread():
    seen = []
    act = lambda number: seen.append((mx.current_context(), torch.is_grad_enabled()))  # noqa: E731
    with torch.no_grad(), mx.cpu(3), mx.io.PrefetchingIter(Counting(1, act)) as it:
        numbers(it)
    assert seen == [(mx.cpu(3), False)] * 2
    assert mx.current_context() == mx.cpu(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_gets_an_error_instead_of_hanging():
    with mx.io.PrefetchingIter(Counting(5)) as it:
        next(it)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(StateError, match="forked child"):
                    it.next()
                with pytest.raises(StateError, match="forked child"):
                    it.reset()
                it.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert numbers(it) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"iters": []}, "iters is empty"),
        ({"iters": Counting(), "depth": 0}, "depth is 0"),
        ({"iters": Counting(), "rename_data": [{}, {}]}, "a list of 1 dicts"),
        ({"iters": Counting(), "rename_label": {"a": "b"}}, "a list of 1 dicts"),
    ],
)
def test_bad_arguments(arguments, text):
    with pytest.raises(ArgumentError, match=text):
        mx.io.PrefetchingIter(**arguments)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda batches: pickle.loads(pickle.dumps(batches))])
def test_copies_go_on_by_themselves(way):
    rows = np.arange(24, dtype="f").reshape(12, 2)
    inner = [mx.io.NDArrayIter(rows, batch_size=2, shuffle=True), mx.io.NDArrayIter(-rows, batch_size=2)]
    with mx.io.PrefetchingIter(inner, rename_data=[{"data": "a"}, {"data": "b"}], depth=2) as batches:
        batches.next()
        with way(batches) as other:
            assert [desc.name for desc in other.provide_data] == ["a", "b"]
            found = [[array.asnumpy().tolist() for array in batch.data] for batch in other]
        assert found == [[array.asnumpy().tolist() for array in batch.data] for batch in batches]
        assert len(found) == 5
    with pytest.raises(StateError, match="is closed"):
        way(batches)


def test_what_cannot_be_copied_is_told():
    class Stream(mx.io.DataIter):
        provide_data = provide_label = ()

        def next(self):
            raise StopIteration

    with mx.io.PrefetchingIter(Stream(1)) as batches, pytest.raises(StateError, match="since Stream cannot"):
        pickle.dumps(batches)
