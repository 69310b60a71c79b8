"""Batches of iterators as datasets of torch."""

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

import dpmodule as mx


def rows(it):
    return [[array.tolist() for array in batch] for batch in it]


def test_epochs_and_padding():
    mx.random.seed(2)
    it = mx.io.NDArrayIter({"a": np.arange(5), "b": np.ones((5, 2))}, np.arange(5) * 10, 2, shuffle=True)
    dataset = it.to_torch()
    assert isinstance(dataset, IterableDataset)
    epochs = [rows(DataLoader(dataset, batch_size=None)) for _ in range(3)]
    for epoch in epochs:
        assert [len(batch[0]) for batch in epoch] == [2, 2, 1]
        assert sorted(sum((batch[0] for batch in epoch), [])) == list(range(5))
        assert all(batch[2] == [10 * a for a in batch[0]] for batch in epoch)
    assert epochs[0] != epochs[1]


def test_the_first_epoch_goes_on_where_the_iterator_stands():
    it = mx.io.NDArrayIter(np.arange(6), batch_size=2)
    next(it)
    dataset = it.to_torch()
    assert rows(dataset) == [[[2, 3]], [[4, 5]]]
    assert rows(dataset) == [[[0, 1]], [[2, 3]], [[4, 5]]]
