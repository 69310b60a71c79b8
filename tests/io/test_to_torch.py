"""Batches of iterators as datasets of torch."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import dpmodule as mx
from dpmodule.base import MXNetError, StateError


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


def test_time_first_and_what_rolls_over():
    data = np.arange(10.0).reshape(2, 5)
    it = mx.io.NDArrayIter(data, np.arange(5), 3, layout="TN")
    found = list(it.to_torch())
    assert [tuple(each[0].shape) for each in found] == [(2, 3), (2, 2)]
    assert found[1][1].tolist() == [3, 4]
    dataset = mx.io.NDArrayIter(np.arange(5), batch_size=3, last_batch_handle="roll_over").to_torch()
    assert rows(dataset) == [[[0, 1, 2]]]
    assert rows(dataset) == [[[3, 4, 0]], [[1, 2, 3]]]


def test_a_network_of_torch_learns_from_it():
    torch.manual_seed(0)
    x = np.random.RandomState(0).standard_normal((64, 3)).astype("f")
    it = mx.io.NDArrayIter(x, x @ [1.0, -2, 0.5], 16, shuffle=True)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    loader = DataLoader(it.to_torch(), batch_size=None)
    for _ in range(30):
        for data, label in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(data)[:, 0], label).backward()
            optimizer.step()
    np.testing.assert_allclose(net.weight.detach().numpy(), [[1, -2, 0.5]], atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_refusals():
    dataset = mx.io.NDArrayIter(np.ones(4)).to_torch()
    with pytest.raises(StateError, match="give the DataLoader num_workers=0"):
        list(DataLoader(dataset, batch_size=None, num_workers=1))
    sparse = mx.io.NDArrayIter(mx.nd.sparse.csr_matrix(np.eye(3))).to_torch()
    with pytest.raises(MXNetError, match="tostype"):
        list(sparse)
