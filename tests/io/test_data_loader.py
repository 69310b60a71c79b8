"""Datasets and loaders of torch as iterators for modules."""

import os
import signal
import sys
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

import dpmodule as mx
from helpers import datasets
from helpers.both_backends import in_native
from helpers.processes import SOON_S, await_gone

# Python 3.12 warns of forked workers
ignored = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
pytestmark = [ignored, pytest.mark.usefixtures("nothing_stays")]

Iter = partial(mx.io.DataLoaderIter, start_method="fork")


def table(count=11):
    return TensorDataset(torch.arange(2.0 * count).view(count, 2), torch.arange(count))


def labels(batches):
    return [batch.label[0].asnumpy().tolist() for batch in batches]


WANTED = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 0]]


@pytest.mark.parametrize("num_workers", [None, 0, 3])
def test_a_dataset_with_and_without_workers(num_workers):
    with Iter(table(), batch_size=3, num_workers=num_workers) as batches:
        assert (batches.provide_data, batches.batch_size) == ([("data", (3, 2))], 3)
        assert batches.provide_label == [("softmax_label", (3,))]
        assert batches.provide_label[0].dtype is np.float32
        next(batches)
        batches.reset()
        found = list(batches)
        assert (labels(found), [batch.pad for batch in found]) == (WANTED, [0, 0, 0, 1])
        assert found[3].data[0].asnumpy().tolist() == [[18, 19], [20, 21], [0, 0]]


def test_shuffling_is_repeated_by_the_seed_whatever_the_workers():
    found = []
    for num_workers in (None, 1, 2):
        mx.random.seed(5)
        with Iter(table(), batch_size=4, shuffle=True, num_workers=num_workers) as batches:
            first = labels(batches)
            batches.reset()
            found.append((first, labels(batches)))
    assert found[0] == found[1] == found[2]
    first, second = found[0]
    assert first != second
    assert sorted(sum(first, []))[1:] == list(range(11))  # and a zero that fills up


class Rows:
    """Gives whole batches, of the rows of a list of indices."""

    def __len__(self):
        return 6

    def __getitem__(self, indices):
        return torch.zeros(len(indices), 2), torch.tensor(indices)


PARTED = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 0]]
OWN = {"collate_fn": datasets.doubled, "worker_init_fn": datasets.note_worker}


def test_forms_of_loaders():
    for loader, options, wanted in (
        (table(), {"batch_size": 2, "sampler": [5, 3, 1, 0], "num_workers": 2}, [[5, 3], [1, 0]]),
        (table(), {"batch_sampler": [[1, 2], [7, 8], [3]], "num_workers": 2}, [[1, 2], [7, 8], [3, 0]]),
        (table(), {"batch_size": 3, "drop_last": True, "num_workers": 2}, WANTED[:3]),
        (DataLoader(table(), 4), {}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 0]]),
        (DataLoader(table(), 4, **OWN), {"num_workers": 2}, [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18, 20, 0]]),
        (DataLoader(datasets.Numbers(9), 2), {"num_workers": 2}, PARTED),
        (datasets.Numbers(9), {"batch_size": 2, "num_workers": 2, "drop_last": True}, PARTED[:4]),
        (datasets.Whole(3), {"num_workers": 1}, [[0, 0], [1, 1], [2, 2]]),
        (Rows(), {"sampler": [[0, 2], [5, 1]], "num_workers": 2}, [[0, 2], [5, 1]]),
        (Rows(), {"sampler": [[0, 2], [5, 1]], "num_workers": 0}, [[0, 2], [5, 1]]),
    ):
        with Iter(loader, **options) as batches:
            for _ in range(2):
                assert labels(batches) == wanted
                batches.reset()
        assert get_worker_info() is None


def test_types_and_names_of_batches():
    names = {"data_name": ["x", "y"], "label_name": []}
    with Iter(datasets.AtOnce(), batch_size=2, num_workers=1, **names) as batches:
        batch = next(batches)
        assert [desc.name for desc in batches.provide_data] == ["x", "y"]
        assert [each.asnumpy().tolist() for each in batch.data] == [[0, 1], [[0, 0], [1, 1]]]
    arrays = [(np.ones((2, 3)), np.zeros(2)), (np.ones((1, 3)), np.zeros(1))]
    plain = mx.contrib.io.DataLoaderIter(arrays, dtype="float16")
    assert [batch.pad for batch in plain] == [0, 1]
    assert plain.provide_data[0].dtype == np.float16
    with Iter(table(), batch_sampler=[[1, 2]], num_workers=2, dtype=None) as batches:
        assert next(batches).label[0].dtype == np.int64


# --- failures


def wrong_type(index):
    raise TypeError(f"no worker {index}")


def test_an_error_of_worker_init_fn_is_its_own():
    with pytest.raises(TypeError, match="no worker 0"):
        Iter(table(), batch_size=2, num_workers=2, worker_init_fn=wrong_type)


def test_an_error_of_the_dataset_comes_again_until_reset():
    with Iter(datasets.Bad(at=5), batch_size=2, num_workers=2) as batches:
        assert labels([next(batches), next(batches)]) == [[0, 1], [2, 3]]
        for _ in range(2):
            with pytest.raises(LookupError, match="no example 5") as caught:
                next(batches)
            assert "in __getitem__" in str(caught.value.__cause__)
        batches.reset()
        assert len(labels([next(batches), next(batches)])) == 2


def test_an_error_of_the_sampler():
    with Iter(table(), batch_sampler=datasets.BadSampler(), num_workers=2, slots=1) as batches:
        next(batches)
        for _ in range(2):
            with pytest.raises(LookupError, match="no more"):
                list(batches)


class Worker:
    """Each example holds the class of the queue to which its worker sends it."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        caller = sys._getframe()
        while caller.f_code.co_name != "_worker_loop":
            caller = caller.f_back
        return torch.ones(2), int(type(caller.f_locals["data_queue"]).__module__.startswith("dpmodule."))


@in_native
def test_batches_of_a_loader_of_torch_come_through_shared_memory():
    for persistent in (False, True):
        loader = DataLoader(Worker(), 3, num_workers=1, persistent_workers=persistent)
        batches = mx.io.DataLoaderIter(loader)
        for _ in range(2):
            assert labels(batches) == [[1, 1, 1], [1, 1, 1]]
            batches.reset()
        assert type(loader) is DataLoader
        del batches


def test_dead_and_stuck_workers():
    with Iter(table(), batch_size=1, num_workers=2) as batches:
        next(batches)
        pids = batches.pids
        os.kill(pids[1], signal.SIGKILL)
        await_gone(pids[1:])
        time.sleep(0.1)  # torch would raise here
        for _ in range(2):
            with pytest.raises(mx.streams.WorkerDied, match=rf"process {pids[1]}\) was killed by SIGKILL"):
                list(batches)
        batches.reset()
        assert len(list(batches)) == 11
    slow = datasets.Sleeping(at=3)
    with Iter(slow, batch_size=1, num_workers=2, timeout_s=0.5) as batches:
        begin = time.monotonic()
        with pytest.raises(mx.streams.WorkerStuck, match="(?s:.*)in __getitem__"):
            list(batches)
        assert time.monotonic() - begin < SOON_S
