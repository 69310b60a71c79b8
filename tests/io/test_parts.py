"""Equal parts of the examples: every one in one part, in every epoch."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from helpers import datasets, iterators
from helpers.processes import await_gone

# Python 3.12 warns of what forked workers do on purpose
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
        made = [it]
        if late is None or index in late:
            made.append(make())
            made[1].take_part(count, index)
            assert sorted(numbers(made[1])) == sorted(first)
        for each in made:
            getattr(each, "close", lambda: None)()
    return found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(["dense", "csr", "ragged", "TN"]),
)
def test_arrays(count, number, batch_size, shuffle, kind):
    number = min(number, count)
    dense = np.arange(2.0 * count, dtype="f").reshape(count, 2)
    data = {
        "dense": dense,
        "csr": mx.nd.sparse.csr_matrix(dense),
        "ragged": {"data": [[float(i)] * (i % 3 + 1) for i in range(count)]},
        "TN": dense.T.copy(),
    }[kind]
    label = np.arange(count) if kind != "TN" else np.arange(count)[None]

    def make(**part):
        return mx.io.NDArrayIter(
            data, label, batch_size, shuffle, layout="TN" if kind == "TN" else "NCHW", **part
        )

    found = parts(make, number)
    for index, epochs in enumerate(found):
        for epoch in epochs:
            assert sorted(epoch) == list(range(index, count, number))
            assert shuffle or epoch == sorted(epoch)


def test_data_and_labels_stay_together():
    data = np.arange(11.0)[:, None] * [1, 10]
    it = mx.io.NDArrayIter(data, np.arange(11), 2, True, num_parts=3, part_index=1)
    assert it.num_data == 4
    assert it.provide_data == [("data", (2, 2))]
    for batch in it:
        np.testing.assert_array_equal(batch.data[0].asnumpy()[:, 1], 10 * batch.label[0].asnumpy())


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_datasets(workers, shuffle):
    table = TensorDataset(torch.arange(22.0).view(11, 2), torch.arange(11))

    def make(**part):
        return mx.io.DataLoaderIter(
            table, batch_size=2, shuffle=shuffle, num_workers=workers, start_method="fork", **part
        )

    found = parts(make, 3, workers and [1])
    for epoch in range(2):
        assert sorted(sum((part[epoch] for part in found), [])) == list(range(11))
    assert [len(part[0]) for part in found] == [4, 4, 3]
    assert (found[0][0] != sorted(found[0][0])) == shuffle


@pytest.mark.parametrize("workers", [None, 2])
def test_what_has_an_order_of_its_own(workers):
    table = TensorDataset(torch.zeros(11, 2), torch.arange(11))
    fork, late = {"num_workers": workers, "start_method": "fork"}, workers and [1]
    found = parts(
        lambda **part: mx.io.DataLoaderIter(
            table, batch_size=2, sampler=list(range(10, -1, -1)), **fork, **part
        ),
        2,
        late,
    )
    assert [part[0] for part in found] == [[10, 8, 6, 4, 2, 0], [9, 7, 5, 3, 1]]
    batches = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    found = parts(lambda **part: mx.io.DataLoaderIter(table, batch_sampler=batches, **fork, **part), 2, late)
    assert [part[0] for part in found] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]
    found = parts(
        lambda **part: mx.io.DataLoaderIter(datasets.Numbers(11), batch_size=2, **fork, **part), 2, late
    )
    assert sorted(sum((part[0] for part in found), [])) == list(range(11))
    loader = DataLoader(table, 3)
    found = parts(lambda **part: mx.io.DataLoaderIter(loader, **part), 2)
    assert [part[0] for part in found] == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10]]


def test_sentences():
    draw = np.random.RandomState(0)
    sentences = [[i] * draw.randint(1, 7) for i in range(1, 61)]

    def make(**part):
        return mx.rnn.BucketSentenceIter(sentences, 1, [3, 6], invalid_label=0, **part)

    every = []
    for index in range(3):
        for later in (False, True):
            it = make() if later else make(num_parts=3, part_index=index)
            if later:
                it.take_part(3, index)
            for _ in range(2):
                found = Counter(int(batch.data[0].asnumpy()[0, 0]) for batch in it)
                it.reset()
                assert set(found.values()) == {1}
            assert it.default_bucket_key == 6
            every += sorted(found)
            assert 19 <= len(found) <= 21
    assert sorted(every) == sorted([*range(1, 61)] * 2)


def test_refusals():
    for make in (
        lambda **part: mx.io.NDArrayIter(np.ones(3), np.ones(3), **part),
        lambda **part: mx.io.DataLoaderIter([np.ones(2)] * 3, **part),
        lambda **part: mx.rnn.BucketSentenceIter([[1]] * 3, 1, **part),
    ):
        with pytest.raises(ArgumentError, match=r"part_index is 2, expected 0 to 1 \(num_parts - 1\)"):
            make(num_parts=2, part_index=2)
        with pytest.raises(ArgumentError, match="num_parts is 0, expected at least 1"):
            make().take_part(0, 0)
        part = make(num_parts=2, part_index=1)
        with pytest.raises(StateError, match="already reads part 1 of 2"):
            part.take_part(2, 0)
        with pytest.raises(ArgumentError, match=r"part is \[1, 2\], here \[0, 2\]"):
            make(num_parts=2, part_index=0).load_state_dict(part.state_dict())
    with pytest.raises(ArgumentError, match="part 3 of 4 has no examples, there are only 3"):
        mx.io.NDArrayIter(np.ones(3), num_parts=4, part_index=3)
    once = mx.io.DataLoaderIter(iter([np.ones(2)] * 3), label_name=[])
    with pytest.raises(StateError, match="list_iterator can be read only once, and its first batch"):
        once.take_part(2, 0)
    with pytest.raises(NotImplementedError, match="Slow does not define take_part"):
        mx.io.ResizeIter(iterators.Slow(0, 1), 2).take_part(2, 0)


def rows(count=11, **part):
    return mx.io.NDArrayIter(np.arange(2.0 * count).reshape(count, 2), np.arange(count), 2, **part)


@pytest.mark.parametrize("shuffle", [False, True])
def test_iterators_in_iterators(shuffle):
    def prefetched(**part):
        return mx.io.PrefetchingIter(rows(shuffle=shuffle, **part), depth=3)

    for index, epochs in enumerate(parts(prefetched, 3)):
        assert all(sorted(epoch) == list(range(index, 11, 3)) for epoch in epochs)

    def resized(**part):
        return mx.io.ResizeIter(rows(shuffle=shuffle, **part), 2)

    for index, epochs in enumerate(parts(resized, 3)):
        assert all(sorted(epoch) == list(range(index, 11, 3)) for epoch in epochs)


def test_a_part_of_several_iterators_read_together():
    it = mx.io.PrefetchingIter(
        [rows(), rows()],
        rename_data=[{"data": "a"}, {"data": "b"}],
        rename_label=[{"softmax_label": "c"}, {"softmax_label": "d"}],
    )
    next(it)
    it.take_part(2, 1)
    with it:
        for batch in it:
            assert (batch.data[0].asnumpy() == batch.data[1].asnumpy()).all()
            assert (batch.label[0].asnumpy() % 2 == 1).all() or batch.pad
        with pytest.raises(StateError, match="NDArrayIter already reads part 1 of 2"):
            it.take_part(2, 0)
    with pytest.raises(StateError, match="PrefetchingIter is closed"):
        it.take_part(2, 0)


def test_a_resized_epoch_begins_anew_with_its_part():
    it = mx.io.ResizeIter(rows(), 7)
    next(it)
    it.take_part(2, 0)
    assert it.num_parts == 2
    assert numbers(it) == [0, 2, 4, 6, 8, 10, 0, 2, 4, 6, 8, 10, 0, 2]


def test_worker_processes():
    with mx.io.ProcessPrefetchingIter(iterators.rows, 2, start_method="fork", seed=5) as every:
        first = next(every).label[0].asnumpy().tolist()
        whole = sorted(first + numbers(every))
    assert whole == list(range(10))
    found = []
    for index in range(3):
        with mx.io.ProcessPrefetchingIter(iterators.rows, 2, start_method="fork", seed=5) as it:
            next(it)
            pids = it.pids
            it.take_part(3, index)
            assert it.num_parts == 3
            await_gone(pids)
            for _ in range(2):
                epoch = sorted(numbers(it))
                assert epoch == list(range(index, 10, 3))
                it.reset()
            state = it.state_dict()
            with pytest.raises(StateError, match="ProcessPrefetchingIter already reads one of 3 parts"):
                it.take_part(2, 0)
        found += epoch
        with mx.io.ProcessPrefetchingIter(iterators.rows, 2, start_method="fork") as again:
            again.take_part(3, index)
            again.load_state_dict(state)
            assert sorted(numbers(again)) == epoch
    assert sorted(found) == whole
    with pytest.raises(StateError, match="closed"):
        it.take_part(2, 0)
    own = [partial(iterators.rows, 0, 1)]
    with (
        mx.io.ProcessPrefetchingIter(own, start_method="fork") as it,
        pytest.raises(NotImplementedError, match="a list of factories cannot be restricted to a part"),
    ):
        it.take_part(2, 0)


def test_two_parts_draw_different_numbers():
    drawn = []
    for index in range(2):
        with mx.io.ProcessPrefetchingIter(iterators.Drawing, 1, start_method="fork", seed=5) as it:
            it.take_part(2, index)
            drawn.append(next(it).data[0].asnumpy().tolist())
    assert drawn[0] != drawn[1]
