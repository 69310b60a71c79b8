"""as_data_iter: DataLoaders, lists, generators, dicts."""

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, StateError


def pairs(count=3, size=4):
    return [(torch.full((size, 2), float(i)), torch.full((size,), i)) for i in range(count)]


def firsts(it):
    return [batch.data[0].asnumpy().ravel()[0] for batch in it]


def shapes(arrays):
    return [array.shape for array in arrays]


def test_iterators_come_back_as_they_are():
    it = mx.io.NDArrayIter(np.zeros(4))
    assert mx.io.as_data_iter(it) is it

    class Duck:
        provide_data = provide_label = ()

        def reset(self):
            pass

    duck = Duck()
    assert mx.io.as_data_iter(duck) is duck


def test_pairs_are_wrapped_without_copying():
    batches = pairs()
    it = mx.io.as_data_iter(batches)
    assert it.provide_data == [("data", (4, 2))]
    assert it.provide_label == [("softmax_label", (4,))]
    assert [d.dtype for d in it.provide_data + it.provide_label] == [np.float32, np.int64]
    assert it.batch_size == 4
    for batch, (x, y) in zip(it, batches, strict=True):
        assert batch.data[0].tensor.data_ptr() == x.data_ptr()
        assert batch.label[0].tensor.data_ptr() == y.data_ptr()
        assert batch.pad == 0


def test_dataloader_keeps_every_example_and_reshuffles():
    x, y = torch.arange(10.0).reshape(10, 1), torch.arange(10)
    torch.manual_seed(1)
    it = mx.io.as_data_iter(DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True))
    orders = []
    for _ in range(3):
        batches = list(it)
        assert [batch.data[0].shape for batch in batches] == [(4, 1), (4, 1), (2, 1)]
        rows = np.concatenate([batch.data[0].asnumpy()[:, 0] for batch in batches])
        np.testing.assert_array_equal(np.concatenate([batch.label[0].asnumpy() for batch in batches]), rows)
        orders.append(rows.tolist())
        it.reset()
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_dataloader_is_started_once_per_epoch():
    class Loader:
        starts = 0

        def __iter__(self):
            self.starts += 1
            return iter(pairs())

    loader = Loader()
    it = mx.io.as_data_iter(loader)
    it.reset()  # nothing taken yet: the batch read for the shapes is kept
    assert firsts(it) == [0, 1, 2]
    assert firsts(it) == []
    it.reset()
    it.reset()
    assert loader.starts == 1
    assert firsts(it) == [0, 1, 2]
    assert loader.starts == 2


def test_numpy_becomes_float32():
    it = mx.io.as_data_iter([(np.ones((2, 3)), np.array([1, 2])), (np.ones((2, 3)), [3, 4])])
    first, second = it
    assert first.data[0].dtype is first.label[0].dtype is np.float32
    assert second.label[0].asnumpy().tolist() == [3, 4]


def test_read_only_numpy_is_copied():
    x = np.zeros((2, 3), "f4")
    x.flags.writeable = False
    batch = next(mx.io.as_data_iter([x]))
    batch.data[0][:] = 1
    assert x.sum() == 0


def test_single_arrays_have_no_label():
    for item in (
        np.ones((2, 3)),
        torch.ones(2, 3),
        mx.nd.ones((2, 3)),
        [torch.ones(2, 3)],
        (torch.ones(2, 3),),
    ):
        it = mx.io.as_data_iter([item])
        assert it.provide_data == [("data", (2, 3))]
        assert it.provide_label == []
        assert next(it).label == []


def test_several_inputs():
    a, b, y = torch.zeros(2, 1), torch.zeros(2, 5), torch.zeros(2)
    it = mx.io.as_data_iter([((a, b), y)])
    assert [d.name for d in it.provide_data] == ["_0_data", "_1_data"]
    named = {"data_names": ("a", "b"), "label_names": ("y",)}
    for item in (((a, b), y), [[a, b], [y]], (a, b, y)):
        it = mx.io.as_data_iter([item], **named)
        assert it.provide_data == [("a", (2, 1)), ("b", (2, 5))]
        assert it.provide_label == [("y", (2,))]
    it = mx.io.as_data_iter([(a, b)], **named)
    assert it.provide_data == [("a", (2, 1)), ("b", (2, 5))]
    assert it.provide_label == []


def test_labels_may_be_left_out():
    it = mx.io.as_data_iter(pairs(), data_names=["x"], label_names=[])
    assert it.provide_label == []
    assert it.provide_data == [("x", (4, 2))]
    assert next(it).label == []


def test_dicts_are_read_by_name():
    item = {"y": np.zeros(2), "b": np.zeros((2, 5)), "a": np.zeros((2, 1))}
    it = mx.io.as_data_iter([item], data_names=["a", "b"], label_names=["y"])
    batch = next(it)
    assert shapes(batch.data) == [(2, 1), (2, 5)]
    assert shapes(batch.label) == [(2,)]
    guessed = mx.io.as_data_iter([{"data": np.zeros((2, 3)), "softmax_label": np.zeros(2)}])
    assert guessed.provide_data == [("data", (2, 3))]
    assert guessed.provide_label == [("softmax_label", (2,))]


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
    it = mx.io.as_data_iter(pair for pair in pairs())
    it.reset()  # before the first batch
    assert firsts(it) == [0, 1, 2]
    it.reset()  # as `fit` does after its last epoch
    with pytest.raises(StateError, match="generator can be read only once"):
        next(it)
    with pytest.raises(StateError, match="generator can be read only once"):
        it.reset()


def test_hidden_generators_are_noticed():
    class Hidden:
        def __init__(self):
            self.batches = iter(pairs())

        def __iter__(self):
            yield from self.batches

    it = mx.io.as_data_iter(Hidden())
    assert firsts(it) == [0, 1, 2]
    it.reset()
    with pytest.raises(StateError, match="Hidden can be read only once"):
        next(it)


def test_errors_of_the_iterable_arrive():
    def failing():
        yield pairs()[0]
        raise OSError("lost")

    it = mx.io.as_data_iter(failing())
    next(it)
    with pytest.raises(OSError, match="lost"):
        next(it)


def test_converted_iterables_can_be_prefetched():
    with mx.io.PrefetchingIter(mx.io.as_data_iter(pairs())) as it:
        for _ in range(3):
            assert firsts(it) == [0, 1, 2]
            it.reset()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (np.zeros((4, 2)), "one ndarray, expected an iterable of batches; wrap arrays in NDArrayIter"),
        (torch.zeros(4), "one Tensor"),
        ((np.zeros(4), np.zeros(4)), "a tuple of 2 arrays"),
        ({"data": np.zeros(4)}, "data is dict"),
        ("file.csv", "data is str"),
        (None, "data is NoneType"),
        (7, "data is int"),
        ([], "list yields no batches"),
        (iter([]), "yields no batches"),
        ([(1, 2, 3)], "a tuple of 3 parts"),
        ([{"softmax_label": np.zeros(2)}], r"a dict with \['softmax_label'\]"),
        ([("text", np.zeros(2))], "a batch's data is str"),
        ([[]], "a list of 0 parts"),
    ],
)
def test_bad_data(data, text):
    with pytest.raises(ArgumentError, match=text):
        mx.io.as_data_iter(data)


def test_bad_batches():
    with pytest.raises(DTypeError, match="expected numbers"):
        mx.io.as_data_iter([np.array(["a", "b"])])
    with pytest.raises(ArgumentError, match="without data"):
        mx.io.as_data_iter([mx.io.DataBatch([])])
    with pytest.raises(ArgumentError, match="holds 2 arrays, expected 1"):
        mx.io.as_data_iter([((np.zeros(2), np.zeros(2)), np.zeros(2))], ["data"])
    with pytest.raises(ArgumentError, match=r"expected the data \['b'\]"):
        mx.io.as_data_iter([{"a": np.zeros(2)}], ["a", "b"])
