"""Symbols from torch modules: names, values, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.symbol.torch_operators.value import reshape_codes
from helpers.torch_import import array


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
    lines = str(caught.value).splitlines()
    assert lines[0] == "from_torch: Foreign cannot be translated:"
    assert lines[-1].startswith("sym.torch_module(module, ...)")
    text = "\n".join(lines)
    assert "aten._fft_r2c.default, which has no translation: forward (Foreign) at " in text
    assert "aten.max_pool2d.default pools over windows with dilation" in text
    assert "part.1 (MaxPool2d) at " in text
    assert "aten.kthvalue.default" in text
    assert "selects elements by a mask" in text
    assert len(lines) == 6
    assert all("test_torch_import.py:" in line for line in lines[1:-1])


def test_outputs_and_constants_that_no_symbol_holds():
    class Net(nn.Module):
        def __init__(self, constant):
            super().__init__()
            self.constant = constant

        def forward(self, x):
            return x * 2, self.constant

    with pytest.raises(ArgumentError, match="an array without elements"):
        mx.sym.from_torch(Net(torch.zeros(0)), torch.ones(2, 3))
    with pytest.raises(ArgumentError, match="integers beyond 16777216"):
        mx.sym.from_torch(Net(torch.tensor([2**30, 1])), torch.ones(2, 3))


def test_a_buffer_that_changes_is_refused():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total += x.sum(0)
            return x - self.total

    with pytest.raises(
        ArgumentError, match="a buffer that forward changes, while a symbol only reads it: total\n"
    ):
        mx.sym.from_torch(Counter(), torch.ones(2, 3))


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
    assert sorted(args) == ["embed.weight", "order", "out.bias", "scale", "shift"]
    assert states == {}
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


class Outputs(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: x * 2, ["mul_output"]),
        (lambda x: x, ["output_output"]),
        (lambda x: (x * 2, x + 1), ["output0_output", "output1_output"]),
        (lambda x: [x * 2, {"inner": x}], ["output0_output", "output1_inner_output"]),
        (
            lambda x: {"mul": x * 3, "x": x, "again": x, "none": None, "number": 3},
            ["mul_output", "x_1_output", "again_output"],
        ),
        (lambda x: {"left": x.split(1, 1)[0], "right": x.split(1, 1)[1]}, ["left_output", "right_output"]),
        (lambda x: (x.max(1).values, torch.ones(2)), ["output0_output", "output1_output"]),
    ],
)
def test_names_of_outputs(make, names):
    net = Outputs(make)
    symbol, args, _ = mx.sym.from_torch(net, torch.zeros(3, 2))
    assert symbol.list_outputs() == names
    x = torch.randn(4, 2)
    wanted = [t for t in torch.utils._pytree.tree_leaves(net(x)) if isinstance(t, torch.Tensor)]
    for found, want in zip(symbol.eval(x=array(x), **args), wanted, strict=True):
        np.testing.assert_allclose(found.asnumpy(), want.numpy(), 1e-6)


def test_a_module_that_returns_no_tensor():
    with pytest.raises(ArgumentError, match="forward of Outputs returns no tensor"):
        mx.sym.from_torch(Outputs(lambda x: None), torch.zeros(3, 2))


def test_nodes_are_called_after_their_modules():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
            self.shared = nn.Linear(4, 4)

        def forward(self, x):
            return self.shared(self.shared(self.body(x)) + x)

    symbol, _, _ = mx.sym.from_torch(Net(), torch.zeros(3, 4))
    nodes = [n for n in symbol.graph.nodes if n.op is not None]
    assert [n.name for n in nodes] == [
        "body.0",
        "body.1",
        "body.2",
        "shared.linear",
        "add",
        "shared.linear_1",
    ]
    assert all(n.source.startswith(f"{__file__}:") for n in nodes)
    assert symbol.list_auxiliary_states() == ["body.1.running_mean", "body.1.running_var"]


def test_no_grad_inside_of_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            with torch.no_grad():
                y = self.a(x).relu()
            return self.b(y + x.detach())

    net = Net()
    symbol, args, _ = mx.sym.from_torch(net, torch.zeros(2, 3))
    x = torch.randn(4, 3)
    grads = {n: mx.nd.ones(args[n].shape) for n in args}
    executor = symbol.bind(mx.cpu(), {"x": array(x), **args}, args_grad=grads)
    (found,) = executor.forward(is_train=True)
    np.testing.assert_allclose(found.asnumpy(), net(x).detach().numpy(), 1e-5, 1e-6)
    executor.backward([mx.nd.ones((4, 2))])
    assert (grads["a.weight"].asnumpy() == 0).all()
    assert (grads["b.bias"].asnumpy() == 4).all()


def test_forward_is_read_in_the_mode_that_the_module_is_in():
    class Net(nn.Module):
        def forward(self, x):
            return x * 2 if self.training else x * 3

    x = mx.nd.ones((2, 2))
    for training, factor in ((True, 2), (False, 3)):
        symbol, _, _ = mx.sym.from_torch(Net().train(training), torch.zeros(2, 2))
        assert (symbol.eval(x=x)[0].asnumpy() == factor).all()


def test_a_symbol_is_saved_and_read_again(tmp_path):
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Flatten(), nn.Linear(8, 3)
    ).eval()
    symbol, args, states = mx.sym.from_torch(net, torch.zeros(1, 1, 4, 4))
    x = torch.randn(3, 1, 4, 4)
    prefix = str(tmp_path / "net")
    mx.model.save_checkpoint(prefix, 1, symbol, args, states)
    again, more, moving = mx.model.load_checkpoint(prefix, 1)
    executor = again.bind(mx.cpu(), {"input": array(x), **more}, aux_states=moving)
    (found,) = executor.forward(is_train=False)
    np.testing.assert_allclose(found.asnumpy(), net(x).detach().numpy(), 1e-5, 1e-6)
    assert again.list_arguments() == symbol.list_arguments()


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
    kinds = [n.op.name for n in symbol.graph.nodes if n.op is not None]
    for kind in ("Convolution", "BatchNorm", "LayerNorm", "LeakyReLU", "FullyConnected"):
        assert kinds.count(kind) == 1, kind
    assert kinds.count("Dropout") == 2
    assert sorted(states) == ["norm.running_mean", "norm.running_var"]
    assert not [
        n.a.use_global_stats for n in symbol.graph.nodes if n.op is not None and n.op.name == "BatchNorm"
    ][0]
    x = torch.randn(3, 2, 5, 5)
    executor = symbol.bind(mx.cpu(), {"x": array(x), **args}, aux_states=states)
    (found,) = executor.forward(is_train=False)
    np.testing.assert_allclose(found.asnumpy(), net.eval()(x).detach().numpy(), 1e-4, 1e-6)


def test_truth_values_as_inputs_and_outputs():
    class Net(nn.Module):
        def forward(self, x, mask):
            return x.masked_fill(mask, 0.0), ~mask, x > 0

    symbol, _, _ = mx.sym.from_torch(Net(), torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    x, mask = torch.randn(4, 3), torch.rand(4, 3) > 0.5
    for found, want in zip(symbol.eval(x=array(x), mask=array(mask)), Net()(x, mask)):
        assert (found.asnumpy() == want.float().numpy()).all()


def test_sizes_of_runs_and_codes():
    assert reshape_codes((2, 3, 4), (2, 12)) == (0, -3)
    assert reshape_codes((2, 12), (2, 3, 4)) == (0, -4, -1, 4)
    assert reshape_codes((2, 3, 4), (24,)) == (-1,)
    assert reshape_codes((4, 6), (3, 8)) == (3, -1)


def test_inputs_by_name_may_come_in_another_order():
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    module = mx.sym.broadcast_add(mx.sym.abs(b), a * 0).to_torch({})
    given = {"a": -torch.ones(2, 3), "b": torch.full((2, 3), 5.0)}
    symbol, _, _ = mx.sym.from_torch(module, **given)
    outputs = symbol.bind(mx.cpu(), {name: mx.nd.array(value) for name, value in given.items()}).forward()
    np.testing.assert_array_equal(outputs[0].asnumpy(), np.full((2, 3), 5))
