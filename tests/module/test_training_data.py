"""What loops are given to read: labels that are missing, and types that networks cannot compute with."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.nets import blobs, mlp


def loader(x, *labels):
    return DataLoader(TensorDataset(x, *labels), batch_size=8)


def trained(net, x, y):
    mod = mx.mod.Module(net)
    mod.fit(loader(x, y), num_epoch=2, initializer=mx.init.One(), optimizer_params={"multi_precision": True})
    return mod


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "bool", "float64"])
def test_loaders_of_other_types_train_as_float32(dtype):
    x, y = (torch.from_numpy(each) for each in blobs(16))
    x = (x * 40).abs().to(getattr(torch, dtype))
    mods = [trained(mlp(), x, y.long()), trained(mlp(), x.float(), y), trained(mlp(), x, y.to(x.dtype))]
    params = [mod.get_params()[0] for mod in mods]
    assert {array.dtype for each in params for array in each.values()} == {np.float32}
    for name in params[0]:
        np.testing.assert_array_equal(params[0][name].asnumpy(), params[1][name].asnumpy())
    wanted = mods[1].predict(loader(x.float(), y)).asnumpy()
    np.testing.assert_array_equal(mods[0].predict(loader(x, y)).asnumpy(), wanted)
    assert mods[0].score(loader(x, y.long()), "acc") == mods[1].score(loader(x.float(), y), "acc")


def test_numbers_of_words_and_halves_keep_their_types():
    words = torch.randint(0, 20, (16, 5))
    net = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=20, output_dim=3)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=2), name="softmax")
    mod = trained(net, words, torch.zeros(16))
    assert mod.data_shapes[0].dtype == np.int64
    mod = trained(mlp(), torch.ones(16, 6, dtype=torch.float16), torch.zeros(16))
    assert mod.get_params()[0]["fc1_weight"].dtype == np.float16


def test_data_without_labels_are_named():
    x, y = (torch.from_numpy(each) for each in blobs(16))
    mod, message = mx.mod.Module(mlp()), "gives no labels, and the network takes softmax_label"
    for data in (loader(x), DataLoader(x, batch_size=8), mx.io.NDArrayIter(x.numpy(), None, 8)):
        with pytest.raises(ArgumentError, match=f"fit: {type(data).__name__} {message}"):
            mod.fit(data, num_epoch=1)
    mod.fit(loader(x, y), num_epoch=1)
    with pytest.raises(ArgumentError, match=f"score: DataLoader {message}"):
        mod.score(loader(x), "acc")
    with pytest.raises(ArgumentError, match=f"fit: DataLoader {message}"):
        mod.fit(loader(x, y), eval_data=loader(x), num_epoch=1)
    assert mod.predict(loader(x)).shape == (16, 4)
