"""as_data_iter: DataLoaders, lists, generators, dicts."""

import warnings

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import StateError


def pairs(count=3, size=4):
    return [(torch.full((size, 2), float(i)), torch.full((size,), i)) for i in range(count)]


def firsts(it):
    return [batch.data[0].asnumpy().ravel()[0] for batch in it]


def test_pairs_are_wrapped_without_copying():
    batches = pairs()
    it = mx.io.as_data_iter(batches)
    assert [d.dtype for d in it.provide_data + it.provide_label] == [np.float32, np.int64]
    for batch, given in zip(it, batches, strict=True):
        found = [array.tensor.data_ptr() for array in (*batch.data, *batch.label)]
        assert (found, batch.pad) == ([tensor.data_ptr() for tensor in given], 0)


def test_a_loader_is_started_once_per_epoch():
    class Loader:
        starts = 0

        def __iter__(self):
            self.starts += 1
            return iter(pairs())

    loader = Loader()
    it = mx.io.as_data_iter(loader)
    it.reset()  # nothing taken yet: the batch read for the shapes is kept
    for epoch in (1, 2):
        assert (firsts(it), firsts(it), loader.starts) == ([0, 1, 2], [], epoch)
        it.reset()
        it.reset()


def test_numpy_becomes_float32_and_read_only_memory_is_copied():
    it = mx.io.as_data_iter([(np.ones((2, 3)), np.array([1, 2])), (np.ones((2, 3)), [3, 4])])
    first, second = it
    assert first.data[0].dtype is first.label[0].dtype is np.float32
    assert second.label[0].asnumpy().tolist() == [3, 4]
    x = np.zeros((2, 3), "f4")
    x.flags.writeable = False
    next(mx.io.as_data_iter([x])).data[0][:] = 1
    assert x.sum() == 0


A, B, Y = torch.zeros(2, 1), torch.zeros(2, 5), torch.zeros(2)
ONE = [("data", (2, 5))], []
NAMED = [("a", (2, 1)), ("b", (2, 5))], [("y", (2,))]
NAMES = (("a", "b"), ("y",))


def test_forms_of_a_batch():
    for item, names, wanted in (
        (B, (), ONE),
        (mx.nd.zeros((2, 5)), (), ONE),
        ([B], (), ONE),
        (((A, B), Y), (), ([("_0_data", (2, 1)), ("_1_data", (2, 5))], [("softmax_label", (2,))])),
        (((A, B), Y), NAMES, NAMED),
        ([[A, B], [Y]], NAMES, NAMED),
        ((A, B, Y), NAMES, NAMED),
        ((A, B), NAMES, (NAMED[0], [])),
        ((B, Y), (["x"], []), ([("x", (2, 5))], [])),
        ({"y": Y, "b": B, "a": A}, NAMES, NAMED),
        ({"data": B, "softmax_label": Y}, (), (ONE[0], [("softmax_label", (2,))])),
    ):
        it = mx.io.as_data_iter([item], *names)
        assert (it.provide_data, it.provide_label) == wanted
        batch = next(it)
        for arrays, descs in zip((batch.data, batch.label), wanted, strict=True):
            assert [array.shape for array in arrays] == [shape for _, shape in descs]


def test_dict_entries_without_a_place_are_named_once():
    item = {"data": np.zeros((2, 3)), "softmax_label": np.zeros(2), "id": np.zeros(2)}
    with pytest.warns(UserWarning, match=r"\['id'\], which are ignored: they are neither data \['data'\]"):
        it = mx.io.as_data_iter([item] * 3, ["data"], ["softmax_label"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(it)) == 3


def test_databatches_pass_through():
    batch = mx.io.DataBatch([mx.nd.ones((2, 3))], [mx.nd.ones((2,))], pad=1, bucket_key=7)
    it = mx.io.as_data_iter([batch, batch], ["words"], ["next"])
    assert it.provide_data == [("words", (2, 3))]
    assert it.provide_label == [("next", (2,))]
    assert list(it) == [batch, batch]


def test_generators_give_one_epoch():
    class Hidden:
        def __init__(self):
            self.batches = iter(pairs())

        def __iter__(self):
            yield from self.batches

    it, hidden = mx.io.as_data_iter(pair for pair in pairs()), mx.io.as_data_iter(Hidden())
    it.reset()  # before the first batch
    assert firsts(it) == firsts(hidden) == [0, 1, 2]
    it.reset()  # as `fit` does after its last epoch
    hidden.reset()
    for call in (it.next, it.reset):
        with pytest.raises(StateError, match="generator can be read only once"):
            call()
    with pytest.raises(StateError, match="Hidden can be read only once"):
        next(hidden)
