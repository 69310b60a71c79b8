"""NDArrayIter: the batch sequences of MXNet 1.9.1, a NumPy model of the rules, aliasing, errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers import iterator_cases
from helpers.iterator_cases import arrays
from helpers.iterator_cases import batch as described

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/io/iterators.json").read_text())
HANDLES = ("pad", "discard", "roll_over")
EMPTY = "ignore:NDArrayIter. every epoch is empty"


@pytest.mark.filterwarnings(EMPTY)
def test_iterators_give_what_mxnets_give():
    """Orders, padding, names and descriptions; of resized and joined ones, too."""
    found = iterator_cases.told(mx)
    assert set(found) == set(GOLDENS)
    for name, wanted in GOLDENS.items():
        assert found[name] == wanted, name


def test_unshuffled_batches_are_views_and_others_copies(tmp_path):
    x = np.arange(12, dtype="f4").reshape(6, 2)
    it = mx.io.NDArrayIter(x, batch_size=2)
    assert [batch.data[0].tensor.data_ptr() - x.ctypes.data for batch in it] == [0, 16, 32]
    turned = mx.io.NDArrayIter(x[:, ::-1], batch_size=2).data[0][1]
    np.testing.assert_array_equal(turned.asnumpy(), x[:, ::-1])
    np.save(tmp_path / "x.npy", np.arange(12, dtype="f4"))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")  # a view would be a crash
    y = mx.nd.array(np.arange(12))
    for it in (mx.io.NDArrayIter(mapped, batch_size=4), mx.io.NDArrayIter(y, None, 5, shuffle=True)):
        for _ in range(3):
            for batch in it:
                batch.data[0][:] = -1
            it.reset()
    assert mapped.tolist() == y.asnumpy().tolist() == list(range(12))
    it = mx.io.NDArrayIter(np.arange(5, dtype="f4"), batch_size=4)
    for batch in list(it)[1:]:  # padded
        batch.data[0][:] = -1
    it.reset()
    assert [b.data[0].asnumpy().tolist() for b in it] == [[0, 1, 2, 3], [4, 0, 1, 2]]


def test_writing_into_a_batch_warns_once():
    it = mx.io.NDArrayIter(np.zeros((6, 2), "f4"), batch_size=2)
    next(it).data[0][:] = 1
    with pytest.warns(UserWarning, match="copy a batch before changing it"):
        next(it).data[0][:] = 1
    next(it)
    it.reset()
    assert len(list(it)) == 3


def test_dtypes_and_contexts():
    whole, grown = torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 2, requires_grad=True)
    source = mx.nd.zeros((3, 2), mx.cpu(1), dtype="int32")
    found = []
    with mx.cpu(2):
        for value in (np.zeros((3, 2), "i8"), np.zeros((3, 2), bool), whole, grown, source):
            it = mx.io.NDArrayIter(value, batch_size=2)
            array = next(it).data[0]
            assert it.provide_data[0].dtype is array.dtype
            assert not array.tensor.requires_grad
            found.append((array.dtype, array.context.device_id))
    assert found == [(np.float32, 2)] * 2 + [(np.int64, 0), (np.float32, 0), (np.int32, 1)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_layout_chooses_the_axis_of_examples(shuffle):
    x, y = np.arange(10.0).reshape(2, 5), np.arange(5.0)
    it = mx.io.NDArrayIter(x, y, batch_size=2, layout="TN", last_batch_handle="pad", shuffle=shuffle)
    assert (it.provide_data[0].shape, it.provide_data[0].layout, it.num_data) == ((2, 2), "TN", 5)
    for batch in it:
        np.testing.assert_array_equal(batch.data[0].asnumpy(), x[:, batch.label[0].asnumpy().astype(int)])


@pytest.mark.parametrize("handle", ["discard", "roll_over"])
def test_csr_batches_and_iter_next_without_the_rest(handle):
    values = np.arange(15.0).reshape(5, 3)
    it, found = mx.io.NDArrayIter(mx.nd.array(values).tostype("csr"), None, 2, last_batch_handle=handle), []
    while it.iter_next():
        found += it.getdata()
    assert [array.stype for array in found] == ["csr", "csr"]
    np.testing.assert_array_equal(np.concatenate([array.asnumpy() for array in found]), values[:4])


def test_shuffling_keeps_types():
    data, label = mx.nd.zeros((4, 2), dtype="float16"), mx.nd.zeros(4, dtype="int32")
    it = mx.io.NDArrayIter(data, label, 2, shuffle=True)
    described = [desc.dtype for desc in (*it.provide_data, *it.provide_label)]
    batch = next(it)
    assert described == [array.dtype for array in (*batch.data, *batch.label)] == [np.float16, np.int32]


@pytest.mark.parametrize("handle", HANDLES)
def test_getters_agree_with_next(handle):
    x, y = arrays(7)
    it = mx.io.NDArrayIter(x, y, 3)
    assert (it.num_data, it.num_source, it.cursor, len(it.data_list)) == (7, 2, -3, 2)
    one, two = (mx.io.NDArrayIter(x, y, 3, last_batch_handle=handle) for _ in range(2))
    for _ in range(3):
        got = []
        while one.iter_next():
            got.append([one.getdata()[0].asnumpy()[:, 0].tolist(), one.getlabel()[0].asnumpy().tolist()])
            got[-1].append(one.getpad())
            assert x[one.getindex(), 0].tolist() == got[-1][0]
        assert got == [described(batch) for batch in two]
        with pytest.raises(StopIteration):
            one.next()
        one.reset()
        two.reset()


@pytest.mark.parametrize("handle", HANDLES)
def test_resets_in_the_middle_and_hard_ones_start_again(handle):
    it = mx.io.NDArrayIter(*arrays(7), batch_size=3, last_batch_handle=handle)
    first = described(next(it))
    it.reset()
    found = [described(batch) for batch in it]
    assert found[0] == first
    it.hard_reset()
    assert [described(batch) for batch in it] == found


def test_a_subclass_may_shuffle_the_rows_itself():
    """Programs override `reset`, shuffle `idx` in place and set `data` and `label` to the rows in that order."""

    class Reversed(mx.io.NDArrayIter):
        def reset(self):
            self.idx[:] = self.idx[::-1].copy()
            self.data = [(name, mx.nd.array(rows.asnumpy()[self.idx])) for name, rows in self.data]
            self.label = [(name, mx.nd.array(rows.asnumpy()[self.idx])) for name, rows in self.label]
            self.cursor = -self.batch_size

    it = Reversed(*arrays(5), batch_size=2, shuffle=True)  # calls reset, and shuffles nothing by itself
    assert it.idx.tolist() == [4, 3, 2, 1, 0]
    assert [batch.label[0].asnumpy().tolist() for batch in it] == [[4, 3], [2, 1], [0, 4]]
    it.reset()
    assert it.next().data[0].asnumpy().tolist() == [[8, 9], [6, 7]]
    it = mx.io.NDArrayIter(*arrays(5), batch_size=2)
    it.data, it.label = [("data", np.arange(4))], []  # of another number
    assert [batch.data[0].asnumpy().tolist() for batch in it] == [[0, 1], [2, 3]]


def test_discard_without_a_full_batch_warns():
    with pytest.warns(UserWarning, match="every epoch is empty"):
        it = mx.io.NDArrayIter(np.zeros(3), batch_size=4, last_batch_handle="discard")
    assert list(it) == []


def test_lists_hold_one_array_for_each_input_as_in_mxnet():
    data = mx.io.NDArrayIter([[1, 2], [3, 4]], {"label": [5, 6]})
    assert [(desc.name, desc.shape) for desc in data.provide_data] == [("_0_data", (1,)), ("_1_data", (1,))]
    batch = data.next()
    assert [array.asnumpy().tolist() for array in (*batch.data, *batch.label)] == [[1], [3], [5]]
