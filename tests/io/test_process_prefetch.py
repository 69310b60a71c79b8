"""Iterators read in worker processes: order, epochs, what batches carry, failures, memory."""

import copy
import functools
import gc
import os
import random
import signal
import threading
import time

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.base import StateError
from dpmodule.streams.errors import WorkerDied, WorkerStuck
from helpers import iterators
from helpers.both_backends import in_native
from helpers.processes import SOON_S, await_gone, mostly_within, resident_bytes, resources, running

# Python 3.12 warns of forked workers
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.usefixtures("nothing_stays"),
    pytest.mark.timeout(120),  # many processes, which take their time on a busy machine
]

Iter = functools.partial(mx.io.ProcessPrefetchingIter, start_method="fork")
partial = functools.partial
SLOW = [pytest.mark.slow, pytest.mark.timeout(1800)]


def labels(batches):
    return [batch.label[0].asnumpy().tolist() for batch in batches]


def firsts(batches):
    return [each[0] for each in labels(batches)]


def test_batches_come_from_the_workers_in_turn():
    with Iter(partial(iterators.rows, count=11), 2) as batches:
        with pytest.raises(StateError, match="no current batch"):
            batches.getdata()
        assert batches.batch_size == 2
        assert batches.provide_data == [("data", (2, 3))]
        assert batches.provide_label == [("softmax_label", (2,))]
        for _ in range(3):
            found = list(batches)
            assert labels(found) == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 1]]
            assert [batch.pad for batch in found] == [0, 0, 0, 0, 0, 1]
            np.testing.assert_array_equal(found[2].data[0].asnumpy(), [[4] * 3, [6] * 3])
            batches.reset()


def test_everything_that_a_batch_carries():
    with Iter(iterators.Bucketed, 2) as batches:
        assert (batches.default_bucket_key, batches.provide_data[0].layout) == (8, "NT")
        found = list(batches)
    for got, wanted in zip(found[::2], iterators.Bucketed(0, 2), strict=True):
        for one, other in zip(got.data + got.label, wanted.data + wanted.label, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
        np.testing.assert_array_equal(got.index, wanted.index)
        assert (got.pad, got.bucket_key, got.rolled_over) == (wanted.pad, wanted.bucket_key, True)
        assert (got.provide_data, got.provide_label) == (wanted.provide_data, wanted.provide_label)
    assert [batch.note for batch in found[:2]] == ["part 0", "part 1"]


# --- memory


def test_batches_stay_valid_as_long_as_anything_refers_to_them():
    with Iter(partial(iterators.pixels, batches=12), 2, slots=2) as batches:
        kept, views = [], []
        for batch in batches:
            kept.append(batch)
            views.append(batch.data[0].tensor[3, 5:9])
        del batch
        wanted = [10 * part + i + 1 for i in range(12) for part in range(2)]
        assert [float(each.data[0].tensor.min()) for each in kept] == wanted
        assert [float(each.data[0].tensor.max()) for each in kept] == wanted
        del kept
        batches.reset()
        assert len(list(batches)) == 24
        assert [each.tolist() for each in views] == [[value] * 4 for value in wanted]
    assert [each.tolist() for each in views] == [[value] * 4 for value in wanted]  # also after the end


@in_native
def test_memory_of_batches_that_are_let_go_is_used_again():
    addresses = set()
    with Iter(partial(iterators.pixels, batches=20), 1, slots=2) as batches:
        for _ in range(2):
            for batch in batches:
                addresses.add(batch.data[0].tensor.data_ptr())
                batch = None
            batches.reset()
    assert len(addresses) <= 4


# --- random numbers


def drawn(seed_all, taken=None, **options):
    """Return the numbers of two epochs; `taken`: read so many batches of the first one."""
    mx.random.seed(seed_all)
    epochs = []
    with Iter(iterators.Drawing, 2, **options) as batches:
        for count in (taken, None):
            epochs.append([b.data[0].asnumpy().tolist()[0] for _, b in zip(range(count or 99), batches)])
            batches.reset()
    return epochs


def test_random_numbers_differ_by_worker_and_epoch_and_repeat():
    state = torch.get_rng_state()
    epochs = drawn(3)
    numbers = [number for epoch in epochs for batch in epoch for number in batch]
    assert len(set(numbers)) == 24
    assert drawn(3) == epochs
    assert drawn(4) != epochs
    assert drawn(3, seed=5) == drawn(4, seed=5)
    assert drawn(3, taken=1)[1] == epochs[1]
    assert torch.equal(torch.get_rng_state(), state)


# --- failures


def test_an_error_comes_in_its_turn_and_again_until_reset():
    with Iter(partial(iterators.Failing, in_part=1), 2) as batches:
        assert firsts([next(batches) for _ in range(5)]) == [1, 101, 2, 102, 3]
        for _ in range(2):
            with pytest.raises(LookupError) as caught:
                next(batches)
            assert caught.value.args == ("no such batch", 5)
            assert "in _fail" in caught.value.__cause__.text
            assert "process_" not in caught.value.__cause__.text
        batches.reset()
        assert len(list(batches)) == 8
    with Iter(partial(iterators.Failing, at=0, how="interrupt"), 1) as batches:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt, match="of its own"):
                next(batches)
    with pytest.raises(LookupError, match="cannot be made") as caught:
        Iter(partial(iterators.Failing, how="make", in_part=1), 2)
    assert "in __init__" in caught.value.__cause__.text


def test_a_killed_worker_is_named_and_replaced():
    makes = [partial(iterators.Slow, 0, 2, seconds=0), partial(iterators.Slow, 1, 2, batches=50, seconds=0)]
    with Iter(makes, slots=2) as batches:
        firsts([next(batches), next(batches)])
        pids = batches.pids
        os.kill(pids[1], signal.SIGKILL)
        await_gone(pids[1:])
        text = rf"worker 1 of ProcessPrefetchingIter \(process {pids[1]}\) was killed by SIGKILL before it sent batch"
        with pytest.raises(WorkerDied, match=text) as caught:
            list(batches)
        with pytest.raises(WorkerDied) as again:
            next(batches)
        assert again.value is caught.value
        batches.reset()
        assert not set(batches.pids) & set(pids)
        assert len(list(batches)) == 54
        os.kill(batches.pids[0], signal.SIGKILL)
        await_gone(batches.pids[:1])
        batches.reset()
        assert len(list(batches)) == 54


@in_native
@pytest.mark.parametrize(
    ("how", "text"), [("loop", "batch 2. Its stack:(?s:.*)in _fail"), ("stop", "stopped by a sig")]
)
def test_a_stuck_worker_shows_its_stack(how, text):
    with Iter(partial(iterators.Failing, how=how), 1, timeout_s=0.3) as batches:
        next(batches)
        next(batches)
        begin = time.monotonic()
        with pytest.raises(WorkerStuck, match=text):
            next(batches)
        assert time.monotonic() - begin < SOON_S


def take_all(batches, taken):
    for batch in batches:
        taken.append(batch.pad)


@pytest.mark.parametrize("count", [8, pytest.param(2000, marks=SLOW)])
def test_random_faults_in_random_places(count):
    """R11: the error itself and its traceback, within a second, whatever the place; never a hang."""
    rng, took = random.Random(3), []
    for _ in range(count):
        workers, at, slots = rng.randrange(1, 4), rng.randrange(4), rng.randrange(1, 4)
        # torch's way loses tensors of a dead worker
        bad, how = rng.randrange(workers), rng.choice(["raise", "kill"] if native.core else ["raise"])
        factory = partial(iterators.Failing, at=at, how=how, in_part=bad)
        begin, taken = time.monotonic(), []
        with (
            pytest.raises(LookupError if how == "raise" else WorkerDied) as caught,
            Iter(factory, workers, slots=slots, timeout_s=10) as batches,
        ):
            take_all(batches, taken)
        wanted = at * workers + bad
        if how == "raise":
            assert len(taken) == wanted
            assert "in _fail" in str(caught.value.__cause__)
        else:  # it may be noticed before its turn, even while the iterator is made
            assert len(taken) <= wanted
            assert str(caught.value).endswith(f"SIGKILL before it sent batch {wanted}")
        took.append(time.monotonic() - begin)
    mostly_within(3, took)


def check_all(batches):
    for batch in batches:
        data = batch.data[0].tensor
        assert data.min() == data.max() == batch.label[0].tensor[0]


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=SLOW)])
def test_kills_at_random_moments(count):
    rng, before, noticed = random.Random(4), resources(), []
    for _ in range(count):
        with Iter(partial(iterators.pixels, batches=10_000, side=64), 2, slots=2) as batches:
            next(batches)
            delay, begin = rng.uniform(0, 0.02), time.monotonic()
            killer = threading.Timer(delay, os.kill, [rng.choice(batches.pids), signal.SIGKILL])
            killer.start()
            with pytest.raises(WorkerDied, match="SIGKILL"):
                check_all(batches)
            noticed.append(time.monotonic() - begin - delay)
            killer.join()
    del batches
    mostly_within(1, noticed)
    assert resources() == before


# --- its end


def test_closing():
    batches = Iter(partial(iterators.Slow, batches=1000, seconds=0), 2)
    batch, pids = next(batches), batches.pids
    with pytest.raises(StateError, match="cannot be copied or pickled. Make a new one"):
        copy.deepcopy(batches)
    begin = time.monotonic()
    batches.close()
    assert time.monotonic() - begin < SOON_S
    assert not any(running(pid) for pid in pids)
    batches.close()
    for call in (batches.next, batches.reset, partial(batches.take_part, 2, 0)):
        with pytest.raises(StateError, match="closed"):
            call()
    batches, call = Iter(iterators.Slow), None
    pids = batches.pids
    del batches
    gc.collect()
    assert not any(running(pid) for pid in pids)
    assert batch.data[0].asnumpy().tolist() == [[1, 1]]


@pytest.mark.parametrize(("first", "count"), [(2, 5), pytest.param(500, 10_000, marks=SLOW)])
def test_cycles_leave_nothing(first, count):
    """R10."""
    for number in range(first + count):
        if number == first:
            before, memory = resources(), resident_bytes()
        with Iter(partial(iterators.rows, count=8), 1) as batches:
            for _, batch in zip(range(number % 5), batches):
                float(batch.label[0].tensor[0])
    assert resources() == before
    assert count < 1000 or resident_bytes() < 1.01 * memory


def test_spawned_workers():
    with mx.io.ProcessPrefetchingIter(partial(iterators.rows, count=8), 1, timeout_s=80) as batches:
        for _ in range(2):
            assert firsts(batches) == [0, 2, 4, 6]
            batches.reset()
