"""`Module.to_torch`: the trained network as a torch module, and back."""

import copy

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from helpers.nets import blobs, mlp


def _module(**options):
    mod = mx.mod.Module(mlp(), **options)
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    mod.init_params(mx.init.Xavier())
    return mod


def _batch(seed=0):
    data, label = blobs(8, seed=seed)
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)])


def _given(batch):
    return batch.data[0].torch(), batch.label[0].torch()


def test_predictions_are_the_modules():
    mod, batch = _module(), _batch()
    mod.forward(batch, is_train=False)
    found = mod.to_torch().eval()(batch.data[0].torch())
    np.testing.assert_allclose(found.detach().numpy(), mod.get_outputs()[0].asnumpy(), rtol=1e-6)


def test_training_there_follows_training_here():
    mod = _module()
    mod.init_optimizer(
        optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "rescale_grad": 1 / 8}
    )
    net = mod.to_torch()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(10):
        batch = _batch(step)
        mod.forward_backward(batch)
        mod.update()
        optimizer.zero_grad()
        (net(*_given(batch))).sum().backward()
        for parameter in net.parameters():
            parameter.grad /= 8
        optimizer.step()
    for name, value in mod.get_params()[0].items():
        np.testing.assert_allclose(net.get_parameter(name).detach().numpy(), value.asnumpy(), atol=1e-5)


def test_shared_parameters_are_trained_by_both():
    mod = _module()
    mod.init_optimizer(optimizer="sgd")
    net = mod.to_torch(share=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(2):
        mod.forward_backward(_batch(step))
        mod.update()
        net(*_given(_batch(step))).sum().backward()
        optimizer.step()
        for name, value in mod.get_params()[0].items():
            np.testing.assert_array_equal(net.get_parameter(name).detach().numpy(), value.asnumpy())


def test_moving_statistics_are_shared_too():
    mod = mx.mod.Module(mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn"), label_names=None)
    mod.bind([("data", (4, 3))])
    mod.init_params()
    net = mod.to_torch(share=True)
    net(torch.rand(4, 3) + 5)
    np.testing.assert_array_equal(mod.get_params()[1]["bn_moving_mean"].asnumpy(), net.bn_moving_mean.numpy())
    mod.forward(mx.io.DataBatch([mx.nd.ones((4, 3))]), is_train=True)
    mod.backward([mx.nd.ones((4, 3))])
    np.testing.assert_array_equal(mod.get_params()[1]["bn_moving_mean"].asnumpy(), net.bn_moving_mean.numpy())


def test_values_come_back_by_set_params():
    mod = _module()
    net = mod.to_torch()
    with torch.no_grad():
        net.fc1_weight.mul_(2)
    mod.set_params({name: mx.nd.from_torch(value) for name, value in net.state_dict().items()}, {})
    batch = _batch()
    mod.forward(batch, is_train=False)
    found = net.eval()(batch.data[0].torch())
    np.testing.assert_allclose(found.detach().numpy(), mod.get_outputs()[0].asnumpy(), rtol=1e-6)


def test_parameters_that_are_fixed_need_no_gradient():
    net = _module(fixed_param_names=["fc1_weight"]).to_torch()
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["fc1_weight"]


def test_states_are_inputs():
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc") + mx.sym.Variable(
        "state"
    )
    mod = mx.mod.Module(hidden, label_names=None, state_names=["state"])
    mod.bind([("data", (3, 4))])
    mod.init_params(mx.init.One())
    assert mod.to_torch()(torch.ones(3, 4), torch.ones(3, 2)).tolist() == [[5, 5]] * 3


def test_shapes_that_are_bound_tell_the_sizes_of_what_is_made_from_nothing():
    data = mx.sym.Variable("data")
    net = mx.sym.broadcast_add(data * 2, mx.sym.zeros((0, 4)) + data)
    mod = mx.mod.Module(net, label_names=None)
    mod.bind([("data", (3, 4))])
    mod.init_params()
    assert mod.to_torch()(torch.ones(5, 4)).shape == (5, 4)


def test_parameters_of_several_contexts_are_copied_and_the_first_ones_shared():
    mod = mx.mod.Module(mlp(), context=[mx.cpu(0), mx.cpu(1)])
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    mod.init_params(mx.init.Xavier())
    net, shared = mod.to_torch(), mod.to_torch(share=True)
    for name, value in mod.get_params()[0].items():
        np.testing.assert_array_equal(net.get_parameter(name).detach().numpy(), value.asnumpy())
        assert shared.get_parameter(name).data_ptr() == mod.store.array(name, 0).torch().data_ptr()


def test_a_checkpoint_needs_no_binding(tmp_path):
    mod, prefix = _module(), str(tmp_path / "net")
    mod.save_checkpoint(prefix, 1)
    loaded = mx.mod.Module.load(prefix, 1)
    data = torch.rand(2, 6)
    assert torch.equal(loaded.to_torch().eval()(data), mod.to_torch().eval()(data))
    with pytest.raises(StateError, match="to_torch"):
        loaded.to_torch(share=True)


def test_without_parameters_there_is_nothing_to_leave_with():
    with pytest.raises(StateError, match="to_torch"):
        mx.mod.Module(mlp()).to_torch()


def test_a_name_that_torch_cannot_have_is_refused():
    net = mx.sym.FullyConnected(
        mx.sym.Variable("data"), weight=mx.sym.Variable("half.weight"), num_hidden=2, name="fc"
    )
    mod = mx.mod.Module(net, label_names=None)
    mod.bind([("data", (3, 4))])
    mod.init_params()
    with pytest.raises(ArgumentError, match="'half' of 'half.weight'"):
        mod.to_torch()


def test_copies_are_independent():
    net = _module().to_torch()
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.fc1_weight.zero_()
    assert net.fc1_weight.abs().sum() > 0
