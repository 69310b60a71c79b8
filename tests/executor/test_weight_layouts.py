"""Weights that a training run reads in channels_last: values, gradients, and who else reads them."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from dpmodule import native
from helpers.arrays import randn

S = mx.sym
DATA, WEIGHT = (20, 8, 12, 12), (20, 8, 3, 3)


def convolved(data, weight, **attrs):
    return S.Convolution(data, weight, kernel=(3, 3), num_filter=20, pad=(1, 1), no_bias=True, **attrs)


def restrided(one):
    """Return the names of the weights that a training run copies to channels_last."""
    names = list(one.arg_dict)
    return [names[slot] for slot in one._prepare(True, True).restrided]


def plain():
    # a graph of several layers for images runs in channels_last
    return S.Pooling(S.tanh(convolved(S.Variable("data"), S.Variable("w"))), kernel=(1, 1), pool_type="max")


def regularized():
    weight = S.Variable("w")
    value = convolved(S.Pooling(S.Variable("data"), kernel=(1, 1), pool_type="max"), weight)
    return S.broadcast_add(S.tanh(value), S.sum(S.square(weight)))


def twice():
    data, weight = S.Variable("data"), S.Variable("w")
    return S.relu(convolved(S.relu(data), weight)) + S.tanh(convolved(data, weight))


def by_torch(net, data, weight):
    value = torch.tanh(F.conv2d(data, weight, padding=1))
    if net is regularized:
        return value + weight.square().sum()
    return value if net is plain else F.conv2d(data.relu(), weight, padding=1).relu() + value


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("net", [plain, regularized, twice])
def test_gradients_are_those_of_torch(net, req):
    one = net().simple_bind(mx.cpu(), grad_req=req, data=DATA)
    leaves = [torch.from_numpy(randn(*shape)).float().requires_grad_() for shape in (DATA, WEIGHT)]
    head = torch.from_numpy(randn(20, 20, 12, 12)).float()
    for name, leaf in zip(("data", "w"), leaves):
        one.arg_dict[name][:] = mx.nd.array(leaf.detach().numpy())
        one.grad_dict[name][:] = 1
    for turn in range(2):
        with torch.no_grad():
            leaves[1] += 0.1 * turn  # a changed weight is read again
        one.arg_dict["w"][:] = mx.nd.array(leaves[1].detach().numpy())
        one.forward(is_train=True)
        one.backward(mx.nd.array(head.numpy()))
        by_torch(net, *leaves).backward(head)
        for name, leaf in zip(("data", "w"), leaves):
            want = leaf.grad.numpy() + (req == "add")
            found = one.grad_dict[name]
            np.testing.assert_allclose(found.asnumpy(), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
            assert found.tensor.is_contiguous()
            if req == "write":
                leaf.grad = None


@pytest.mark.skipif(not hasattr(native.core, "change_layouts"), reason="there is no extension")
def test_only_weights_that_nothing_else_reads_are_copied(monkeypatch):
    # the extension's convolutions read weights as they are
    monkeypatch.setattr("dpmodule.ops.nn.trained_convolution.has_tiles", lambda: False)
    sizes = {"data": (8, 8, 28, 20)}
    nets = [plain(), regularized(), twice()]
    assert [restrided(net.simple_bind(mx.cpu(), **sizes)) for net in nets] == [["w"], [], ["w"]]
    # a product of rows reads the weight as it is
    monkeypatch.setattr("dpmodule.executor.passes.unfolded_convolutions.is_fast_as_rows", lambda *_: True)
    assert restrided(plain().simple_bind(mx.cpu(), data=(2, 8, 2, 2))) == []


def test_a_gradient_may_be_the_weight_of_another_network():
    data, grad = mx.nd.array(randn(*DATA)), mx.nd.zeros(WEIGHT)
    arrays = {"data": data, "w": mx.nd.array(randn(*WEIGHT))}
    trained = plain().bind(mx.cpu(), arrays, {"w": grad}, {"data": "null", "w": "write"})
    reader = plain().bind(mx.cpu(), {"data": data, "w": grad}, grad_req="null")
    for seed in range(4):  # from the second run on, weights that did not change are packed once
        trained.forward(is_train=True)
        trained.backward(mx.nd.array(randn(20, 20, 12, 12, seed=seed) * 0.01))
        found = reader.forward()[0].asnumpy()
        wanted = by_torch(plain, torch.from_numpy(data.asnumpy()), torch.from_numpy(grad.asnumpy()))
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


def test_a_weight_may_be_an_input():
    one = mx.mod.Module(plain(), ["data", "w"], None)
    one.bind([("data", DATA), ("w", WEIGHT)], inputs_need_grad=True)
    one.init_params()
    data, weight = (torch.from_numpy(randn(*shape)).float().requires_grad_() for shape in (DATA, WEIGHT))
    batch = mx.io.DataBatch([mx.nd.array(each.detach().numpy()) for each in (data, weight)])
    one.forward(batch, is_train=True)
    one.backward([mx.nd.ones((20, 20, 12, 12))])
    by_torch(plain, data, weight).sum().backward()
    for found, leaf in zip(one.get_input_grads(), (data, weight)):
        want = leaf.grad.numpy()
        np.testing.assert_allclose(found.asnumpy(), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
