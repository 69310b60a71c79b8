"""Torch modules as nodes of a symbol: names, shapes, types, training, files and memory."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError, NodeError


def data():
    return mx.sym.Variable("data")


def body():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh())


def test_names_shapes_and_types():
    net = mx.sym.torch_module(body(), data(), name="body")
    names = ["data", *(f"body_{n}" for n in ("0_weight", "0_bias", "1_weight", "1_bias"))]
    states = ("running_mean", "running_var", "num_batches_tracked")
    assert net.list_auxiliary_states() == [f"body_1_{name}" for name in states]
    assert (net.list_arguments(), net.list_outputs()) == (names, ["body_output"])
    shapes = [(7, 5), (6, 5), (6,), (6,), (6,)], [(7, 6)], [(6,), (6,), (1,)]
    assert net.infer_shape(data=(7, 5)) == shapes
    types = net.infer_type(data="float32")
    assert (types[0], types[2][2]) == ([np.float32] * 5, np.int64)
    assert mx.sym.torch_module(nn.Linear(2, 2).double(), data()).infer_type()[0] == [np.float64] * 3


def test_the_module_keeps_its_values_until_they_are_written_back():
    module = body()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    net = mx.sym.FullyConnected(mx.sym.torch_module(module, data(), name="body"), num_hidden=3, name="top")
    mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    batches = mx.io.NDArrayIter(np.random.randn(24, 5), np.arange(24) % 3, 6)
    mod.fit(batches, num_epoch=1, initializer="xavier")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    args, states = mod.get_params()
    mx.sym.write_back(mod.symbol, args, states)
    np.testing.assert_array_equal(module[0].weight.detach().numpy(), args["body_0_weight"].asnumpy())
    np.testing.assert_array_equal(module[1].running_var.numpy(), states["body_1_running_var"].asnumpy())
    assert int(module[1].num_batches_tracked) == 4


def test_decay_and_frozen_parameters_follow_names_and_requires_grad():
    module = nn.GRU(3, 2)
    module.bias_ih_l0.requires_grad_(False)
    net = mx.sym.torch_module(module, data(), name="r", num_outputs=2)
    attributes = net.attr_dict()
    assert attributes["r_weight_hh_l0"]["__wd_mult__"] == "1.0"
    assert attributes["r_bias_ih_l0"]["__lr_mult__"] == attributes["r_bias_ih_l0"]["__wd_mult__"] == "0.0"
    assert "__wd_mult__" not in attributes["r_bias_hh_l0"]
    loss = mx.sym.Group([mx.sym.MakeLoss(mx.sym.sum(net[0])), mx.sym.BlockGrad(net[1])])
    mod = mx.mod.Module(loss, label_names=None)
    mod.bind([("data", (4, 2, 3))])
    mod.init_params()
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "wd": 0.1})
    before = mod.get_params()[0]
    mod.forward_backward(mx.io.DataBatch([mx.nd.ones((4, 2, 3))]))
    mod.update()
    after = mod.get_params()[0]
    same = {name for name in before if np.array_equal(before[name].asnumpy(), after[name].asnumpy())}
    assert same == {"r_bias_ih_l0"}


def test_outputs_share_no_memory_with_each_other():
    class Twice(nn.Module):
        def forward(self, x):
            y = x * 2
            return y, y[:1]

    first, second = mx.sym.torch_module(Twice(), data(), num_outputs=2).eval(data=mx.nd.ones((2, 3)))
    second[:] = 7
    assert (first.asnumpy() == 2).all()


def test_programs_of_two_modules_of_one_structure_are_kept_apart():
    nets = [mx.sym.torch_module(nn.Linear(2, 2, bias=False), data(), name="same") for _ in range(2)]
    acts = [mx.sym.torch_module(act, data(), name="act") for act in (nn.ReLU(), nn.Tanh())]
    outs = [act.eval(data=mx.nd.array([-1.0]))[0].asnumpy() for act in acts]
    np.testing.assert_allclose(np.ravel(outs), [0, np.tanh(-1)], rtol=1e-6)
    assert nets[0].graph.key != nets[1].graph.key


def test_nothing_keeps_a_module_alive():
    module = nn.Linear(3, 3)
    gone = weakref.ref(module)
    executor = mx.sym.torch_module(module, data()).simple_bind(mx.cpu(), data=(2, 3))
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 3)))
    del module, executor
    gc.collect()
    assert gone() is None


def test_values_of_a_module_that_is_gone_are_refused():
    net = mx.sym.torch_module(nn.Linear(3, 3), data(), name="x")
    text, weight = net.attr_dict()["x_weight"]["__init__"], mx.nd.zeros((3, 3))
    mx.init.Zero()(mx.init.InitDesc("x_weight", {"__init__": text}), weight)
    assert not (weight.asnumpy() == 0).all()
    del net
    gc.collect()
    with pytest.raises(ArgumentError, match="the torch module with 'weight' no longer exists"):
        mx.init.Zero()(mx.init.InitDesc("x_weight", {"__init__": text}), weight)


class Breaks(nn.Module):
    """Fails in training only, in forward or in backward."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        if self.training and self.where == "forward":
            raise ValueError("broken here")
        out = x * self.weight
        if self.where == "backward" and out.requires_grad:
            out.register_hook(self.fail)
        return out

    @staticmethod
    def fail(grad):
        raise ValueError("broken there")


@pytest.mark.parametrize(("where", "text"), [("forward", "broken here"), ("backward", "broken there")])
def test_errors_inside_a_module_name_the_node_and_leave_it_usable(where, text):
    module = Breaks(where)
    executor = mx.sym.torch_module(module, data(), name="bad").simple_bind(mx.cpu(), data=(2, 3))

    def step():
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones((2, 3)))

    with pytest.raises(NodeError, match=rf"torch\.Breaks\.\d+ 'bad' made at .*test_torch_node.*{text}"):
        step()
    assert isinstance(module.weight, nn.Parameter)
    assert module.training
    assert executor.forward(is_train=False)[0].shape == (2, 3)


def test_a_module_used_in_two_threads_at_once():
    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            first = self.weight.clone()
            total = sum(x.sum() for _ in range(2000)) * 0
            return x * first + total + (self.weight - first)

    net = mx.sym.torch_module(Slow(), data(), name="slow")
    mod = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    mod.bind([("data", (4, 3))], for_training=False)
    mod.init_params()
    mod.group.store.array("slow_weight", 1).tensor.fill_(3.0)
    for _ in range(3):
        mod.forward(mx.io.DataBatch([mx.nd.ones((4, 3))]))
        found = mod.get_outputs()[0].asnumpy()
        np.testing.assert_allclose(found, np.repeat([1.0, 3.0], 2)[:, None] * np.ones((4, 3)))
