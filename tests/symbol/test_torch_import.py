"""Symbols from torch modules: names, values, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import array, compare, expressions


class Foreign(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(3, 3), nn.MaxPool2d(2, dilation=2))

    def forward(self, x):
        first = torch.fft.fft(x).abs()
        return self.part(x) * 2, first + 1, torch.kthvalue(x, 2)[0], x[x > 0]


def test_everything_that_has_no_translation_is_listed_with_its_place():
    with pytest.raises(ArgumentError) as caught:
        mx.sym.from_torch(Foreign(), torch.ones(2, 3, 3))
    first, *places, last = str(caught.value).splitlines()
    assert first == "from_torch: Foreign cannot be translated:"
    assert last.startswith("sym.torch_module(module, ...)")
    assert len(places) == 4
    assert all("test_torch_import.py:" in line for line in places)
    text = "".join(places)
    assert "aten._fft_r2c.default, which has no translation: forward (Foreign) at " in text
    assert "aten.max_pool2d.default pools over windows with dilation" in text
    assert "part.1 (MaxPool2d) at " in text
    assert "aten.kthvalue.default" in text
    assert "selects elements by a mask" in text


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(6, 4), nn.Linear(4, 6)
        self.out.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("shift", torch.full((4,), 0.5))
        self.register_buffer("order", torch.tensor([3, 2, 1, 0]))
        self.unused = nn.Linear(2, 2)

    def forward(self, ids):
        hidden = self.embed(ids) * self.scale + self.shift
        return self.out(hidden[..., self.order])


def test_parameters_buffers_and_constants():
    net = Tied()
    symbol, args, states = mx.sym.from_torch(net, torch.zeros(2, 3, dtype=torch.long))
    assert (sorted(args), states) == (["embed.weight", "order", "out.bias", "scale", "shift"], {})
    rates = {n: a.get("__lr_mult__") for n, a in symbol.attr_dict().items() if n in args}
    assert rates == {"embed.weight": None, "out.bias": None, "scale": "0.0", "shift": "0.0", "order": "0.0"}
    decays = {n: symbol.attr_dict()[n]["__wd_mult__"] for n in ("embed.weight", "out.bias", "shift")}
    assert decays == {"embed.weight": "1.0", "out.bias": "1.0", "shift": "0.0"}
    ids = torch.randint(0, 6, (5, 3))
    (found,) = symbol.eval(ids=array(ids), **args)
    np.testing.assert_allclose(found.asnumpy(), net(ids).detach().numpy(), 1e-5, 1e-6)
    (as_floats,) = symbol.eval(ids=mx.nd.array(ids.numpy(), dtype="float32"), **args)
    assert (as_floats.asnumpy() == found.asnumpy()).all()
    args["embed.weight"][:] = 0
    assert net.embed.weight.abs().sum() > 0  # values are copies


NAMES = [
    *((lambda x: x * 2, ["mul"]), (lambda x: x, ["output"])),
    (lambda x: (x * 2, x + 1), ["output0", "output1"]),
    (lambda x: [x * 2, {"inner": x}], ["output0", "output1_inner"]),
    (lambda x: {"mul": x * 3, "x": x, "again": x, "none": None, "number": 3}, ["mul", "x_1", "again"]),
    (lambda x: {"left": x.split(1, 1)[0], "right": x.split(1, 1)[1]}, ["left", "right"]),
    (lambda x: (x.max(1).values, torch.ones(2)), ["output0", "output1"]),
]


@pytest.mark.parametrize(("make", "names"), NAMES)
def test_names_of_outputs(make, names):
    class Net(nn.Module):
        def forward(self, x):
            return make(x)

    symbol, args, _ = mx.sym.from_torch(Net(), torch.zeros(3, 2))
    assert symbol.list_outputs() == [f"{name}_output" for name in names]
    x = torch.randn(4, 2)
    wanted = [t for t in torch.utils._pytree.tree_leaves(make(x)) if isinstance(t, torch.Tensor)]
    for found, want in zip(symbol.eval(x=array(x), **args), wanted, strict=True):
        np.testing.assert_allclose(found.asnumpy(), want.numpy(), 1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_a_module_that_writes_into_parts_keeps_its_layers_whole(training):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
            self.drop, self.inner = nn.Dropout(0.5), nn.Dropout(0.3, inplace=True)
            self.last = nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))

        def forward(self, x):
            y = self.norm(self.conv(x))
            y[:, 0] = 0
            return self.last(self.inner(self.drop(y)).mean((2, 3)))

    net = Net().train(training)
    symbol, args, states = mx.sym.from_torch(net, torch.zeros(2, 2, 5, 5))
    nodes = [n for n in symbol.graph.nodes if n.op is not None]
    kinds, layers = [n.op.name for n in nodes], "Convolution BatchNorm LayerNorm LeakyReLU FullyConnected"
    assert {kinds.count(kind) for kind in layers.split()} == {1}
    assert (kinds.count("Dropout"), sorted(states)) == (2, ["norm.running_mean", "norm.running_var"])
    assert not nodes[kinds.index("BatchNorm")].a.use_global_stats
    x = torch.randn(3, 2, 5, 5)
    executor = symbol.bind(mx.cpu(), {"x": array(x), **args}, aux_states=states)
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), net.eval()(x).detach().numpy(), 1e-4, 1e-6)


def test_truth_values_and_detached_parts():
    net = expressions("x.masked_fill(y > 0, 0.0); ~(y > 0); x > 0; (x.detach() * 2 + x)", "x, y")
    compare(net, lambda n: (torch.randn(n, 3), torch.rand(n, 3) - 0.5))
    symbol, _, _ = mx.sym.from_torch(expressions("~x"), torch.zeros(2, 3, dtype=torch.bool))
    assert symbol.eval(x=mx.nd.array([[0, 1, 1]]))[0].asnumpy().tolist() == [[1, 0, 0]]


def test_an_lstm_and_regressions_of_symbols_come_back():
    data, zeros = mx.sym.Variable("data"), mx.sym.zeros((1, 3, 4))
    rnn = mx.sym.RNN(data, mx.sym.Variable("p_weight"), zeros, zeros, state_size=4, num_layers=1, mode="lstm")
    dense = mx.sym.FullyConnected(data, num_hidden=2, name="f")
    label = mx.sym.Variable("label")
    for net, shape, labels in (
        (rnn, (5, 3, 6), ()),
        (mx.sym.LinearRegressionOutput(dense, label, name="o"), (4, 3), ((4, 2),)),
        (mx.sym.LogisticRegressionOutput(dense, label, name="o"), (4, 3), ((4, 2),)),
    ):
        module = mx.mod.Module(net, label_names=["label"][: len(labels)])
        module.bind([("data", shape)], [("label", each) for each in labels] or None)
        module.init_params(mx.init.Uniform(0.5))
        plain, x = module.to_torch().eval(), torch.randn(shape)
        symbol, args, _ = mx.sym.from_torch(plain, x, *map(torch.zeros, labels))
        found = symbol.bind(mx.cpu(), {**args, "data": array(x)}).forward()[0].asnumpy()
        np.testing.assert_allclose(found, plain(x).detach().numpy(), rtol=1e-5, atol=1e-6)
