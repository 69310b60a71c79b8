"""Equal parts of the examples: every one in one part, in every epoch."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

import dpmodule as mx
from dpmodule.base import StateError
from helpers import datasets, iterator_cases, iterators
from helpers.processes import await_gone

# Python 3.12 warns of forked workers
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def numbers(it):
    """Return the labels of an epoch, without those that fill it up."""
    found = []
    for batch in it:
        label = batch.label[0].asnumpy().ravel().tolist()
        found += label[: len(label) - batch.num_padding]
    return [int(number) for number in found]


def parts(make, count, late=None):
    """Return what each part gives in two epochs, after checking that parts may be taken later, too: those of `late`."""
    found = []
    for index in range(count):
        mx.random.seed(3)
        it = make(num_parts=count, part_index=index)
        first = numbers(it)
        it.reset()
        found.append([first, numbers(it)])
        getattr(it, "close", int)()
        if late is None or index in late:
            it = make()
            it.take_part(count, index)
            assert sorted(numbers(it)) == sorted(first)
            getattr(it, "close", int)()
    return found


KINDS = st.sampled_from(["dense", "csr", "ragged", "TN"])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 5), st.booleans(), KINDS)
def test_arrays(count, number, batch_size, shuffle, kind):
    number = min(number, count)
    data, label, layout = iterator_cases.of_kind(mx, kind, count)
    found = parts(partial(mx.io.NDArrayIter, data, label, batch_size, shuffle, layout=layout), number)
    for index, epochs in enumerate(found):
        for epoch in epochs:
            assert sorted(epoch) == list(range(index, count, number))
            assert shuffle or epoch == sorted(epoch)


TABLE = TensorDataset(torch.zeros(11, 2), torch.arange(11))


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_datasets(workers, shuffle):
    options = {"batch_size": 2, "shuffle": shuffle, "num_workers": workers, "start_method": "fork"}
    found = parts(partial(mx.io.DataLoaderIter, TABLE, **options), 3, workers and [1])
    for epoch in range(2):
        assert sorted(sum((part[epoch] for part in found), [])) == list(range(11))
    assert [len(part[0]) for part in found] == [4, 4, 3]
    assert (found[0][0] != sorted(found[0][0])) == shuffle


@pytest.mark.parametrize("workers", [None, 2])
def test_loaders_with_an_order_of_their_own(workers):
    for dataset, options, wanted in (
        (TABLE, {"batch_size": 2, "sampler": [*range(10, -1, -1)]}, [[10, 8, 6, 4, 2, 0], [9, 7, 5, 3, 1]]),
        (TABLE, {"batch_sampler": [[0, 1], [2, 3], [4, 5]]}, [[0, 1, 4, 5], [2, 3]]),
        (datasets.Numbers(11), {"batch_size": 2}, None),
        (DataLoader(TABLE, 3), {}, [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10]]),
    ):
        make = partial(mx.io.DataLoaderIter, dataset, start_method="fork", num_workers=workers, **options)
        found = [part[0] for part in parts(make, 2, workers and [1])]
        assert found == wanted if wanted else sorted(sum(found, [])) == list(range(11))


def test_sentences():
    draw = np.random.RandomState(0)
    sentences = [[i] * draw.randint(1, 7) for i in range(1, 61)]

    class Sentences(mx.rnn.BucketSentenceIter):
        def next(self):
            batch = super().next()
            batch.label = [batch.data[0][:, 0]]
            return batch

    found = parts(lambda **part: Sentences(sentences, 1, [3, 6], invalid_label=0, **part), 3)
    for epoch in range(2):
        assert sorted(sum((part[epoch] for part in found), [])) == list(range(1, 61))
    assert all(19 <= len(part[0]) <= 21 for part in found)
    it = mx.rnn.BucketSentenceIter(sentences, 1, [3, 6], num_parts=30, part_index=2)
    assert it.default_bucket_key == 6  # of all parts


def rows(count=11, **part):
    return mx.io.NDArrayIter(np.arange(2.0 * count).reshape(count, 2), np.arange(count), 2, **part)


@pytest.mark.parametrize("shuffle", [False, True])
def test_iterators_in_iterators(shuffle):
    for outer in (partial(mx.io.PrefetchingIter, depth=3), partial(mx.io.ResizeIter, size=2)):
        found = parts(lambda outer=outer, **part: outer(rows(shuffle=shuffle, **part)), 3)
        for index, epochs in enumerate(found):
            assert all(sorted(epoch) == list(range(index, 11, 3)) for epoch in epochs)


def test_a_part_of_several_iterators_read_together():
    with mx.io.PrefetchingIter([rows(), rows()]) as it:
        next(it)
        it.take_part(2, 1)
        for batch in it:
            assert (batch.data[0].asnumpy() == batch.data[1].asnumpy()).all()
            assert (batch.label[0].asnumpy() % 2 == 1).all() or batch.pad
        with pytest.raises(StateError, match="NDArrayIter already reads part 1 of 2"):
            it.take_part(2, 0)


def test_worker_processes():
    make = partial(mx.io.ProcessPrefetchingIter, iterators.rows, 2, start_method="fork")
    drawn = []
    for index in range(2):
        with mx.io.ProcessPrefetchingIter(iterators.Drawing, 1, start_method="fork", seed=5) as it:
            it.take_part(2, index)
            drawn.append(next(it).data[0].asnumpy().tolist())
        with make(seed=5) as it:
            next(it)
            pids = it.pids
            it.take_part(3, index)
            assert it.num_parts == 3
            await_gone(pids)
            for _ in range(2):
                assert sorted(numbers(it)) == list(range(index, 10, 3))
                it.reset()
            state = it.state_dict()
        with make() as again:
            again.take_part(3, index)
            again.load_state_dict(state)
            assert sorted(numbers(again)) == list(range(index, 10, 3))
    assert drawn[0] != drawn[1]
